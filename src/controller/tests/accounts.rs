//! Tests of profiles that name a ServiceAccount.

use super::*;
use kubewarm_api::model::Identity;

fn read_by(namespace: &str, name: &str, account: &str) -> ClusterProfile {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    spec["serviceAccountName"] = json!(account);
    profile(namespace, name, 1, spec)
}

#[test]
fn only_profiles_with_the_same_account_share_informers() {
    let all = [
        profile("a", "p", 1, targets(&["pods"])),
        read_by("a", "q", "reader"),
        read_by("a", "r", "reader"),
        read_by("a", "s", "other"),
        // A ServiceAccount with the same name in another namespace is another identity.
        read_by("b", "t", "reader"),
    ];
    let outcome = run(&mut reconciler(), &all, &Tables::default());
    let informer = "pods.v1 in namespace a";
    assert_eq!(
        desired(&outcome),
        [
            informer.to_owned(),
            format!("{informer}, as ServiceAccount a/other"),
            format!("{informer}, as ServiceAccount a/reader"),
            format!("{informer}, as ServiceAccount b/reader"),
        ]
    );
}

#[test]
fn a_missing_account_is_refused_until_it_exists() {
    let all = [read_by("a", "p", "ghost")];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &all, &cluster);
    let key = outcome.desired.keys().next().unwrap().clone();
    let account = Identity::ServiceAccount { namespace: "a".into(), name: "ghost".into() };
    assert_eq!(key.identity, account);
    cluster.faults.insert(key.clone(), FaultReason::ServiceAccountNotFound);
    let outcome = run(&mut reconciler, &all, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::ServiceAccountNotFound);
    assert!(
        !refused(&outcome).reason.is_author_error(),
        "the ServiceAccount can be created without an edit of the profile"
    );
    assert!(
        outcome.desired.contains_key(&key),
        "the informer runs, to detect the new ServiceAccount"
    );
    cluster.faults.clear();
    let outcome = run(&mut reconciler, &all, &cluster);
    assert!(matches!(first(&outcome).targets[0].resolved, Some(Ok(_))));
}
