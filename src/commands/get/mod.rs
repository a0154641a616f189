//! `get`: read through the cache, and compare with the API server.

mod compared;
mod contents;
mod request;
mod rows;

use self::{
    compared::{Reading, comparison},
    contents::contents,
    request::{Request, WHOLE, accept},
};
use super::{
    Error, cache,
    cluster::{self, served},
    print::{show, tell},
    report::Verdict,
};
use crate::cli::GetArgs;
use http::HeaderMap;
use jiff::Timestamp;
use kube::Client;
use kubewarm_api::model::{Fault, Resource, ResourceInfo};
use kubewarm_client::{Answer, Connection, Served, get_all};
use rows::Rows;
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

/// What is new at one server is soon at the other; what still differs then is a difference.
const SETTLING: Duration = Duration::from_secs(1);
/// Of the answer.
const FRESHNESS: &str = "kubewarm-freshness-milliseconds";

/// A server that is asked.
struct Asked {
    client: Client,
    /// For messages.
    name: &'static str,
}

/// Prints what the cache has, or with `--compare` what differs from the API server.
///
/// # Errors
///
/// [`Error`] where there is no way to the cache, it does not keep the kind warm, or refuses.
pub async fn get(args: &GetArgs, now: impl Fn() -> Timestamp) -> Result<Verdict, Error> {
    let connection = connect(args).await?;
    let cache = Asked { client: connection.client(), name: "the cache" };
    let kinds = served(cache.client.clone()).await.map_err(Error::of_discovery)?;
    let kind = find(&kinds, &args.kind).ok_or_else(|| not_warm(&args.kind))?;
    let namespace = (kind.namespaced && !args.all_namespaces)
        .then(|| args.namespace.as_deref().unwrap_or_else(|| connection.namespace()));
    let request = Request::new(&kind.resource, namespace, args);
    if args.compare {
        let client = cluster::connect(&args.connection)?.client();
        let server = Asked { client, name: "the API server" };
        return compare(&cache, &server, &request).await;
    }
    let pages = pages(&cache, &request, accept(args.output)).await?;
    let (report, format) = contents(pages, kind, args, now());
    show(&report, Some(format))
}

/// The resource that `typed` names among those served: a plural, singular or short name or a kind, with `.group` or
/// `.version.group` behind it or not. Of several the first, built-in groups before others.
fn find<'a>(served: &'a Served, typed: &str) -> Option<&'a ResourceInfo> {
    let (name, place) = typed.split_once('.').unwrap_or((typed, ""));
    let is_there = |resource: &Resource| {
        place.is_empty()
            || resource.group() == place
            || place.strip_prefix(resource.version()).and_then(|rest| rest.strip_prefix('.'))
                == Some(resource.group())
    };
    served.resources().find(|it| it.is_called(name) && is_there(&it.resource))
}

fn not_warm(kind: &str) -> Error {
    Error::new(format!(
        "the cache serves no {kind} to you: no profile that answers there keeps it warm; `kubewarm status -A` \
         lists what is warm, --profile reads another profile's"
    ))
}

/// The cache, by the kubeconfig that says where it is or by the flags that find it.
async fn connect(args: &GetArgs) -> Result<Connection, Error> {
    if let Some(file) = &args.cache_kubeconfig {
        return Ok(Connection::load(Some(file), None)?);
    }
    let (described, _) = cache::kubeconfig(&args.cache, &args.connection, None).await?;
    Ok(Connection::described(described)?)
}

/// The answer, or the answers for a list.
async fn pages(
    asked: &Asked,
    request: &Request,
    accept: &'static str,
) -> Result<Vec<Value>, Error> {
    let mut pages = Vec::new();
    let mut next = None;
    loop {
        let answer = asked.ask(&request.page(next.as_deref()), accept).await?;
        let page: Value = answer.json().map_err(|fault| asked.failed(&fault))?;
        let token = page.pointer("/metadata/continue").and_then(Value::as_str);
        next = token.filter(|token| !token.is_empty()).map(str::to_owned);
        pages.push(page);
        if next.is_none() {
            return Ok(pages);
        }
    }
}

/// Says whether both have the same. The API server is asked first, so that what happens between the two is
/// only ever too new; and again if they differ, last.
async fn compare(cache: &Asked, server: &Asked, request: &Request) -> Result<Verdict, Error> {
    // Handshakes belong to neither.
    for asked in [cache, server] {
        asked.ask("/version", WHOLE).await?;
    }
    let theirs = server.read(request).await?;
    let ours = cache.read(request).await?;
    let mut differences = ours.rows.differences(&theirs.rows);
    if !differences.is_empty() {
        sleep(SETTLING).await;
        let again = cache.read(request).await?.rows;
        let settled = server.read(request).await?.rows;
        differences.retain(|difference| difference.is_still(&again, &settled));
    }
    show(&comparison(&ours, &theirs, &differences), None)
}

impl Asked {
    /// An answer of a 2xx status.
    async fn ask(&self, path: &str, accept: &'static str) -> Result<Answer, Error> {
        let answer = self.send(path, accept).await?;
        if !answer.status.is_success() {
            return Err(self.failed(&answer.fault()));
        }
        Ok(answer)
    }

    async fn send(&self, path: &str, accept: &'static str) -> Result<Answer, Error> {
        let answer = get_all(&self.client, path, accept).await;
        let answer = answer.map_err(|fault| self.failed(&fault))?;
        for warning in answer.headers.get_all(http::header::WARNING) {
            tell(&format!("{} warns: {}", self.name, warning.to_str().unwrap_or_default()));
        }
        Ok(answer)
    }

    /// What is there, in one answer. An object that is not there is nothing.
    async fn read(&self, request: &Request) -> Result<Reading, Error> {
        let answer = self.send(&request.whole(), WHOLE).await?;
        let rows = if answer.status == http::StatusCode::NOT_FOUND && request.is_of_one() {
            Rows::default()
        } else {
            let found = answer.json().map_err(|fault| self.failed(&fault))?;
            Rows::new(found).map_err(|fault| self.failed(&fault))?
        };
        let Answer { first_byte, whole, headers, body, .. } = answer;
        let (bytes, freshness) = (body.len(), freshness(&headers));
        Ok(Reading { rows, first_byte, whole, bytes, freshness })
    }

    fn failed(&self, fault: &Fault) -> Error {
        let (message, reason) = (fault.message(), fault.reason().as_str());
        Error::new(format!("{} did not answer: {message} ({reason})", self.name))
    }
}

/// How old the answer is, by itself.
fn freshness(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(FRESHNESS)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}
