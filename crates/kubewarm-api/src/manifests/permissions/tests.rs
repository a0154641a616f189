//! Tests that the manifests grant exactly the permissions that profiles need.

use super::*;
use crate::{
    manifests::resource_set::ResourceSet,
    model::{
        AccountPolicyEnforcement, GroupResource, InformerScope, InformerSpec, ManagedFieldsPolicy,
        ProfileRef, Projection, ResolvedTarget, Resource, SecretDataPolicy, TargetRequirement,
        TargetScope, ValidatedTarget,
    },
    v1alpha1::CacheProfile,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc};

const SPEC: &str = "
    targets:
    - {name: deployments, group: apps, resource: deployments}
    - {name: settings, resource: configmaps}
    - {name: secrets, resource: secrets, projection: {type: Metadata}}
    - name: pods
      resource: pods
      scope: {type: Namespaces, namespaces: [shop, east, west]}
    - {name: nodes, resource: nodes, scope: {type: Cluster}}
    - {name: all, group: batch, resource: jobs, scope: {type: AllNamespaces}}";

fn account() -> Subject {
    Subject::ServiceAccount { namespace: "kubewarm-system".into(), name: "kubewarm".into() }
}

fn profile(spec: &str) -> ValidatedProfile {
    let head = "apiVersion: kubewarm.io/v1alpha1\nkind: CacheProfile\n";
    let meta = "metadata: {name: web, namespace: shop}\n";
    let profile: CacheProfile =
        serde_saphyr::from_str(&format!("{head}{meta}spec:{spec}\n")).unwrap();
    ValidatedProfile::parse(&profile).unwrap()
}

fn informer(resource: &GroupResource, scope: InformerScope, identity: &Identity) -> InformerKey {
    InformerKey {
        resource: Resource::new(resource.clone(), "v1").unwrap(),
        scope,
        labels: crate::model::LabelSelector::default(),
        fields: crate::model::FieldSelector::default(),
        projection: Projection::Metadata(ManagedFieldsPolicy::Drop),
        secret_data: SecretDataPolicy::Deny,
        identity: identity.clone(),
        declared_in: None,
    }
}

/// Looks up the resources and namespaces of a profile as the controller does. Each namespace
/// selector of the profile matches the `namespaces`.
pub(super) fn declared(profile: &ValidatedProfile, namespaces: &[&str]) -> ResolvedProfile {
    let within = |name: &str| InformerScope::Namespace(name.into());
    let identity = profile.identity();
    let spec = |target: &ValidatedTarget, scope| {
        let fields = target.fields.clone();
        let key = InformerKey { fields, ..informer(&target.resource, scope, &identity) };
        InformerSpec::new(key, profile.profile.clone())
    };
    let targets = profile.targets.iter().map(|target| {
        let informer_scopes: Vec<_> = match &target.scope {
            TargetScope::OwnNamespace => vec![within("shop")],
            TargetScope::Namespaces(names) => names.iter().map(|name| within(name)).collect(),
            TargetScope::NamespaceSelector(_) => {
                namespaces.iter().map(|name| within(name)).collect()
            }
            TargetScope::AllNamespaces => vec![InformerScope::AllNamespaces],
            TargetScope::Cluster => vec![InformerScope::Cluster],
        };
        let namespaces = if let TargetScope::NamespaceSelector(labels) = &target.scope {
            let resource = GroupResource::new("", "namespaces").unwrap();
            let key = InformerKey {
                labels: labels.clone(),
                ..informer(&resource, InformerScope::Cluster, &identity)
            };
            Some(InformerSpec::new(key, profile.profile.clone()))
        } else {
            None
        };
        ResolvedTarget {
            name: Arc::clone(&target.name),
            requirement: TargetRequirement::Required,
            declared_as: target.resource.to_string().into(),
            resolved: None,
            informers: informer_scopes.into_iter().map(|scope| spec(target, scope)).collect(),
            namespaces,
            serving: None,
            named: [].into(),
            left_out: [].into(),
            limited: None,
        }
    });
    ResolvedProfile {
        service_account: profile.service_account.clone(),
        authors: AccountPolicyEnforcement::Enforced,
        targets: targets.collect(),
        on_access_lost: profile.on_access_lost,
        reads: profile.reads,
        ..ResolvedProfile::without_targets(profile.profile.clone(), "u".into(), 1)
    }
}

/// Returns the permissions that kubewarm computes for `profile` without access to a cluster. The
/// operator runs the profiles of all namespaces.
fn offline(profile: &ValidatedProfile) -> ProfilePermissions {
    ProfilePermissions::of_profile(profile, &[].into(), &account(), &WatchedNamespaces::Everywhere)
        .unwrap()
}

fn parse(text: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// Returns `kind namespace/name` of every document.
fn index(text: &str) -> Vec<String> {
    let line = |document: &serde_json::Value| {
        let meta = &document["metadata"];
        let namespace = meta["namespace"].as_str().unwrap_or("");
        let name = meta["name"].as_str().unwrap();
        format!("{} {namespace}/{name}", document["kind"].as_str().unwrap())
    };
    parse(text).iter().map(line).collect()
}

#[test]
fn every_namespace_has_the_rules_its_informers_need() {
    let access = offline(&profile(SPEC));
    let written: Vec<_> = access
        .roles
        .iter()
        .flat_map(|role| {
            role.rules.iter().map(|rule| {
                let parts = [&rule.api_groups, &rule.resources, &rule.resource_names];
                let parts = parts.map(|names| names.join(","));
                let [group, resources, names] = parts;
                let verbs = rule.verbs.join(",");
                format!("{}|{group}|{resources}|{names}|{verbs}", role.namespace)
            })
        })
        .collect();
    assert_eq!(
        written,
        [
            "||nodes||list,watch",
            "|batch|jobs||list,watch",
            "||namespaces|east,west|get",
            "east||pods||list,watch",
            "shop||configmaps,pods,secrets||list,watch",
            "shop|apps|deployments||list,watch",
            "west||pods||list,watch",
        ]
    );
    assert_eq!(
        index(&access.manifests.unwrap()),
        [
            "Role east/kubewarm:shop:web",
            "RoleBinding east/kubewarm:shop:web",
            "Role shop/kubewarm:shop:web",
            "RoleBinding shop/kubewarm:shop:web",
            "Role west/kubewarm:shop:web",
            "RoleBinding west/kubewarm:shop:web",
            "ClusterRole /kubewarm:shop:web",
            "ClusterRoleBinding /kubewarm:shop:web",
        ]
    );
    let elevated = access.manifests_elevated.unwrap();
    assert!(elevated.starts_with("# Elevated: access to secrets."), "{elevated}");
    assert_eq!(
        index(&elevated),
        ["Role shop/kubewarm:shop:web:elevated", "RoleBinding shop/kubewarm:shop:web:elevated",]
    );
}

#[test]
fn manifests_from_a_file_equal_manifests_from_the_cluster() {
    for who in ["", "\n    serviceAccountName: reader"] {
        let profile = profile(&format!("{who}{SPEC}"));
        let offline = offline(&profile);
        let live = ProfilePermissions::for_informers(
            &declared(&profile, &[]),
            &account(),
            &WatchedNamespaces::Everywhere,
        )
        .unwrap();
        assert_eq!(offline, live);
    }
}

#[test]
fn a_target_that_selects_one_name_needs_a_rule_for_that_name_only() {
    let spec = "
    targets:
    - name: tls
      resource: secrets
      projection: {type: Metadata}
      fieldSelector: metadata.name=tls
    - name: settings
      resource: configmaps
      fieldSelector: metadata.name=web
      scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {tier: web}}}";
    let profile = profile(spec);
    let live = ProfilePermissions::for_informers(
        &declared(&profile, &["east"]),
        &account(),
        &WatchedNamespaces::Everywhere,
    );
    for access in [offline(&profile), live.unwrap()] {
        let all = parse(&access.to_yaml());
        let rules = all.iter().filter_map(|document| document["rules"].as_array()).flatten();
        let read = |resource: &str| {
            let mut matching = rules.clone().filter(|rule| rule["resources"][0] == *resource);
            let names = matching.next().unwrap()["resourceNames"].clone();
            assert!(matching.next().is_none(), "{all:#?}");
            names
        };
        assert_eq!(read("secrets"), serde_json::json!(["tls"]));
        assert_eq!(read("configmaps"), serde_json::json!(["web"]));
        assert_eq!(read("namespaces"), serde_json::Value::Null, "every namespace is watched");
    }
}

#[test]
fn named_namespaces_need_no_cluster_role_in_namespaced_mode() {
    let spec = "
    targets:
    - name: pods
      resource: pods
      scope: {type: Namespaces, namespaces: [shop, east]}";
    for who in ["", "\n    serviceAccountName: reader"] {
        let profile = profile(&format!("{who}{spec}"));
        let permissions = |lookup| {
            ProfilePermissions::of_profile(&profile, &[].into(), &account(), lookup).unwrap()
        };
        let some = WatchedNamespaces::Namespaces(BTreeSet::new());
        let left = permissions(&some);
        let live = ProfilePermissions::for_informers(
            &declared(&profile, &[]),
            &account(),
            &WatchedNamespaces::Namespaces(BTreeSet::new()),
        );
        assert_eq!(live.unwrap(), left);
        assert!(
            permissions(&WatchedNamespaces::Everywhere).to_yaml().contains("kind: ClusterRole\n")
        );
        assert!(!left.to_yaml().contains("ClusterRole"), "{}", left.to_yaml());
        let namespaces: Vec<_> = left.roles.iter().map(|role| role.namespace.as_str()).collect();
        assert_eq!(namespaces, ["east", "shop"]);
    }
}

#[test]
fn with_an_account_the_operator_may_only_mint_its_tokens() {
    let profile = profile(&format!("\n    serviceAccountName: reader{SPEC}"));
    let access = ProfilePermissions::for_informers(
        &declared(&profile, &[]),
        &account(),
        &WatchedNamespaces::Everywhere,
    )
    .unwrap();
    assert_eq!(access.subject.to_string(), "system:serviceaccount:shop:reader");
    let (plain, elevated) = (access.manifests.unwrap(), access.manifests_elevated.unwrap());
    assert_eq!(
        index(&plain),
        [
            "Role shop/kubewarm:shop:web",
            "RoleBinding shop/kubewarm:shop:web",
            "Role shop/kubewarm:shop:web:token",
            "RoleBinding shop/kubewarm:shop:web:token",
        ]
    );
    assert_eq!(
        index(&elevated),
        [
            "Role east/kubewarm:shop:web:elevated",
            "RoleBinding east/kubewarm:shop:web:elevated",
            "Role shop/kubewarm:shop:web:elevated",
            "RoleBinding shop/kubewarm:shop:web:elevated",
            "Role west/kubewarm:shop:web:elevated",
            "RoleBinding west/kubewarm:shop:web:elevated",
            "ClusterRole /kubewarm:shop:web:elevated",
            "ClusterRoleBinding /kubewarm:shop:web:elevated",
        ]
    );
    let words = ["or to other namespaces", "run pods or mint tokens"];
    assert!(words.iter().all(|word| elevated.contains(word)), "{elevated}");
    let all: Vec<_> = parse(&plain).into_iter().chain(parse(&elevated)).collect();
    for document in &all {
        let is_token = document["metadata"]["name"].as_str().unwrap().ends_with(":token");
        let bound = document["subjects"].as_array().map(|all| all[0]["name"].clone());
        let who = if is_token { "kubewarm" } else { "reader" };
        assert!(bound.is_none_or(|name| name == who), "{document}");
        if is_token && document["kind"] == "Role" {
            let rule = serde_json::json!([{"apiGroups": [""], "verbs": ["create"],
                "resources": ["serviceaccounts/token"], "resourceNames": ["reader"]}]);
            assert_eq!(document["rules"], rule);
        }
    }
}

#[test]
fn a_selector_needs_one_cluster_role_and_one_binding_per_namespace() {
    let spec = "
    targets:
    - name: web
      resource: pods
      scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {tier: web}}}
    - name: web-settings
      resource: configmaps
      scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {tier: web}}}";
    let profile = profile(spec);
    let live = ProfilePermissions::for_informers(
        &declared(&profile, &["b", "a"]),
        &account(),
        &WatchedNamespaces::Everywhere,
    )
    .unwrap();
    let role = "ClusterRole /kubewarm:shop:web:target:web";
    let roles = ["ClusterRole /kubewarm:shop:web", "ClusterRoleBinding /kubewarm:shop:web", role];
    let bindings = ["a", "b"].map(|n| format!("RoleBinding {n}/kubewarm:shop:web:target:web"));
    let expected: Vec<_> = roles.map(str::to_owned).into_iter().chain(bindings).collect();
    let TargetScope::NamespaceSelector(selector) = &profile.targets[0].scope else {
        panic!("no selector");
    };
    let with = |names: &[&str]| {
        let names = names.iter().map(|name| Arc::from(*name)).collect();
        let namespaces = [(selector.clone(), names)].into();
        ProfilePermissions::of_profile(
            &profile,
            &namespaces,
            &account(),
            &WatchedNamespaces::Everywhere,
        )
        .unwrap()
    };
    assert_eq!(with(&["b", "a"]), live, "with equal namespaces, of_profile equals for_informers");
    assert_eq!(index(&live.manifests.unwrap()), expected);
    let names: Vec<_> = live.roles.iter().map(|role| role.namespace.as_str()).collect();
    assert_eq!(names, ["", "a", "b"]);

    let offline = offline(&profile);
    let text = offline.manifests.unwrap();
    assert!(
        text.starts_with("# Only the cluster knows which namespaces a selector matches"),
        "{text}"
    );
    assert_eq!(index(&text), roles);

    let nothing = ProfilePermissions::for_informers(
        &declared(&profile, &[]),
        &account(),
        &WatchedNamespaces::Everywhere,
    )
    .unwrap();
    assert_eq!(with(&[]), nothing);
    let roles = ["ClusterRole /kubewarm:shop:web", "ClusterRoleBinding /kubewarm:shop:web"];
    assert_eq!(index(&nothing.manifests.unwrap()), roles);
}

#[test]
fn texts_and_roles_beyond_their_limits_are_absent_from_the_status() {
    let mut access = offline(&profile(SPEC));
    let status = access.status();
    assert_eq!(status.manifests, access.manifests);
    assert_eq!(status.subject.unwrap(), "system:serviceaccount:kubewarm-system:kubewarm");
    let elevated = access.manifests_elevated.as_ref().unwrap().len();
    access.manifests = Some("#".repeat(MAX_MANIFESTS - elevated));
    let status = access.status();
    assert_eq!(status.manifests, access.manifests, "both have exactly 64 KiB");
    assert_eq!(status.manifests_elevated, access.manifests_elevated);
    access.manifests.as_mut().unwrap().push('#');
    let status = access.status();
    assert_eq!((status.manifests, status.manifests_elevated), (None, None), "all or nothing");
}

proptest! {
    #[test]
    fn no_string_changes_the_parsed_manifests(
        words in prop::collection::vec(".*|[a-z0-9.:#&*!|>'\"%@`{}\\[\\], \n\t-]{0,40}|on|null|---|1e3", 5),
        kind in 0..3_usize,
        is_account in any::<bool>(),
    ) {
        let [a, b, c, d, e] = words.as_slice() else { panic!("five words") };
        let (a, b, c, d, e) = (&**a, &**b, &**c, &**d, &**e);
        let subject = match kind {
            0 => Subject::User(a.into()),
            1 => Subject::Group(a.into()),
            _ => Subject::ServiceAccount { namespace: a.into(), name: b.into() },
        };
        let core = |resource| GroupResource::new("", resource).unwrap();
        let mut kinds = ResourceSet::default();
        kinds.insert(&core("pods"), None);
        kinds.insert(&core("secrets"), Some(b).filter(|name| !name.is_empty()));
        let needs = RequiredPermissions {
            profile: ProfileRef { namespace: c.into(), name: d.into() },
            account: is_account.then(|| b.into()),
            named: [(Arc::from(e), kinds.clone()), (Arc::from(a), kinds.clone())].into(),
            selected: vec![SelectorPermissions {
                target: b.into(),
                labels: crate::model::LabelSelector::default(),
                namespaces: Some(BTreeSet::from([Arc::from(d)])),
                kinds: kinds.clone(),
            }],
            everywhere: kinds,
            looked_up: [Arc::from(a), Arc::from(e)].into(),
        };
        for tier in [PrivilegeLevel::Plain, PrivilegeLevel::Elevated] {
            let Ok(all) = documents(&needs, &subject, tier) else { continue };
            let all: Vec<_> = all.iter().map(|document| serde_json::to_value(document).unwrap()).collect();
            let text = text(&needs, &subject, tier).unwrap().unwrap();
            // kubectl splits the text at lines that begin with `---`, before a YAML parser reads
            // it. So a string in the manifests must not contain such a line.
            let separators = text.lines().filter(|line| line.starts_with("---")).count();
            prop_assert_eq!(separators, all.len());
            prop_assert_eq!(parse(&text), all);
        }
    }
}
