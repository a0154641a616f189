//! Sends randomly changed requests of a corpus with an accepted token. Each response must have an
//! expected status code and form.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use testbed::{Request, changed, corpus};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::peer::{Peer, RawResponse};
use super::{Fault, PATIENCE};
use crate::api::protobuf_json;
use crate::world::{Failure, Outcome};

/// Changed requests, in addition to the unchanged ones. `PROPTEST_CASES` overrides the number.
const CHANGED: u32 = 600;
/// The number of concurrent requests, below the limit of one caller. Some requests wait for three
/// seconds, so this test sends them in parallel.
const AT_ONCE: usize = 48;
/// Time limit for reading a watch that does not end by itself.
const LOOKED_AT: Duration = Duration::from_secs(10);
/// Upper bound of an answer's size: more than a list of everything.
const LARGEST: usize = 4 << 20;
/// Status codes that a response may have. 301 occurs for outdated hashes of OpenAPI documents, 504
/// for resource versions of the future.
const CODES: [u16; 14] = [200, 301, 304, 400, 403, 404, 405, 406, 410, 413, 421, 422, 429, 431];

pub(super) fn are_answered(peer: &Peer, namespace: &str) -> Outcome {
    let runtime = tokio::runtime::Runtime::new()?;
    let cases = requests(namespace)?;
    let answers = runtime.block_on(async {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for request in cases {
            let place = Arc::clone(&places).acquire_owned().await?;
            let peer = peer.clone();
            asking.spawn(async move {
                let result = peer.send(&written(&request, &peer.token), LOOKED_AT).await;
                drop(place);
                (request, result.map_err(|error| error.to_string()))
            });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asking.join_next().await {
            answers.push(answer?);
        }
        Ok::<_, Fault>(answers)
    });
    let answers = answers.map_err(|error| error.to_string())?;
    let mut wrong = String::new();
    let mut understood = 0;
    for (request, result) in answers {
        let fault = match &result {
            Err(error) => Some(error.clone()),
            Ok(None) => None,
            Ok(Some(answer)) => {
                understood += usize::from(answer.code == 200);
                fault(&request, answer).map(str::to_owned)
            }
        };
        if let Some(fault) = fault {
            writeln!(wrong, "{request:?}\n  {fault}: {result:?}")?;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(understood > 20, "only {understood} got a successful answer");
    // The server still answers an ordinary request.
    let path = format!("GET /api/v1/namespaces/{namespace}/configmaps HTTP/1.1");
    let ordinary = format!(
        "{path}\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        peer.token
    );
    let answer = runtime.block_on(peer.send(ordinary.as_bytes(), PATIENCE));
    let answer = answer.map_err(|error| error.to_string())?;
    assert_eq!(answer.map(|answer| answer.code), Some(200));
    Ok(())
}

/// The requests of the corpus and changed copies of them. The seed is fixed, so each run sends the
/// same requests.
fn requests(namespace: &str) -> Result<Vec<Request>, Failure> {
    let count = match std::env::var("PROPTEST_CASES") {
        Ok(cases) => cases.parse()?,
        Err(_) => CHANGED,
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let strategy = changed();
    let mut requests = corpus();
    for _ in 0..count {
        requests.push(strategy.new_tree(&mut runner).map_err(|error| error.to_string())?.current());
    }
    for request in &mut requests {
        request.target = request.target.replace("/team/", &format!("/{namespace}/"));
    }
    Ok(requests)
}

fn written(Request { method, target, accept }: &Request, token: &str) -> Vec<u8> {
    let accept = accept.as_ref().map(|accept| format!("Accept: {accept}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n{accept}\r\n"
    );
    head.into_bytes()
}

/// Returns what is wrong with an answer, if anything is.
fn fault(request: &Request, answer: &RawResponse) -> Option<&'static str> {
    let RawResponse { code, head, body } = answer;
    let is_of_the_future = *code == 504 && request.target.contains("esourceVersion=");
    if !CODES.contains(code) && !is_of_the_future {
        return Some("an unexpected status code");
    }
    if body.len() > LARGEST {
        return Some("an answer that is too large");
    }
    // The HTTP library answers malformed HTTP itself, without JSON. A response to HEAD has no body.
    if *code < 400 || body.is_empty() {
        return None;
    }
    let status: Option<Value> = if head.contains(kubewarm_wire::PROTOBUF) {
        protobuf_json(body)
    } else if head.contains(kubewarm_wire::JSON) {
        serde_json::from_slice(body).ok()
    } else {
        None
    };
    let is_status = status.is_some_and(|body| body["kind"] == "Status" && body["code"] == *code);
    (!is_status).then_some("no Status")
}
