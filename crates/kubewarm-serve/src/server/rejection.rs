use crate::callers::{CallerGate, CallerRejection, CredentialsError, ReadLimit};
use kubewarm_wire::StatusError;

pub(super) fn refused_by(
    refused: CallerRejection,
    callers: &CallerGate,
    forbidden: impl FnOnce(&str, Option<&str>) -> StatusError,
) -> StatusError {
    let CallerRejection::Forbidden { user, reason } = &refused else {
        return refusal(refused, callers);
    };
    if user.is_empty() { refusal(refused, callers) } else { forbidden(user, reason.as_deref()) }
}

pub(super) fn refusal(refused: CallerRejection, callers: &CallerGate) -> StatusError {
    match refused {
        CallerRejection::Unauthorized => StatusError::unauthorized(),
        CallerRejection::Forbidden { reason, .. } => {
            StatusError::refused(reason.as_deref().unwrap_or("the API server refuses the caller"))
        }
        CallerRejection::Impersonation => StatusError::refused(
            "kubewarm answers no request with Impersonate-* headers; send it to the API server, run kubewarm with \
             --forward, or send a token of the account itself",
        ),
        // Anyone can cause this rejection with invalid tokens. So it does not count in
        // `record_refusal`, which would delay the retries of other clients.
        CallerRejection::Limited(ReadLimit::FailedTokens) => StatusError::user_limit(1),
        CallerRejection::Limited(limit) if limit.is_callers_own() => {
            StatusError::user_limit(callers.record_own_refusal())
        }
        CallerRejection::AgentsLimited { account, .. } => {
            let account = callers.agents(account).map(ToString::to_string).unwrap_or_default();
            StatusError::agents_limit(&account, callers.record_refusal())
        }
        CallerRejection::Limited(_) => StatusError::too_many_requests(callers.record_refusal()),
        CallerRejection::Undecided(fault) => {
            tracing::debug!(%fault, "the caller could not be reviewed");
            let message = "the API server did not review your permission; try again";
            StatusError::unavailable(message, callers.record_refusal())
        }
    }
}

pub(super) fn no_credentials(problem: CredentialsError) -> StatusError {
    match problem {
        CredentialsError::Repeated => StatusError::bad_request("Authorization is repeated"),
        CredentialsError::Missing
        | CredentialsError::NoBearer
        | CredentialsError::Empty
        | CredentialsError::TooLong => StatusError::unauthorized(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::fixtures::{ReviewAnswer, changing};
    use kubewarm_api::model::{FaultReason, RequestFault};

    #[tokio::test]
    async fn a_client_above_its_own_limits_does_not_delay_the_retries_of_others() {
        let (callers, _) = changing(|_, _| ReviewAnswer::Unknown);
        let retry = |refused| refusal(refused, &callers).retry_after();
        let own = |limit| retry(CallerRejection::Limited(limit));
        let most = (0..5_000).filter_map(|_| own(ReadLimit::UserReviews)).max();
        assert!(most > Some(10), "{most:?}");
        assert!((0..50).all(|_| own(ReadLimit::FailedTokens) == Some(1)));
        for other in [
            CallerRejection::Limited(ReadLimit::Reviews),
            CallerRejection::Undecided(RequestFault::new(FaultReason::TimedOut, "slow")),
        ] {
            assert!((0..20).all(|_| retry(other.clone()) == Some(1)), "{other:?}");
        }
    }
}
