//! Sends a request to the API server and reads the whole response, with limits on time and size.
//!
//! kubewarm does not use kube's `Client::request`, which has no size limit and logs a body that it
//! cannot decode.

use super::fault;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::{Client, client::Body};
use kubewarm_api::model::{FaultReason, RequestFault};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};
use tokio::time::{Instant, timeout};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Default limits of a request: time from its start to the end of the response, and bytes of the
/// response body.
const TIME: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 1 << 20;

/// Sends requests to the API server with one identity.
///
/// One expression builds, limits and sends a request:
/// `client.get(path).within(time).at_most(bytes).send()`.
#[derive(Clone)]
pub struct ApiClient(Client);

/// A request before it is sent. Its default limits are 10 s and a response body of 1 MiB.
#[must_use = "a request that is not sent does nothing"]
pub struct ApiRequest {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
    time: Duration,
    body_bytes: usize,
}

/// A complete response of any status, with its timing.
#[derive(Debug, Default)]
pub struct ApiResponse {
    /// The HTTP status, which can be 4xx or 5xx.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// The complete body as received.
    pub body: Bytes,
    /// Time from the request to the first byte of the body, or to the end of an empty body.
    pub first_byte: Duration,
    /// Time from the request to the end of the body.
    pub whole: Duration,
}

impl ApiClient {
    /// Creates an `ApiClient` whose requests use the credentials of kube's client `client`.
    pub fn new(client: &Client) -> Self {
        Self(client.clone())
    }

    /// Builds a `GET` of `path`, which must be percent-encoded.
    pub fn get(&self, path: impl Into<String>) -> ApiRequest {
        self.request(Method::GET, path.into(), Vec::new())
    }

    /// Builds a `POST` that creates the object in `body`, as JSON.
    pub fn post(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) -> ApiRequest {
        self.request(Method::POST, path.into(), body.into())
    }

    /// Builds a `PUT` that replaces the object at `path`, or creates it. `body` is JSON.
    pub fn put(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) -> ApiRequest {
        self.request(Method::PUT, path.into(), body.into())
    }

    /// Builds a `PATCH` for server-side apply. `body` is YAML or JSON.
    pub fn apply(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) -> ApiRequest {
        let apply = HeaderValue::from_static("application/apply-patch+yaml");
        self.request(Method::PATCH, path.into(), body.into()).header(CONTENT_TYPE, apply)
    }

    fn request(&self, method: Method, path: String, body: Vec<u8>) -> ApiRequest {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON);
        if method != Method::GET {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let client = self.0.clone();
        ApiRequest { client, method, path, headers, body, time: TIME, body_bytes: BODY_BYTES }
    }
}

impl ApiRequest {
    /// Sets the media type in the `Accept` header. The default is `application/json`.
    pub fn accept(self, media_type: &'static str) -> Self {
        self.header(ACCEPT, HeaderValue::from_static(media_type))
    }

    /// Sets a header and replaces its previous value.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Adds the headers in `more` to the request. `more` can contain several headers of one name,
    /// such as `Impersonate-Group`.
    pub(super) fn with(mut self, more: HeaderMap) -> Self {
        self.headers.extend(more);
        self
    }

    /// Limits the time from the request to the end of the response body.
    pub fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Limits the size of the response body, in bytes.
    pub fn at_most(self, body_bytes: usize) -> Self {
        Self { body_bytes, ..self }
    }

    /// Sends the request and reads the complete response.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Unreachable`] if the connection fails, [`FaultReason::TimedOut`] or
    /// [`FaultReason::TooLarge`] if the response exceeds a limit of this request, and
    /// [`FaultReason::Internal`] if the path is not valid. A response with status 4xx or 5xx is not
    /// an error.
    pub async fn send(self) -> Result<ApiResponse, RequestFault> {
        let Self { client, method, path, headers, body, time, body_bytes } = self;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| {
            RequestFault::new(FaultReason::Internal, format!("{path:?} is no path"))
        })?;
        *request.headers_mut() = headers;
        timeout(time, exchange(&client, request, body_bytes)).await.unwrap_or_else(|_| {
            let message = format!("no complete answer within {time:?}");
            Err(RequestFault::new(FaultReason::TimedOut, message))
        })
    }
}

async fn exchange(
    client: &Client,
    request: Request<Body>,
    most_bytes: usize,
) -> Result<ApiResponse, RequestFault> {
    let started_at = Instant::now();
    let mut first_byte = None;
    let response = client.send(request).await.map_err(|error| fault::of_transport(&error))?;
    let (head, mut frames) = response.into_parts();
    let mut body = BytesMut::new();
    while let Some(frame) = frames.frame().await {
        let frame = frame.map_err(|error| fault::of_transport(&error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        first_byte.get_or_insert_with(|| started_at.elapsed());
        if body.len() + bytes.len() > most_bytes {
            let message = format!("the answer is larger than {most_bytes} bytes");
            return Err(RequestFault::new(FaultReason::TooLarge, message));
        }
        body.extend_from_slice(&bytes);
    }
    let whole = started_at.elapsed();
    Ok(ApiResponse {
        status: head.status,
        headers: head.headers,
        body: body.freeze(),
        first_byte: first_byte.unwrap_or(whole),
        whole,
    })
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the client, because it contains credentials.
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

impl ApiResponse {
    /// Decodes the JSON body of a response with status 2xx.
    ///
    /// # Errors
    ///
    /// [`Self::fault`] if the status is not 2xx. [`FaultReason::Malformed`] if the body does not
    /// decode to `T`; the message does not quote the body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RequestFault> {
        if !self.status.is_success() {
            return Err(self.fault());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let what = if error.is_eof() { "ends early" } else { "is not what was expected" };
            RequestFault::new(
                FaultReason::Malformed,
                format!("the answer {what} at {line}:{column}"),
            )
            .with_code(self.status.as_u16())
        })
    }

    /// Converts a response whose status is not 2xx into a [`RequestFault`].
    pub fn fault(&self) -> RequestFault {
        fault::of_response(self.status, &self.headers, &self.body, Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use std::{convert::Infallible, io};
    use tower::service_fn;

    async fn send(client: &Client) -> Result<ApiResponse, RequestFault> {
        let request = ApiClient::new(client).get("/");
        request.within(Duration::from_secs(5)).at_most(64).send().await
    }

    async fn received(response: Response<Body>) -> Result<ApiResponse, RequestFault> {
        let parts = parking_lot::Mutex::new(Some(response));
        let service = service_fn(move |_: Request<Body>| {
            let response = parts.lock().take();
            async move {
                match response {
                    Some(response) => Ok::<_, Infallible>(response),
                    None => std::future::pending().await,
                }
            }
        });
        let client = Client::new(service, "default");
        send(&client).await
    }

    fn response(code: u16, body: impl Into<Vec<u8>>) -> Response<Body> {
        let body: Vec<u8> = body.into();
        Response::builder().status(code).header("Retry-After", "7").body(Body::from(body)).unwrap()
    }

    #[tokio::test]
    async fn a_fault_contains_the_message_of_the_servers_status() {
        let fault = received(response(403, r#"{"kind":"Status","message":"pods is forbidden"}"#))
            .await
            .unwrap()
            .json::<serde_json::Value>()
            .unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Forbidden);
        assert_eq!(fault.message(), "pods is forbidden");
        assert_eq!(fault.code(), Some(403));
        assert_eq!(fault.retry_after(), Some(Duration::from_secs(7)));
        let fault = received(response(503, "<html>")).await.unwrap().fault();
        assert_eq!(fault.reason(), FaultReason::ServerError);
    }

    #[tokio::test]
    async fn a_body_above_the_size_limit_is_rejected() {
        let fault = received(response(200, vec![b' '; 65])).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::TooLarge);
    }

    #[tokio::test]
    async fn the_fault_about_an_invalid_body_does_not_quote_it() {
        let response = received(response(200, "secret")).await.unwrap();
        let fault = response.json::<serde_json::Value>().unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Malformed);
        assert!(!fault.message().contains("secret"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_times_out() {
        let service = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let client = Client::new(service, "default");
        let fault = send(&client).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::TimedOut);
    }

    #[tokio::test]
    async fn a_request_with_an_invalid_path_is_not_sent() {
        let service = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let client = ApiClient::new(&Client::new(service, "default"));
        let fault = client.get("/a b").send().await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Internal);
    }

    #[tokio::test]
    async fn a_transport_error_names_its_cause() {
        let service = service_fn(|_: Request<Body>| async {
            let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
            Err::<Response<Body>, _>(cause)
        });
        let client = Client::new(service, "default");
        let fault = send(&client).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Unreachable);
        assert!(fault.message().contains("connection refused"), "{fault}");
    }
}
