use super::fixtures::{StatusWorld, declared, one, pods, target};
use kubewarm_api::model::{AccountPolicyEnforcement, FaultReason, ResolvedProfile, Verb};

#[test]
fn a_profile_reports_that_no_policy_checks_its_author() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let message = |account: Option<&str>, authors| {
        let profile = ResolvedProfile {
            service_account: account.map(Into::into),
            authors,
            ..declared(vec![target("pods", &[pods("a")])])
        };
        let status = world.compute(&profile, None);
        let accepted =
            status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        assert_eq!(accepted.status, "True");
        accepted.message.clone()
    };
    let missing = message(Some("reader"), AccountPolicyEnforcement::Missing);
    assert!(missing.contains("\"reader\"") && missing.contains("account-policy.yaml"), "{missing}");
    let unknown = message(Some("reader"), AccountPolicyEnforcement::Unknown);
    assert!(unknown.contains("kubewarm needs get on the policy"), "{unknown}");
    for quiet in [
        message(Some("reader"), AccountPolicyEnforcement::Enforced),
        message(None, AccountPolicyEnforcement::Missing),
    ] {
        assert!(!quiet.contains("kubewarm-accounts"), "{quiet}");
    }
}

#[test]
fn an_account_without_a_token_is_not_authorized() {
    for reason in [FaultReason::TokenRequestDenied, FaultReason::ServiceAccountNotFound] {
        let mut world = StatusWorld::new();
        let report = world.failing(world.listing(), reason, Verb::List);
        let informers = one(&mut world, report).targets[0].informers.clone().unwrap();
        assert_eq!((informers.forbidden, informers.failing), (1, 0), "{reason}");
    }
}
