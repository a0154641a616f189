//! Finds the API server's authorizers, which decide by what the read API can authorize its clients.

use super::super::report::ReportRow;
use kube::Client;
use kubewarm_api::model::RequestFault;
use kubewarm_client::{ApiResponse, get};
use std::collections::BTreeSet;

/// Metric of the API server with a sample for each authorizer that has allowed or denied a request.
/// An authorizer without a decision has no sample.
const DECISIONS: &str = "apiserver_authorization_decisions_total{";
/// Types of authorizers that deny nothing that RBAC allows, and for which an allowed access without
/// name, selectors and extra fields of the user includes the same access with them.
const SHAREABLE: [&str; 4] = ["AlwaysAllow", "Node", "RBAC", "SystemMasters"];

/// Reports the authorizers that the API server's metrics show.
pub(super) async fn decided(client: &Client) -> ReportRow {
    let row = get(client, "/metrics").await.and_then(|answer| of_metrics(&answer));
    ReportRow::or_unseen(row, "the API server's authorizers")
}

fn of_metrics(answer: &ApiResponse) -> Result<ReportRow, RequestFault> {
    if !answer.status.is_success() {
        return Err(answer.fault());
    }
    let text = String::from_utf8_lossy(&answer.body);
    let all: BTreeSet<_> =
        text.lines().filter_map(|line| label(line.strip_prefix(DECISIONS)?, "type")).collect();
    let (shareable, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|kind| SHAREABLE.contains(kind));
    Ok(if !others.is_empty() {
        ReportRow::note(format!(
            "authorizes with {0}: leave readApi.authorization at reviews, or set it to rbac if {0} never denies what RBAC \
             allows",
            others.join(", ")
        ))
    } else if shareable.is_empty() {
        ReportRow::note(
            "shows no authorizers in its metrics: set readApi.authorization to rbac or shared-reviews only if its flags \
             name no others than RBAC and Node",
        )
    } else {
        // An authorizer that has decided nothing yet has no sample. So the row says `so far`, and
        // the user must also compare the API server's flags.
        ReportRow::good(format!(
            "authorizes with {} so far: if its flags name no others, readApi.authorization can be rbac; shared-reviews, too, \
             if resourceNames of RBAC rules contain no empty string",
            shareable.join(", ")
        ))
    })
}

/// The value of a label in the labels of a sample.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = labels.split_once(&format!("{name}=\""))?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::{super::super::report::RowMark, *};

    fn row(code: u16, body: &'static str) -> Result<ReportRow, RequestFault> {
        let (status, body) = (http::StatusCode::from_u16(code).unwrap(), body.into());
        of_metrics(&ApiResponse { status, body, ..ApiResponse::default() })
    }

    const RBAC: &str = "# TYPE apiserver_authorization_decisions_total counter
apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"} 9
apiserver_authorization_decisions_total{decision=\"allowed\",name=\"node\",type=\"Node\"} 1
apiserver_authorization_attempts_total{result=\"allowed\",type=\"Webhook\"} 1
";

    #[test]
    fn authorizers_that_see_more_than_a_shared_review_are_named() {
        let good = row(200, RBAC).unwrap();
        assert_eq!(good.mark, RowMark::Good);
        assert!(good.text().contains("with Node, RBAC so far"), "{}", good.text());
        let line = "apiserver_authorization_decisions_total{decision=\"denied\",name=\"a}b\",type=\"Webhook\"} 2\n";
        let with_webhook = row(200, format!("{RBAC}{line}").leak()).unwrap();
        assert_eq!(with_webhook.mark, RowMark::Note);
        assert!(
            with_webhook
                .text()
                .contains("with Webhook: leave readApi.authorization at reviews, or"),
            "{}",
            with_webhook.text()
        );
    }

    #[test]
    fn without_samples_or_permission_nothing_is_claimed() {
        for metrics in ["", "apiserver_authorization_decisions_total{"] {
            assert_eq!(row(200, metrics).unwrap().mark, RowMark::Note, "{metrics}");
        }
        assert!(row(403, "").is_err());
    }
}
