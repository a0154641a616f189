//! Measures the lower bound of a first list: receives all pods with each list method and drops
//! them.

use crate::{call, usage::Usage};
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::Client;
use kubewarm_wire::protobuf::{FieldHead, ListHead, ListMeta, METADATA, ProtobufError};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// kubewarm's `Accept` header for built-in kinds. A drain sends the same header, so that the API
/// server does the same work for both.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";
/// The annotation of the bookmark that ends a streaming list.
const END: &[u8] = b"k8s.io/initial-events-end";
const PODS: &str = "/api/v1/pods";

/// A list method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Strategy {
    /// One complete list.
    Whole,
    /// A streaming list: a watch with `sendInitialEvents`.
    Streaming,
    /// Pages of 500.
    Paged,
    /// The method that kubewarm itself chooses. `drain` rejects this value, because a drain makes
    /// no choice.
    Auto,
}

/// The result of a drain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Drained {
    /// The time from the first request, connection included, to the last byte.
    pub seconds: f64,
    /// The received bytes without headers.
    pub bytes: u64,
    /// The processor time of this process.
    pub cpu_seconds: f64,
}

/// Receives and drops all pods.
///
/// # Errors
///
/// Requests that fail, and streams that end early.
pub async fn drain(client: &Client, strategy: Strategy) -> Result<Drained> {
    let before = Usage::of_this_process()?;
    let started = Instant::now();
    let bytes = match strategy {
        Strategy::Whole => whole(client).await?,
        Strategy::Streaming => streaming(client).await?,
        Strategy::Paged => paged(client).await?,
        Strategy::Auto => bail!("auto is not a way to drain: whole, streaming or paged"),
    };
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = Usage::of_this_process()?.cpu_seconds - before.cpu_seconds;
    Ok(Drained { seconds, bytes, cpu_seconds })
}

async fn whole(client: &Client) -> Result<u64> {
    let mut body = call::get(client, PODS, ACCEPT).await?.into_body().into_data_stream();
    let mut received = 0;
    while let Some(chunk) = body.next().await {
        received += chunk?.len() as u64;
    }
    Ok(received)
}

async fn streaming(client: &Client) -> Result<u64> {
    let path = format!(
        "{PODS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&timeoutSeconds=300"
    );
    let mut body = call::get(client, &path, ACCEPT).await?.into_body().into_data_stream();
    let mut received = 0;
    let mut finder = EndBookmarkFinder::default();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        received += chunk.len() as u64;
        if finder.ends(&chunk) {
            return Ok(received);
        }
    }
    bail!("the streaming list ended after {received} bytes without its end bookmark")
}

/// Finds the end of a streaming list, also across two chunks. It copies only bytes at the border of
/// two chunks, so that it does not slow down the drain.
#[derive(Debug, Default)]
pub(crate) struct EndBookmarkFinder(Vec<u8>);

impl EndBookmarkFinder {
    /// Whether the list ends in `chunk`, which follows all earlier chunks.
    pub(crate) fn ends(&mut self, chunk: &[u8]) -> bool {
        let seam = &mut self.0;
        seam.extend_from_slice(chunk.get(..END.len()).unwrap_or(chunk));
        if [chunk, seam].iter().any(|part| memchr::memmem::find(part, END).is_some()) {
            return true;
        }
        if let Some(end) = chunk.len().checked_sub(END.len()) {
            seam.clear();
            seam.extend_from_slice(chunk.get(end..).unwrap_or_default());
        } else {
            seam.drain(..seam.len().saturating_sub(END.len()));
        }
        false
    }
}

async fn paged(client: &Client) -> Result<u64> {
    let mut received = 0;
    let mut token = String::new();
    loop {
        let path = format!("{PODS}?limit=500{token}");
        let body = call::get(client, &path, ACCEPT).await?.into_body();
        let mut body = body.into_data_stream();
        let mut head = Vec::new();
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            received += chunk.len() as u64;
            // Keeps only the first bytes, because the metadata of a list, with the continue token,
            // come before its items.
            if head.len() < 2048 {
                head.extend_from_slice(&chunk);
            }
        }
        match continue_token(&head)? {
            Some(next) => token = format!("&continue={next}"),
            None => return Ok(received),
        }
    }
}

/// The continue token of a list in protobuf, found in its first bytes.
fn continue_token(list: &[u8]) -> Result<Option<String>> {
    let (_, list) = first(list, ListHead::parse).context("not a list in protobuf")?;
    let (metadata, rest) = first(list, FieldHead::parse).context("a list without fields")?;
    ensure!(metadata.number == METADATA, "a list without metadata");
    let metadata = rest.get(..metadata.length).context("the metadata of a list is too long")?;
    let next = ListMeta::parse(metadata)?.next;
    Ok((!next.is_empty()).then(|| next.to_owned()))
}

/// The value at the start of `bytes`, and the bytes behind it. `parse` needs exactly the value's
/// bytes.
fn first<'a, T>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<Option<T>, ProtobufError>,
) -> Option<(T, &'a [u8])> {
    (0..=bytes.len()).find_map(|end| {
        let (value, rest) = bytes.split_at(end);
        Some((parse(value).ok()??, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_wire::protobuf::{item_length, write_item, write_list_head};

    #[test]
    fn an_end_is_found_wherever_it_is_cut() {
        let stream = [b"{\"a\":1}".as_slice(), END, b"\":\"true\"}"].concat();
        for size in 1..stream.len() {
            let mut finder = EndBookmarkFinder::default();
            assert!(stream.chunks(size).any(|chunk| finder.ends(chunk)), "in chunks of {size}");
        }
        let mut finder = EndBookmarkFinder::default();
        assert!(!stream[..30].chunks(3).any(|chunk| finder.ends(chunk)));
    }

    #[test]
    fn the_token_is_read_from_the_metadata_of_the_list() {
        for (next, expected) in [("abc", Some("abc")), ("", None)] {
            let meta = ListMeta { version: "7", next, remaining: None };
            let mut list = Vec::new();
            write_list_head("v1", "PodList", &meta, item_length(3), &mut list);
            write_item(b"pod", &mut list);
            assert_eq!(continue_token(&list).unwrap().as_deref(), expected);
        }
        assert!(continue_token(b"{}").is_err());
    }
}
