//! The one way to send a request to the API server and to take its whole answer, bounded in time and size.
//!
//! The client library's own `request` buffers without end and logs a body that it cannot decode.

use super::fault;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::{Client, client::Body};
use kubewarm_api::model::{Fault, Reason};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};
use tokio::time::{Instant, timeout};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What a request may take that sets no bounds of its own.
const TIME: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 1 << 20;

/// The API server, as one identity.
///
/// A request is built, bounded and sent by one expression, such as
/// `client.get(path).within(time).at_most(bytes).send()`.
#[derive(Clone)]
pub struct ApiClient(Client);

/// A request that was not sent yet: 10 s and 1 MiB unless it says otherwise, and JSON in both directions.
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

/// An answer, of whatever status, and how long it took from the request on.
#[derive(Debug, Default)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// Until the first byte of the body; until the end of one without.
    pub first_byte: Duration,
    /// Until the last.
    pub whole: Duration,
}

impl ApiClient {
    /// Sends what it is asked to by `client`, with the credentials of that.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self(client.clone())
    }

    /// Reads `path`, which must be encoded already.
    pub fn get(&self, path: impl Into<String>) -> ApiRequest {
        self.request(Method::GET, path.into(), Vec::new())
    }

    /// Creates what `body` describes.
    pub fn post(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) -> ApiRequest {
        self.request(Method::POST, path.into(), body.into())
    }

    /// Replaces what is there, or creates it.
    pub fn put(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) -> ApiRequest {
        self.request(Method::PUT, path.into(), body.into())
    }

    /// Applies `body` on the server's side.
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
    /// Asks for an answer of this media type.
    pub fn accept(self, media_type: &'static str) -> Self {
        self.header(ACCEPT, HeaderValue::from_static(media_type))
    }

    /// Sets a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Adds headers, which may repeat: the credentials of whom the request is about.
    pub(super) fn with(mut self, more: HeaderMap) -> Self {
        self.headers.extend(more);
        self
    }

    /// Bounds the time from the request to the end of the body.
    pub fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Bounds the bytes of the answer's body.
    pub fn at_most(self, body_bytes: usize) -> Self {
        Self { body_bytes, ..self }
    }

    /// Sends the request and reads the answer to its end.
    ///
    /// # Errors
    ///
    /// [`Reason::Unreachable`], [`Reason::TimedOut`], [`Reason::TooLarge`]; never for a status.
    pub async fn send(self) -> Result<Answer, Fault> {
        let Self { client, method, path, headers, body, time, body_bytes } = self;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path
            .parse()
            .map_err(|_| Fault::new(Reason::Internal, format!("{path:?} is no path")))?;
        *request.headers_mut() = headers;
        timeout(time, exchange(&client, request, body_bytes)).await.unwrap_or_else(|_| {
            let message = format!("no complete answer within {time:?}");
            Err(Fault::new(Reason::TimedOut, message))
        })
    }
}

async fn exchange(
    client: &Client,
    request: Request<Body>,
    most_bytes: usize,
) -> Result<Answer, Fault> {
    let began = Instant::now();
    let mut first_byte = None;
    let answer = client.send(request).await.map_err(|error| fault::of_transport(&error))?;
    let (head, mut frames) = answer.into_parts();
    let mut body = BytesMut::new();
    while let Some(frame) = frames.frame().await {
        let frame = frame.map_err(|error| fault::of_transport(&error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        first_byte.get_or_insert_with(|| began.elapsed());
        if body.len() + bytes.len() > most_bytes {
            let message = format!("the answer is larger than {most_bytes} bytes");
            return Err(Fault::new(Reason::TooLarge, message));
        }
        body.extend_from_slice(&bytes);
    }
    let whole = began.elapsed();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: body.freeze(),
        first_byte: first_byte.unwrap_or(whole),
        whole,
    })
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds credentials.
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and the body may hold tokens.
        let Self { method, path, .. } = self;
        f.debug_struct("ApiRequest")
            .field("method", method)
            .field("path", path)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// The body of a 2xx answer.
    ///
    /// # Errors
    ///
    /// The fault of another status; [`Reason::Malformed`] without a word of the body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        if !self.status.is_success() {
            return Err(self.fault());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let what = if error.is_eof() { "ends early" } else { "is not what was expected" };
            Fault::new(Reason::Malformed, format!("the answer {what} at {line}:{column}"))
                .with_code(self.status.as_u16())
        })
    }

    /// What a status that is not 2xx means.
    #[must_use]
    pub fn fault(&self) -> Fault {
        fault::of_response(self.status, &self.headers, &self.body, Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use std::{convert::Infallible, io};
    use tower::service_fn;

    async fn send(client: &Client) -> Result<Answer, Fault> {
        let request = ApiClient::new(client).get("/");
        request.within(Duration::from_secs(5)).at_most(64).send().await
    }

    async fn asked(answer: Response<Body>) -> Result<Answer, Fault> {
        let parts = parking_lot::Mutex::new(Some(answer));
        let service = service_fn(move |_: Request<Body>| {
            let answer = parts.lock().take();
            async move {
                match answer {
                    Some(answer) => Ok::<_, Infallible>(answer),
                    None => std::future::pending().await,
                }
            }
        });
        let client = Client::new(service, "default");
        send(&client).await
    }

    fn answer(code: u16, body: impl Into<Vec<u8>>) -> Response<Body> {
        let body: Vec<u8> = body.into();
        Response::builder().status(code).header("Retry-After", "7").body(Body::from(body)).unwrap()
    }

    #[tokio::test]
    async fn a_status_is_told_in_the_servers_words() {
        let fault = asked(answer(403, r#"{"kind":"Status","message":"pods is forbidden"}"#))
            .await
            .unwrap()
            .json::<serde_json::Value>()
            .unwrap_err();
        assert_eq!(fault.reason(), Reason::Forbidden);
        assert_eq!(fault.message(), "pods is forbidden");
        assert_eq!(fault.code(), Some(403));
        assert_eq!(fault.retry_after(), Some(Duration::from_secs(7)));
        let fault = asked(answer(503, "<html>")).await.unwrap().fault();
        assert_eq!(fault.reason(), Reason::ServerError);
    }

    #[tokio::test]
    async fn a_body_beyond_the_cap_is_not_taken() {
        let fault = asked(answer(200, vec![b' '; 65])).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::TooLarge);
    }

    #[tokio::test]
    async fn a_body_that_is_no_json_is_not_quoted() {
        let answer = asked(answer(200, "secret")).await.unwrap();
        let fault = answer.json::<serde_json::Value>().unwrap_err();
        assert_eq!(fault.reason(), Reason::Malformed);
        assert!(!fault.message().contains("secret"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_times_out() {
        let service = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let client = Client::new(service, "default");
        let fault = send(&client).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::TimedOut);
    }

    #[tokio::test]
    async fn a_text_that_is_no_path_is_not_sent() {
        let service = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let client = ApiClient::new(&Client::new(service, "default"));
        let fault = client.get("/a b").send().await.unwrap_err();
        assert_eq!(fault.reason(), Reason::Internal);
    }

    #[tokio::test]
    async fn a_transport_error_names_its_cause() {
        let service = service_fn(|_: Request<Body>| async {
            let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
            Err::<Response<Body>, _>(cause)
        });
        let client = Client::new(service, "default");
        let fault = send(&client).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::Unreachable);
        assert!(fault.message().contains("connection refused"), "{fault}");
    }
}
