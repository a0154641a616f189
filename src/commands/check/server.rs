//! The API server: whether it answers, how old it is, and what it can do that kubewarm uses.

use super::super::report::ReportRow;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::{Answer, get, whoami};

/// The versions that kubewarm is made for, by their minor number.
const OLDEST: u32 = 32;
const NEWEST: u32 = 37;
/// Which flow control sorted a request is said with every answer.
const SORTED: &str = "x-kubernetes-pf-flowschema-uid";
/// A second of a stream that everybody who may watch namespaces may have.
const STREAM: &str = "/api/v1/namespaces?watch=true&allowWatchBookmarks=true\
    &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1\
    &fieldSelector=metadata.name%3Ddefault";

/// What is found, and whether it makes sense to ask on.
pub(super) async fn reached(client: &Client, server: &str) -> (Vec<ReportRow>, bool) {
    let answer = match get(client, "/version").await.and_then(answered) {
        Ok(answer) => answer,
        Err(fault) => return (vec![unreached(server, &fault)], false),
    };
    let version = answer.json().map(|version| of_version(server, &version));
    let you = whoami(client).await;
    let you = you.map(|subject| ReportRow::good(format!("knows you as {subject}")));
    let mut findings = vec![
        ReportRow::or_unseen(version, "its version"),
        ReportRow::or_unseen(you, "whom it takes you for"),
    ];
    if !answer.headers.contains_key(SORTED) {
        findings.push(ReportRow::note(
            "priority and fairness is off: nothing keeps the lists of a warm-up and other clients apart",
        ));
    }
    (findings, true)
}

/// Before installing: whether it streams lists, which is good to have.
pub(super) async fn streams(client: &Client) -> ReportRow {
    let found = get(client, STREAM).await.and_then(|answer| of_stream(&answer));
    ReportRow::or_unseen(found, "whether it streams lists")
}

/// An answer that says that the server would talk to us.
fn answered(answer: Answer) -> Result<Answer, Fault> {
    if answer.status.is_success() { Ok(answer) } else { Err(answer.fault()) }
}

fn unreached(server: &str, fault: &Fault) -> ReportRow {
    let found = ReportRow::bad(format!("{server} does not answer as an API server does: {fault}"));
    if fault.reason() == Reason::Unauthorized {
        return found.next("kubectl auth whoami");
    }
    found.next("kubectl cluster-info")
}

fn of_version(server: &str, version: &Info) -> ReportRow {
    let Info { major, minor, git_version: full, .. } = version;
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let said = format!("{server} answers, version {full}");
    match digits.parse::<u32>() {
        Ok(minor) if major == "1" && minor < OLDEST => ReportRow::bad(format!(
            "{said}: kubewarm needs 1.{OLDEST} or newer; upgrade the control plane"
        )),
        Ok(minor) if major == "1" && minor <= NEWEST => ReportRow::good(said),
        Ok(_) if major == "1" => ReportRow::note(format!(
            "{said}: newer than 1.{NEWEST}, up to which kubewarm is known to work"
        )),
        Ok(_) | Err(_) => ReportRow::note(format!(
            "{said}: that does not say whether it is between 1.{OLDEST} and 1.{NEWEST}"
        )),
    }
}

fn of_stream(answer: &Answer) -> Result<ReportRow, Fault> {
    match answer.status.as_u16() {
        200 => Ok(ReportRow::good("streams lists (sendInitialEvents)")),
        400 | 422 => Ok(ReportRow::note(
            "does not stream lists (WatchList is off): whole lists, or pages, are fetched instead",
        )),
        _ => Err(answer.fault()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::report::Mark, *};

    #[test]
    fn versions_are_held_against_what_kubewarm_is_made_for() {
        let mark = |major: &str, minor: &str| {
            let version = Info {
                major: major.to_owned(),
                minor: minor.to_owned(),
                git_version: format!("v{major}.{minor}.0"),
                ..Info::default()
            };
            of_version("https://x", &version).mark
        };
        for (major, minor, expected) in [
            ("1", "31", Mark::Bad),
            ("1", "32", Mark::Good),
            ("1", "36+", Mark::Good),
            ("1", "37", Mark::Good),
            ("1", "38", Mark::Note),
            ("2", "0", Mark::Note),
            ("", "", Mark::Note),
        ] {
            assert_eq!(mark(major, minor), expected, "{major}.{minor}");
        }
    }

    #[test]
    fn a_server_that_streams_no_lists_is_no_failure() {
        let answer = |code: u16| {
            let status = http::StatusCode::from_u16(code).unwrap();
            Answer { status, ..Answer::default() }
        };
        assert_eq!(of_stream(&answer(200)).unwrap().mark, Mark::Good);
        assert_eq!(of_stream(&answer(422)).unwrap().mark, Mark::Note);
        assert!(of_stream(&answer(403)).is_err());
    }
}
