//! Sends every kind of read to both servers. The answers must be equal except for named
//! differences, which `docs/reading.md` explains.

mod authorization;
mod corpus;
mod difference;
mod grammar;
mod random;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

pub(crate) use self::corpus::{AGGREGATED_FIRST, DEFINITIONS, TARGETS};
pub(crate) use self::random::replay_random;

use self::corpus::{LONG, OBJECTS, ReplayRequest, continued, in_protobuf, of_now, requests, walks};
use self::difference::Difference;
use crate::api::{HttpReply, Server};
use crate::world::{Failure, Outcome, eventually, file};

/// The minimum number of requests.
const FEWEST: usize = 600;
/// Timeout for equal answers: kubewarm receives a change a moment after the API server.
const SOON_SAME: Duration = Duration::from_secs(5);
/// Timeout for equal watches, which take five seconds each.
const EVENT_DEADLINE: Duration = Duration::from_secs(30);
/// The most pages of one list.
const MOST_PAGES: usize = 100;
/// Headers that clients read, compared in addition to the body.
const HEADERS: &[&str] = &[
    "cache-control",
    "content-encoding",
    "content-type",
    "retry-after",
    "vary",
    "x-content-type-options",
];

/// The media type of errors outside the Kubernetes API.
const PLAIN_TEXT: &str = "text/plain";

/// The compared parts of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    code: u16,
    headers: BTreeMap<&'static str, String>,
    body: Value,
    /// Whether the body is a JSON object in several lines.
    is_indented: bool,
}

/// The objects of the replay, most of them in the namespace `a`.
pub(crate) fn objects(a: &str) -> String {
    OBJECTS.replace("NAMESPACE", a).replace("LONG", &"long ".repeat(LONG / 5))
}

/// Both servers, and the token of a user who may read everything.
pub(crate) struct Players<'a> {
    pub(crate) api: &'a Server,
    pub(crate) reads: &'a Server,
    pub(crate) token: &'a str,
    /// Whether kubewarm runs with `--forward`, which forwards requests only with a bearer token.
    pub(crate) forwards: bool,
}

/// The differences that occurred, and the answers with differences that have no name.
#[derive(Default)]
struct Found {
    met: BTreeSet<Difference>,
    unnamed: Vec<String>,
}

impl From<&HttpReply> for Answer {
    fn from(reply: &HttpReply) -> Self {
        let headers = HEADERS.iter().map(|&name| (name, reply.header(name).to_owned()));
        Self {
            code: reply.code,
            headers: headers.collect(),
            body: reply.json(),
            is_indented: reply.text.starts_with("{\n"),
        }
    }
}

impl Answer {
    fn is_plain_text(&self) -> bool {
        self.headers.get("content-type").is_some_and(|value| value.starts_with(PLAIN_TEXT))
    }

    /// The message of a `Status`. Empty in an answer to HEAD, which has no body.
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Players<'_> {
    /// Returns kubewarm's and the API server's answer to one request.
    fn ask(&self, request: &ReplayRequest, more: &str) -> Result<[Answer; 2], Failure> {
        let path = format!("{}{more}", request.path);
        Ok(self.replies(request, &path)?.each_ref().map(Answer::from))
    }

    /// Sends one request to kubewarm and to the API server, with another path.
    fn replies(&self, request: &ReplayRequest, path: &str) -> Result<[HttpReply; 2], Failure> {
        let credentials = request.authorization.values(self.token);
        let mut headers: Vec<_> =
            credentials.iter().map(|value| ("authorization", &**value)).collect();
        headers.push(("accept", request.accept));
        headers.extend(request.gzip.then_some(("accept-encoding", "gzip")));
        headers.extend(request.agent.map(|agent| ("user-agent", agent)));
        headers.extend(request.header);
        let ask = |server: &Server| server.ask(request.method, path, &headers);
        Ok([ask(self.reads)?, ask(self.api)?])
    }

    /// The current version of kubewarm's list.
    pub(crate) fn now(&self, path: &str) -> Result<String, Failure> {
        let list = self.reads.get(self.token, path)?.json();
        Ok(list["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned())
    }
}

/// Sends all requests to both servers. Most objects are in the namespace `a`.
pub(crate) fn replay(players: &Players<'_>, a: &str) -> Outcome {
    let requests = requests(a);
    let parts = |request: &ReplayRequest| {
        let ReplayRequest { method, path, authorization, accept, gzip, agent, header, .. } =
            request;
        (*method, path.clone(), *authorization, *accept, *gzip, *agent, *header)
    };
    let distinct: BTreeSet<_> = requests.iter().map(parts).collect();
    assert_eq!(distinct.len(), requests.len(), "two requests are equal");
    assert!(requests.len() >= FEWEST, "{} requests", requests.len());
    let mut differences = Found::default();
    for request in &requests {
        let same = eventually(SOON_SAME, || compare(request, &players.ask(request, "")?));
        differences.add(same);
    }
    for request in walks(a) {
        differences.add(eventually(SOON_SAME, || walk(players, &request)));
    }
    for request in continued(a) {
        differences.add(eventually(SOON_SAME, || go_on(players, &request)));
    }
    for request in of_now(a) {
        differences.add(eventually(SOON_SAME, || {
            let path = request.path.split('?').next().unwrap_or_default();
            compare(&request, &players.ask(&request, &players.now(path)?)?)
        }));
    }
    let mut begun = watched::begun(a);
    begun.extend(in_protobuf(&begun));
    for watched in watches(players, begun) {
        differences.add(watched);
    }
    let Found { met, unnamed } = differences;
    assert!(unnamed.is_empty(), "{} differ:\n{}", unnamed.len(), unnamed.join("\n"));
    let is_unmet =
        |difference: &&Difference| !met.contains(difference) && !difference.is_by_chance();
    let unmet: Vec<_> = Difference::ALL.iter().filter(is_unmet).collect();
    assert!(unmet.is_empty(), "no request differs by {unmet:?}");
    differences_are_documented()
}

/// Reads all pages of a list, with each server's own continue tokens.
fn walk(players: &Players<'_>, request: &ReplayRequest) -> Result<BTreeSet<Difference>, Failure> {
    let mut met = BTreeSet::new();
    let mut tokens = [String::new(), String::new()];
    for _ in 0..MOST_PAGES {
        let [ours, theirs] = [0, 1].map(|side| format!("&continue={}", tokens[side]));
        let [mut page, _] = players.ask(request, &ours)?;
        let [_, mut expected] = players.ask(request, &theirs)?;
        let next = |answer: &Answer| {
            answer.body["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
        };
        tokens = [next(&page), next(&expected)];
        met.extend(compare(request, &[page.clone(), expected.clone()])?);
        if tokens.iter().all(String::is_empty) {
            return Ok(met);
        }
        (page.body, expected.body) = (Value::Null, Value::Null);
    }
    Err(format!("{} has no end", request.path).into())
}

/// Reads the second page of a list at each server. The request has this server's own continue token
/// and the other parameters of `request`.
fn go_on(players: &Players<'_>, request: &ReplayRequest) -> Result<BTreeSet<Difference>, Failure> {
    let (first, _) = request.path.split_once('&').ok_or("no options")?;
    let bearer = format!("Bearer {}", players.token);
    let page = |server: &Server| -> Result<Answer, Failure> {
        let first = server.get(players.token, first)?.json();
        let token = first["metadata"]["continue"].as_str().ok_or("one page has all of it")?;
        let path = format!("{}&continue={token}", request.path);
        let headers = [("authorization", &*bearer), ("accept", request.accept)];
        Ok(Answer::from(&server.ask(request.method, &path, &headers)?))
    };
    compare(request, &[page(players.reads)?, page(players.api)?])
}

/// Compares all watches, in parallel, until they end. Bookmarks are left out, because their time
/// differs.
fn watches(
    players: &Players<'_>,
    requests: Vec<ReplayRequest>,
) -> Vec<Result<BTreeSet<Difference>, String>> {
    let try_once = |request: &ReplayRequest| {
        let path = request.path.split('?').next().unwrap_or_default();
        let path = request.path.replace("NOW", &players.now(path)?);
        let read = |server: &Server| -> Result<Answer, Failure> {
            let reply = server.get_as(players.token, &path, request.accept)?;
            let mut events = reply.events()?;
            events.retain(|event| event["type"] != "BOOKMARK");
            Ok(Answer { body: events.into(), ..Answer::from(&reply) })
        };
        compare(request, &[read(players.reads)?, read(players.api)?])
    };
    std::thread::scope(|scope| {
        let run = |request: ReplayRequest| {
            let same = eventually(EVENT_DEADLINE, || try_once(&request));
            same.map_err(|error| error.to_string())
        };
        let all: Vec<_> =
            requests.into_iter().map(|request| scope.spawn(move || run(request))).collect();
        let broken = |_| Err("a watch panicked".to_owned());
        all.into_iter().map(|one| one.join().unwrap_or_else(broken)).collect()
    })
}

/// Compares two answers and returns the permitted differences that occurred.
fn compare(
    request: &ReplayRequest,
    answers: &[Answer; 2],
) -> Result<BTreeSet<Difference>, Failure> {
    must_match(request, answers)?;
    let is_needed = |difference: &Difference| {
        let [ours, theirs] = without_permitted(request, answers, Some(*difference));
        ours != theirs
    };
    Ok(request.but.iter().copied().filter(is_needed).collect())
}

/// Fails unless both responses are equal except for the permitted differences.
fn must_match(request: &ReplayRequest, answers: &[Answer; 2]) -> Outcome {
    let [ours, theirs] = without_permitted(request, answers, None);
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{request:?}\n  ours: {ours:?}\n  theirs: {theirs:?}").into())
}

/// Removes the permitted differences from two answers, except `left_out`.
fn without_permitted(
    request: &ReplayRequest,
    answers: &[Answer; 2],
    left_out: Option<Difference>,
) -> [Answer; 2] {
    let [mut ours, mut theirs] = answers.clone();
    for difference in request.but.iter().filter(|difference| Some(**difference) != left_out) {
        difference.forgive(&mut ours, &mut theirs);
    }
    [ours, theirs]
}

impl Found {
    fn add(&mut self, compared: Result<BTreeSet<Difference>, impl ToString>) {
        match compared {
            Ok(met) => self.met.extend(met),
            Err(unnamed) => self.unnamed.push(unnamed.to_string()),
        }
    }
}

/// docs/reading.md must name the same differences as [`Difference`].
fn differences_are_documented() -> Outcome {
    let text = std::fs::read_to_string(file("docs/reading.md"))?;
    let (_, section) = text.split_once("## What differs").ok_or("no such section")?;
    let names = section.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    let documented: BTreeSet<_> = names.map(|(name, _)| name).collect();
    let allowed: BTreeSet<_> = Difference::ALL.iter().map(|difference| difference.name()).collect();
    assert_eq!(documented, allowed);
    Ok(())
}
