//! The admission policy that controls which users may name a ServiceAccount in a profile.

use std::path::Path;

use crate::world::{Failure, Outcome, SOON, World, eventually, file};

/// Permissions to write profiles, without permissions on `ServiceAccounts`.
const WRITERS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: profile-writer}
rules: [{apiGroups: [kubewarm.io], resources: [cacheprofiles, cacheprofiles/status], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: profile-writers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: profile-writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: writers}]
";

/// Grants a user one verb on the account `reader` only.
fn may(verb: &str, resource: &str, user: &str, namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {user}, namespace: {namespace}}}
rules: [{{apiGroups: [''], resources: [{resource}], resourceNames: [reader], verbs: [{verb}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {user}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]
"
    )
}

fn profile(name: &str, account: &str, priority: u32) -> String {
    format!(
        "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: {name}}}
spec:
  {account}
  targets: [{{name: settings, priority: {priority}, resource: configmaps}}]
"
    )
}

/// Runs kubectl with the kubeconfig of a user.
fn run(world: &World, kubeconfig: &Path, args: &[&str]) -> Result<String, Failure> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    Ok(world.cluster.run(std::iter::once(kubeconfig.as_str()).chain(args.iter().copied()))?)
}

#[test]
fn only_users_who_may_impersonate_an_account_can_name_it() -> Outcome {
    let world = World::lease()?;
    let policy = file("deploy/account-policy.yaml");
    world.cluster.run(["apply", "-f", &policy.to_string_lossy()])?;
    world.cluster.apply(WRITERS)?;
    let home = world.namespace("home")?;
    world.cluster.apply(&may("use", "serviceaccounts", "ursula", &home))?;
    world.cluster.apply(&may("create", "serviceaccounts/token", "minna", &home))?;
    let [gustav, ursula, minna] = ["gustav", "ursula", "minna"]
        .map(|user| world.cluster.user_kubeconfig(user, Some("writers")));
    let (gustav, ursula, minna) = (gustav?, ursula?, minna?);
    let folder = tempfile::tempdir()?;
    let apply = |who: &Path, name: &str, account: &str, priority: u32| {
        let path = folder.path().join("profile.yaml");
        std::fs::write(&path, profile(name, account, priority))?;
        run(&world, who, &["apply", "-n", &home, "-f", &path.to_string_lossy()])
    };
    let (reader, other) = ("serviceAccountName: reader", "serviceAccountName: other");

    // The policy takes effect a moment after its creation. It checks only changed specs, so each
    // attempt changes the spec.
    let mut tries = 0;
    let refused = eventually(SOON, || {
        tries += 1;
        match apply(&gustav, "probe", reader, tries) {
            Ok(_) => Err("not in force yet".into()),
            Err(error) if error.to_string().contains("kubewarm-accounts") => Ok(error.to_string()),
            Err(error) => Err(error),
        }
    })?;
    for word in ["gustav", "ServiceAccount reader", &home, "\"use\"", "serviceaccounts/token"] {
        assert!(refused.contains(word), "{word:?} is not in {refused}");
    }
    apply(&gustav, "own", "", 500)?;
    apply(&ursula, "hers", reader, 500)?;
    apply(&minna, "minted", reader, 500)?;
    assert!(apply(&ursula, "hers", other, 500).is_err(), "the other account is not hers");
    assert!(apply(&gustav, "own", reader, 500).is_err(), "a later edit can name the account");

    // The policy does not check profiles without a ServiceAccount, nor edits that do not change the
    // spec.
    assert!(apply(&gustav, "hers", reader, 501).is_err(), "edits are checked too");
    run(&world, &gustav, &["label", "cprof", "hers", "-n", &home, "a=b"])?;
    let status = r#"{"status": {"objects": 7}}"#;
    let patch = ["patch", "cprof", "hers", "-n", &home, "--subresource=status", "--type=merge"];
    run(&world, &gustav, &[&patch[..], &["-p", status]].concat())?;
    let object = world.get(&home, "cprof", "hers")?;
    assert_eq!(object.pointer("/status/objects").and_then(serde_json::Value::as_u64), Some(7));
    apply(&ursula, "hers", reader, 501)?;
    apply(&gustav, "hers", "", 500)?;
    Ok(())
}
