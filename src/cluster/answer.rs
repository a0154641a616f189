//! One request and its whole answer, bounded in time and size.
//!
//! The client library's own `request` buffers without end and logs a body that it cannot decode.

use super::fault;
use crate::model::{Fault, Reason};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long to wait for the last byte, and how many to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// From the request to the end of the body.
    pub(super) time: Duration,
    /// Bytes of the body.
    pub(super) body_bytes: usize,
}

/// An answer, of whatever status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// An answer, and how long it took from the request on.
#[derive(Debug)]
pub struct Timed {
    /// All of it.
    pub answer: Answer,
    /// Until the first byte of the body; until the end of one without.
    pub first_byte: Duration,
    /// Until the last.
    pub whole: Duration,
}

/// Sends `request` and reads the answer to its end.
///
/// # Errors
///
/// [`Reason::Unreachable`], [`Reason::TimedOut`], [`Reason::TooLarge`]; never for a status.
pub(super) async fn ask(
    client: &Client,
    request: Request<Body>,
    bounds: Bounds,
) -> Result<Answer, Fault> {
    ask_timed(client, request, bounds).await.map(|timed| timed.answer)
}

/// The same, with how long it took.
///
/// # Errors
///
/// As for [`ask`].
pub(super) async fn ask_timed(
    client: &Client,
    request: Request<Body>,
    bounds: Bounds,
) -> Result<Timed, Fault> {
    let began = Instant::now();
    let mut first_byte = None;
    let exchange = async {
        let answer = client.send(request).await.map_err(|error| fault::of_transport(&error))?;
        let (head, mut frames) = answer.into_parts();
        let mut body = BytesMut::new();
        while let Some(frame) = frames.frame().await {
            let frame = frame.map_err(|error| fault::of_transport(&error))?;
            let Ok(bytes) = frame.into_data() else { continue };
            first_byte.get_or_insert_with(|| began.elapsed());
            if body.len() + bytes.len() > bounds.body_bytes {
                let message = format!("the answer is larger than {} bytes", bounds.body_bytes);
                return Err(Fault::new(Reason::TooLarge, message));
            }
            body.extend_from_slice(&bytes);
        }
        let answer = Answer { status: head.status, headers: head.headers, body: body.freeze() };
        let whole = began.elapsed();
        Ok(Timed { answer, first_byte: first_byte.unwrap_or(whole), whole })
    };
    timeout(bounds.time, exchange).await.unwrap_or_else(|_| {
        let message = format!("no complete answer within {:?}", bounds.time);
        Err(Fault::new(Reason::TimedOut, message))
    })
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

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(5), body_bytes: 64 };

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
        ask(&client, Request::get("/").body(Body::empty()).unwrap(), BOUNDS).await
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
        let request = Request::get("/").body(Body::empty()).unwrap();
        let fault = ask(&client, request, BOUNDS).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::TimedOut);
    }

    #[tokio::test]
    async fn a_transport_error_names_its_cause() {
        let service = service_fn(|_: Request<Body>| async {
            let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
            Err::<Response<Body>, _>(cause)
        });
        let client = Client::new(service, "default");
        let request = Request::get("/").body(Body::empty()).unwrap();
        let fault = ask(&client, request, BOUNDS).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::Unreachable);
        assert!(fault.message().contains("connection refused"), "{fault}");
    }
}
