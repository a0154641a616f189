//! Sends the requests of a cell, and turns whatever goes wrong into a fault.

use crate::{
    cluster::fault,
    model::{Fault, Reason},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::Body;
use std::time::Duration;
use tokio::time::timeout;

/// Most of an error's body that is read: a Status is smaller, and nothing else is looked at.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The bytes of a response as they arrive.
pub(super) type Chunks = BoxStream<'static, Result<Bytes, Fault>>;

/// Sends `request` and waits for the headers of a successful response.
///
/// # Errors
///
/// [`Reason::TimedOut`] without headers in time, [`Reason::Unreachable`] without a connection, and
/// whatever the status code means.
pub(super) async fn open(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    headers_within: Duration,
) -> Result<Chunks, Fault> {
    let late = || {
        let seconds = headers_within.as_secs();
        Fault::new(Reason::TimedOut, format!("no answer from the API server within {seconds} s"))
    };
    let response = timeout(headers_within, client.send(request.map(Body::from)))
        .await
        .map_err(|_elapsed| late())?
        .map_err(|error| fault::of_transport(&error))?;
    if !response.status().is_success() {
        return Err(refused(response, headers_within).await);
    }
    let chunks = response.into_body().into_data_stream();
    Ok(chunks.map(|chunk| chunk.map_err(|error| fault::of_transport(&error))).boxed())
}

/// Reads a small response whole.
///
/// # Errors
///
/// As [`open`]; [`Reason::TooLarge`] above `cap` bytes.
pub(super) async fn read(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    within: Duration,
    cap: usize,
) -> Result<Vec<u8>, Fault> {
    let mut chunks = open(client, request, within).await?;
    let mut body = Vec::new();
    let reading = async {
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk?);
            if body.len() > cap {
                return Err(Fault::new(
                    Reason::TooLarge,
                    format!("the answer exceeds {cap} bytes"),
                ));
            }
        }
        Ok(())
    };
    match timeout(within, reading).await {
        Ok(read) => read.map(|()| body),
        Err(_elapsed) => Err(Fault::new(Reason::TimedOut, "the answer did not end in time")),
    }
}

async fn refused(response: Response<Body>, within: Duration) -> Fault {
    let (parts, body) = response.into_parts();
    let body = match timeout(within, Limited::new(body, MAX_ERROR_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        // What the code says is enough.
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    fault::of_response(parts.status, &parts.headers, &body, Timestamp::now())
}
