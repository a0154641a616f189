//! The permissions that a profile needs: as rules for its status, and as YAML to apply.

use super::{
    Unwritable,
    needs::{FoundNamespaces, Lookup, Needs, Selected},
    rbac::{NameTooLong, Tier, documents, roles},
};
use crate::{
    api::{AccessStatus, NamespaceRules},
    model::{CellKey, Declared, Identity, Subject, ValidatedProfile},
};

/// The most that a field of the status holds, in bytes; etcd takes objects up to about 1.5 MiB.
const MAX_TEXT: usize = 256 << 10;
/// The most entries of `status.access.roles`, and of the rules of one.
const MAX_NAMESPACES: usize = 128;
const MAX_RULES: usize = 32;

/// Head of the manifests that grant access to secrets.
const ELEVATED: &str = "\
# Elevated: access to secrets. A role cannot grant their metadata alone, so this grants all of them
# where it applies. Whoever may run pods as the subject, or mint tokens for it, gains them directly.
";

/// The same for an account that the profile names.
const ELEVATED_ACCOUNT: &str = "\
# Elevated: access to secrets, or outside the profile's namespace, for the ServiceAccount there that
# the profile names. Whoever may run pods or mint tokens in that namespace gains all of it directly.
# A role cannot grant the metadata of secrets alone.
";

/// Where an offline manifest cannot be complete.
const UNBOUND: &str = "\
# Which namespaces a selector finds only the cluster knows. Each needs a RoleBinding to the
# ClusterRole named :target: below; status.access of the applied profile holds them.
";

/// Least-privilege access of one profile: `list` and `watch` on what its cells name, nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who needs it.
    pub subject: Subject,
    /// By namespace, sorted; the empty one is the whole cluster. Unbounded.
    pub roles: Vec<NamespaceRules>,
    /// YAML that grants everything else. Unbounded.
    pub manifests: Option<String>,
    /// YAML that grants access to secrets, and what lies outside the profile's namespace to an
    /// account that the profile names. Unbounded.
    pub manifests_elevated: Option<String>,
}

/// Whether the grant for a cell belongs to `manifestsElevated`. Of a selector, that of the account's
/// own namespace is there too.
#[must_use]
pub fn is_elevated(cell: &CellKey) -> bool {
    let away = match &cell.identity {
        Identity::Operator => false,
        Identity::ServiceAccount { namespace, .. } => cell.extent.namespace() != Some(namespace),
    };
    away || cell.resource.group_resource().is_secrets()
}

/// Why no manifests can be given.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A role's name would not be a Kubernetes name.
    #[error(transparent)]
    NameTooLong(#[from] NameTooLong),
    /// Not writable as YAML.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
}

impl Access {
    /// What the declared cells need, where the operator is `operator`. Of a selector's namespaces,
    /// those that it finds now.
    ///
    /// # Errors
    ///
    /// [`AccessError::NameTooLong`] where namespace and name of the profile are too long together.
    pub fn of_cells(
        declared: &Declared,
        operator: &Subject,
        lookup: Lookup,
    ) -> Result<Self, AccessError> {
        Self::of(&Needs::of_cells(declared, lookup), operator)
    }

    /// What the spec needs, with no cluster at hand: kinds are taken as it writes them, and the
    /// namespaces of selectors that are not in `found` are left open. For a profile every kind of
    /// which is served, and whose selectors were all asked for, the result is that of
    /// [`Access::of_cells`], byte for byte.
    ///
    /// # Errors
    ///
    /// As for [`Access::of_cells`].
    pub fn of_profile(
        profile: &ValidatedProfile,
        found: &FoundNamespaces,
        operator: &Subject,
        lookup: Lookup,
    ) -> Result<Self, AccessError> {
        Self::of(&Needs::of_profile(profile, found, lookup), operator)
    }

    fn of(needs: &Needs, operator: &Subject) -> Result<Self, AccessError> {
        let manifests = text(needs, operator, Tier::Plain)?;
        let manifests_elevated = text(needs, operator, Tier::Elevated)?;
        Ok(Self {
            subject: needs.reader(operator),
            roles: roles(needs),
            manifests,
            manifests_elevated,
        })
    }

    /// Everything as one text, as `kubewarm rbac` prints it.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let texts = [self.manifests.as_deref(), self.manifests_elevated.as_deref()];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// `status.access`. What does not fit is absent: past 128 namespaces or 32 rules of one the roles,
    /// past 256 KiB a text. `kubewarm rbac` prints everything.
    #[must_use]
    pub fn status(&self) -> AccessStatus {
        let fits = |text: &Option<String>| text.clone().filter(|text| text.len() <= MAX_TEXT);
        let roles_fit = self.roles.len() <= MAX_NAMESPACES
            && self.roles.iter().all(|role| role.rules.len() <= MAX_RULES);
        AccessStatus {
            // A user name is free text; the field takes 512 characters.
            subject: Some(self.subject.to_string().chars().take(512).collect()),
            roles: if roles_fit { self.roles.clone() } else { Vec::new() },
            manifests: fits(&self.manifests),
            manifests_elevated: fits(&self.manifests_elevated),
            ..AccessStatus::default()
        }
    }
}

fn text(needs: &Needs, operator: &Subject, tier: Tier) -> Result<Option<String>, AccessError> {
    let all = documents(needs, operator, tier)?;
    if all.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    if tier == Tier::Elevated {
        text.push_str(if needs.account.is_some() { ELEVATED_ACCOUNT } else { ELEVATED });
    }
    let unbound = |group: &Selected| {
        group.namespaces.is_none() && !tier.of(&group.kinds, needs.leaves_home(None)).is_empty()
    };
    if needs.selected.iter().any(unbound) {
        text.push_str(UNBOUND);
    }
    for document in &all {
        text.push_str("---\n");
        text.push_str(&document.yaml()?);
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::CacheProfile,
        manifests::needs::Kinds,
        model::{
            DeclaredTarget, Extent, GroupResource, ManagedFields, Mode, ProfileRef, Projection,
            Requirement, Resource, SensitiveData, TargetScope,
        },
    };
    use proptest::prelude::*;
    use std::{collections::BTreeSet, sync::Arc, time::Duration};

    const SPEC: &str = "
        targets:
        - {name: deployments, resource: {group: apps, resource: deployments}}
        - {name: settings, resource: {resource: configmaps}}
        - {name: secrets, resource: {resource: secrets}, projection: {type: MetadataOnly}}
        - name: pods
          resource: {resource: pods}
          scope: {type: Namespaces, namespaces: [shop, east, west]}
        - {name: nodes, resource: {resource: nodes}, scope: {type: Cluster}}
        - {name: all, resource: {group: batch, resource: jobs}, scope: {type: AllNamespaces}}";

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

    fn cell(of: &GroupResource, extent: Extent, identity: &Identity) -> CellKey {
        CellKey {
            resource: Resource::new(of.clone(), "v1").unwrap(),
            extent,
            labels: crate::model::LabelSelector::default(),
            fields: crate::model::FieldSelector::default(),
            projection: Projection::MetadataOnly(ManagedFields::Drop),
            sensitive_data: SensitiveData::Deny,
            identity: identity.clone(),
        }
    }

    /// As the controller resolves it; selectors find `found`.
    fn declared(profile: &ValidatedProfile, found: &[&str]) -> Declared {
        let within = |name: &str| Extent::Namespace(name.into());
        let identity = profile.identity();
        let targets = profile.targets.iter().map(|target| {
            let extents: Vec<_> = match &target.scope {
                TargetScope::OwnNamespace => vec![within("shop")],
                TargetScope::Namespaces(names) => names.iter().map(|name| within(name)).collect(),
                TargetScope::NamespaceSelector(_) => {
                    found.iter().map(|name| within(name)).collect()
                }
                TargetScope::AllNamespaces => vec![Extent::AllNamespaces],
                TargetScope::Cluster => vec![Extent::Cluster],
            };
            let namespaces = if let TargetScope::NamespaceSelector(labels) = &target.scope {
                let of = GroupResource::new("", "namespaces").unwrap();
                Some(CellKey { labels: labels.clone(), ..cell(&of, Extent::Cluster, &identity) })
            } else {
                None
            };
            DeclaredTarget {
                name: Arc::clone(&target.name),
                requirement: Requirement::Required,
                declared_as: target.of.to_string().into(),
                resolved: None,
                cells: extents
                    .into_iter()
                    .map(|extent| cell(&target.of, extent, &identity))
                    .collect(),
                namespaces,
                serving: None,
                left_out: [].into(),
            }
        });
        Declared {
            profile: profile.profile.clone(),
            uid: "u".into(),
            generation: 1,
            refused: None,
            service_account: profile.service_account.clone(),
            mode: Mode::Active,
            targets: targets.collect(),
            objective: None,
            max_staleness: Duration::from_mins(2),
            on_access_lost: profile.on_access_lost,
            accepted_at: Duration::ZERO,
        }
    }

    fn parse(text: &str) -> Vec<serde_json::Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    /// `kind namespace/name` of every document.
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
    fn every_place_has_the_rules_its_cells_need() {
        let access =
            Access::of_profile(&profile(SPEC), &[].into(), &account(), Lookup::Granted).unwrap();
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
    fn a_file_and_the_cluster_come_to_the_same_bytes() {
        for who in ["", "\n        serviceAccountName: reader"] {
            let profile = profile(&format!("{who}{SPEC}"));
            let offline =
                Access::of_profile(&profile, &[].into(), &account(), Lookup::Granted).unwrap();
            let live =
                Access::of_cells(&declared(&profile, &[]), &account(), Lookup::Granted).unwrap();
            assert_eq!(offline, live);
        }
    }

    #[test]
    fn without_lookups_named_namespaces_need_no_cluster_role() {
        let spec = "
        targets:
        - name: pods
          resource: {resource: pods}
          scope: {type: Namespaces, namespaces: [shop, east]}";
        for who in ["", "\n        serviceAccountName: reader"] {
            let profile = profile(&format!("{who}{spec}"));
            let of = |lookup| Access::of_profile(&profile, &[].into(), &account(), lookup).unwrap();
            let left = of(Lookup::Left);
            let live = Access::of_cells(&declared(&profile, &[]), &account(), Lookup::Left);
            assert_eq!(live.unwrap(), left);
            assert!(of(Lookup::Granted).to_yaml().contains("kind: ClusterRole\n"));
            assert!(!left.to_yaml().contains("ClusterRole"), "{}", left.to_yaml());
            let places: Vec<_> = left.roles.iter().map(|role| role.namespace.as_str()).collect();
            assert_eq!(places, ["east", "shop"]);
        }
    }

    #[test]
    fn an_account_reads_and_the_operator_gets_its_tokens_and_nothing_else() {
        let profile = profile(&format!("\n        serviceAccountName: reader{SPEC}"));
        let access =
            Access::of_cells(&declared(&profile, &[]), &account(), Lookup::Granted).unwrap();
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
        let words = ["outside the profile's namespace", "run pods or mint tokens"];
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
    fn a_selector_is_one_cluster_role_and_a_binding_in_each_namespace() {
        let spec = "
        targets:
        - name: web
          resource: {resource: pods}
          scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {tier: web}}}
        - name: web-settings
          resource: {resource: configmaps}
          scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {tier: web}}}";
        let profile = profile(spec);
        let live = Access::of_cells(&declared(&profile, &["b", "a"]), &account(), Lookup::Granted)
            .unwrap();
        let role = "ClusterRole /kubewarm:shop:web:target:web";
        let own = ["ClusterRole /kubewarm:shop:web", "ClusterRoleBinding /kubewarm:shop:web", role];
        let bindings = ["a", "b"].map(|n| format!("RoleBinding {n}/kubewarm:shop:web:target:web"));
        let expected: Vec<_> = own.map(str::to_owned).into_iter().chain(bindings).collect();
        let TargetScope::NamespaceSelector(selector) = &profile.targets[0].scope else {
            panic!("no selector");
        };
        let with = |names: &[&str]| {
            let names = names.iter().map(|name| Arc::from(*name)).collect();
            let found = [(selector.clone(), names)].into();
            Access::of_profile(&profile, &found, &account(), Lookup::Granted).unwrap()
        };
        assert_eq!(with(&["b", "a"]), live, "once the namespaces are known");
        assert_eq!(index(&live.manifests.unwrap()), expected);
        let names: Vec<_> = live.roles.iter().map(|role| role.namespace.as_str()).collect();
        assert_eq!(names, ["", "a", "b"]);

        let offline =
            Access::of_profile(&profile, &[].into(), &account(), Lookup::Granted).unwrap();
        let text = offline.manifests.unwrap();
        assert!(text.starts_with("# Which namespaces a selector finds"), "{text}");
        assert_eq!(index(&text), own);

        let nothing =
            Access::of_cells(&declared(&profile, &[]), &account(), Lookup::Granted).unwrap();
        assert_eq!(with(&[]), nothing);
        let own = ["ClusterRole /kubewarm:shop:web", "ClusterRoleBinding /kubewarm:shop:web"];
        assert_eq!(index(&nothing.manifests.unwrap()), own);
    }

    #[test]
    fn what_does_not_fit_the_status_is_absent() {
        let mut access =
            Access::of_profile(&profile(SPEC), &[].into(), &account(), Lookup::Granted).unwrap();
        let status = access.status();
        assert_eq!(status.manifests, access.manifests);
        assert_eq!(status.subject.unwrap(), "system:serviceaccount:kubewarm-system:kubewarm");
        access.manifests = Some("#".repeat(MAX_TEXT + 1));
        access.roles = vec![NamespaceRules::default(); MAX_NAMESPACES + 1];
        let status = access.status();
        assert_eq!((status.manifests, status.roles.len()), (None, 0));
        assert!(status.manifests_elevated.is_some());
    }

    proptest! {
        #[test]
        fn no_string_changes_what_the_text_says(
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
            let of = |resource| GroupResource::new("", resource).unwrap();
            let kinds: Kinds = [of("pods"), of("secrets")].into();
            let needs = Needs {
                profile: ProfileRef { namespace: c.into(), name: d.into() },
                account: is_account.then(|| b.into()),
                named: [(Arc::from(e), kinds.clone()), (Arc::from(a), kinds.clone())].into(),
                selected: vec![Selected {
                    target: b.into(),
                    namespaces: Some(BTreeSet::from([Arc::from(d)])),
                    kinds: kinds.clone(),
                }],
                everywhere: kinds,
                looked_up: [Arc::from(a), Arc::from(e)].into(),
            };
            for tier in [Tier::Plain, Tier::Elevated] {
                let Ok(all) = documents(&needs, &subject, tier) else { continue };
                let all: Vec<_> = all.iter().map(|one| serde_json::to_value(one).unwrap()).collect();
                let text = text(&needs, &subject, tier).unwrap().unwrap();
                // kubectl splits the text by lines, before any parser sees it.
                let separators = text.lines().filter(|line| line.starts_with("---")).count();
                prop_assert_eq!(separators, all.len());
                prop_assert_eq!(parse(&text), all);
            }
        }
    }
}
