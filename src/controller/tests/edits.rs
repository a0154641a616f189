use super::{Tables, desired, first, profile, reconciler, run, sync, targets};
use crate::controller::reconcile::ReconcileResult;
use kubewarm_api::model::RefusalReason;
use serde_json::{Value, json};

#[test]
fn an_edited_target_is_served_by_its_old_informers_until_the_new_ones_are_synced() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let old = [profile("a", "p", 1, targets(&["pods"]))];
    let outcome = run(&mut reconciler, &old, &cluster);
    assert_eq!(first(&outcome).targets[0].serving, None, "nothing is served before the first sync");
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &old, &cluster);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);

    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    let edited = [profile("a", "p", 2, spec)];
    let outcome = run(&mut reconciler, &edited, &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    let serving = first(&outcome).targets[0].serving.clone().unwrap();
    assert_eq!((serving.generation, serving.informers.len()), (1, 1));
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &edited, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a, labels app in (web)"]);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 2);
}

#[test]
fn an_edit_at_the_first_sync_is_served_by_the_old_informers() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, targets(&["pods"]))], &cluster);
    sync(&mut cluster, &outcome);
    // The informers sync and the profile is edited before the next reconciliation, so this
    // reconciliation processes both.
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    let outcome = run(&mut reconciler, &[profile("a", "p", 2, spec.clone())], &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);

    // The informers of profile generation 2 never synced, so the informers of generation 1 continue
    // to serve reads in generation 3.
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "shop"}});
    let outcome = run(&mut reconciler, &[profile("a", "p", 3, spec)], &cluster);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);
    assert_eq!(desired(&outcome).len(), 2);
}

/// Syncs a profile with the spec `before`, and then edits it to the spec `after`. If `is_noticed`,
/// a reconciliation runs between the sync and the edit.
fn edit(before: &Value, after: &Value, is_noticed: bool) -> ReconcileResult {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.kinds.insert("secrets", ("v1", true));
    let old = [profile("a", "p", 1, before.clone())];
    let outcome = run(&mut reconciler, &old, &cluster);
    sync(&mut cluster, &outcome);
    if is_noticed {
        run(&mut reconciler, &old, &cluster);
    }
    run(&mut reconciler, &[profile("a", "p", 2, after.clone())], &cluster)
}

#[test]
fn informers_of_another_account_stop_serving() {
    let read_by = |account: Option<&str>| {
        let mut spec = targets(&["pods"]);
        if let Some(account) = account {
            spec["serviceAccountName"] = json!(account);
        }
        spec
    };
    for (before, after) in [(Some("x"), Some("y")), (Some("x"), None), (None, Some("y"))] {
        for is_noticed in [true, false] {
            let outcome = edit(&read_by(before), &read_by(after), is_noticed);
            assert_eq!(first(&outcome).targets[0].serving, None, "{before:?} to {after:?}");
            let informers: Vec<_> = outcome.desired.keys().collect();
            let declared =
                first(&outcome).targets[0].informers.iter().map(|informer| &informer.key);
            assert_eq!(informers, declared.collect::<Vec<_>>());
        }
    }
    let mut spec = read_by(Some("x"));
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    assert_eq!(edit(&read_by(Some("x")), &spec, true).desired.len(), 2, "the same ServiceAccount");
}

#[test]
fn an_informer_with_complete_secrets_serves_no_target_without_them() {
    let secrets = |data: &str, projection: &str, app: &str| {
        let mut spec = targets(&["secrets"]);
        spec["targets"][0]["secretData"] = json!(data);
        spec["targets"][0]["projection"] = json!({"type": projection});
        spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": app}});
        spec
    };
    let whole = secrets("Allow", "Full", "web");
    let mut settings = targets(&["configmaps"]);
    settings["targets"][0]["name"] = json!("secrets");
    let less = [secrets("Deny", "Metadata", "web"), secrets("Allow", "Metadata", "web"), settings];
    for after in &less {
        for is_noticed in [true, false] {
            let outcome = edit(&whole, after, is_noticed);
            assert_eq!(first(&outcome).targets[0].serving, None, "{after}");
            assert_eq!(outcome.desired.len(), 1, "{after}");
        }
    }
    let serves_on = |before: &Value, after: &Value| edit(before, after, true).desired.len() == 2;
    assert!(serves_on(&whole, &secrets("Allow", "Full", "shop")));
    assert!(!serves_on(&less[1], &less[0]), "managedFields contain the names of the data's keys");
    let mut names = less[1].clone();
    names["targets"][0]["projection"]["managedFields"] = json!("Drop");
    assert!(serves_on(&names, &less[0]), "an informer with metadata only stores no Secret data");
}

#[test]
fn the_last_valid_generation_runs_after_an_invalid_edit() {
    let mut reconciler = reconciler();
    let good = profile("a", "p", 1, targets(&["pods"]));
    let mut bad = targets(&["pods"]);
    bad["targets"][0]["labelSelector"] = json!({"matchLabels": {"not a key": "x"}});
    let bad = profile("a", "p", 2, bad);
    run(&mut reconciler, &[good], &Tables::default());
    let outcome = run(&mut reconciler, std::slice::from_ref(&bad), &Tables::default());
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(first(&outcome).refused.as_ref().unwrap().reason, RefusalReason::InvalidSpec);

    let alone = run(&mut self::reconciler(), &[bad], &Tables::default());
    assert!(desired(&alone).is_empty(), "there was no valid generation");
    assert!(first(&alone).refused.is_some());
}

#[test]
fn an_invalid_edit_that_changes_the_account_keeps_no_old_spec() {
    let spec = |account: Option<&str>, is_valid: bool| {
        let mut spec = targets(&["pods"]);
        if let Some(account) = account {
            spec["serviceAccountName"] = json!(account);
        }
        if !is_valid {
            spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"not a key": "x"}});
        }
        spec
    };
    for (before, after) in
        [(Some("x"), Some("y")), (Some("x"), None), (None, Some("y")), (Some("x"), Some("No Name"))]
    {
        let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
        let mut run = |generation, account, is_valid| {
            let profiles = [profile("a", "p", generation, spec(account, is_valid))];
            let outcome = run(&mut reconciler, &profiles, &cluster);
            sync(&mut cluster, &outcome);
            outcome
        };
        run(1, before, true);
        assert_eq!(desired(&run(2, before, false)).len(), 1, "the same ServiceAccount: {before:?}");
        let outcome = run(3, after, false);
        assert_eq!(desired(&outcome), [""; 0], "{before:?} to {after:?}");
        assert_eq!(first(&outcome).targets, []);
        let refused = first(&outcome).refused.as_ref().unwrap();
        assert_eq!(refused.reason, RefusalReason::InvalidSpec);
        let reader = before.map(|account| format!("ServiceAccount a/{account}"));
        let reader = reader.unwrap_or_else(|| "the operator".to_owned());
        assert!(refused.message.contains(&format!("used {reader}, ")), "{refused:?}");
        // The controller has dropped the last valid spec. So a later invalid spec restores nothing,
        // even if it names the earlier ServiceAccount.
        assert_eq!(desired(&run(4, before, false)), [""; 0]);
        assert_eq!(desired(&run(5, before, true)).len(), 1);
    }
}
