//! Checks the API server: its version, and the features that kubewarm uses.

use super::super::report::ReportRow;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::{ApiResponse, fetch_own_subject, get};

/// Oldest minor version of Kubernetes that kubewarm supports. `NEWEST` is the newest minor version
/// in kubewarm's tests.
const OLDEST: u32 = 32;
const NEWEST: u32 = 37;
/// Response header that the API server sends if API Priority and Fairness is enabled.
const PRIORITY_AND_FAIRNESS_HEADER: &str = "x-kubernetes-pf-flowschema-uid";
/// Path of a streaming list (`WatchList`) of one namespace. The API server ends the list after 1 s.
const STREAM: &str = "/api/v1/namespaces?watch=true&allowWatchBookmarks=true\
    &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1\
    &fieldSelector=metadata.name%3Ddefault";

/// Returns the rows of the API server checks, and whether the API server is reachable. If it is
/// unreachable, `check` skips all remaining checks.
pub(super) async fn reached(client: &Client, server: &str) -> (Vec<ReportRow>, bool) {
    let answer = match get(client, "/version").await.and_then(answered) {
        Ok(answer) => answer,
        Err(fault) => return (vec![unreached(server, &fault)], false),
    };
    let version = answer.json().map(|version| of_version(server, &version));
    let you = fetch_own_subject(client).await;
    let you = you.map(|subject| ReportRow::good(format!("authenticates you as {subject}")));
    let mut findings = vec![
        ReportRow::or_unseen(version, "its version"),
        ReportRow::or_unseen(you, "your user name"),
    ];
    if !answer.headers.contains_key(PRIORITY_AND_FAIRNESS_HEADER) {
        findings.push(ReportRow::note(
            "API Priority and Fairness is disabled: kubewarm's lists can delay other clients",
        ));
    }
    (findings, true)
}

/// Checks whether the API server supports streaming lists (`WatchList`). kubewarm also works
/// without streaming lists.
pub(super) async fn streams(client: &Client) -> ReportRow {
    let row = get(client, STREAM).await.and_then(|answer| of_stream(&answer));
    ReportRow::or_unseen(row, "whether it streams lists")
}

fn answered(answer: ApiResponse) -> Result<ApiResponse, RequestFault> {
    if answer.status.is_success() { Ok(answer) } else { Err(answer.fault()) }
}

fn unreached(server: &str, fault: &RequestFault) -> ReportRow {
    let row = ReportRow::bad(format!("cannot read the version of {server}: {fault}"));
    if fault.reason() == FaultReason::Unauthorized {
        return row.next("kubectl auth whoami");
    }
    row.next("kubectl cluster-info")
}

fn of_version(server: &str, version: &Info) -> ReportRow {
    let Info { major, minor, git_version: full, .. } = version;
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let text = format!("{server} answers, version {full}");
    match digits.parse::<u32>() {
        Ok(minor) if major == "1" && minor < OLDEST => ReportRow::bad(format!(
            "{text}: kubewarm needs 1.{OLDEST} or newer; upgrade the control plane"
        )),
        Ok(minor) if major == "1" && minor <= NEWEST => ReportRow::good(text),
        Ok(_) if major == "1" => ReportRow::note(format!(
            "{text}: newer than 1.{NEWEST}, up to which kubewarm is known to work"
        )),
        Ok(_) | Err(_) => ReportRow::note(format!(
            "{text}: unknown version format; kubewarm supports 1.{OLDEST} to 1.{NEWEST}"
        )),
    }
}

fn of_stream(answer: &ApiResponse) -> Result<ReportRow, RequestFault> {
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
    use super::{super::super::report::RowMark, *};

    #[test]
    fn versions_are_compared_with_the_supported_ones() {
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
            ("1", "31", RowMark::Bad),
            ("1", "32", RowMark::Good),
            ("1", "36+", RowMark::Good),
            ("1", "37", RowMark::Good),
            ("1", "38", RowMark::Note),
            ("2", "0", RowMark::Note),
            ("", "", RowMark::Note),
        ] {
            assert_eq!(mark(major, minor), expected, "{major}.{minor}");
        }
    }

    #[test]
    fn a_server_without_streaming_lists_is_only_a_remark() {
        let answer = |code: u16| {
            let status = http::StatusCode::from_u16(code).unwrap();
            ApiResponse { status, ..ApiResponse::default() }
        };
        assert_eq!(of_stream(&answer(200)).unwrap().mark, RowMark::Good);
        assert_eq!(of_stream(&answer(422)).unwrap().mark, RowMark::Note);
        assert!(of_stream(&answer(403)).is_err());
    }
}
