//! Random roles, bindings and requests. The alphabets are small, so that rules and requests often
//! match, and contain unusual values, even some that the API server rejects.

use fastrand::Rng;
use k8s_openapi::{
    api::{
        authorization::v1::{
            NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReviewSpec,
        },
        rbac::v1::{
            ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

const NAMESPACES: &[&str] = &["a", "b", "a:b"];
const ROLE_NAMES: &[&str] = &["r", "s"];
const ODD_ROLE_KINDS: &[&str] = &["", "role", "Group", "Role"];
const API_GROUPS: &[&str] = &["rbac.authorization.k8s.io", "", "other"];
const SUBJECT_KINDS: &[&str] = &["User", "Group", "ServiceAccount"];
const ODD_SUBJECT_KINDS: &[&str] = &["", "user", "Robot"];
/// `system:serviceaccount:a:b:c` is the account `b:c` in namespace `a`, and also `c` in `a:b`. The
/// test shows that both programs treat this ambiguity alike.
const USERS: &[&str] = &[
    "jane",
    "jane",
    "system:serviceaccount:a:agent",
    "system:serviceaccount:a:b:c",
    "system:serviceaccount::agent",
    "",
    "*",
];
const GROUPS: &[&str] = &["g", "h", "system:masters", "system:serviceaccounts", "", "*"];
const ACCOUNTS: &[&str] = &["agent", "agent", "b:c", "c", ""];
const VERBS: &[&str] = &["get", "list", "watch", "", "*"];
const RESOURCE_GROUPS: &[&str] = &["", "", "apps", "*"];
const RULE_RESOURCES: &[&str] = &[
    "pods",
    "pods",
    "deployments",
    "deployments/scale",
    "pods/log",
    "pods/log/x",
    "*",
    "pods/*",
    "*/scale",
    "*/log/x",
    "*/*",
    "*/",
    "*scale",
    "/scale",
    "",
];
const RESOURCES: &[&str] = &["pods", "pods", "deployments", "*", "pods/log", ""];
const SUBRESOURCES: &[&str] = &["", "", "", "scale", "log", "log/x", "*"];
const NAMES: &[&str] = &["", "", "x", "y", "x/y", "*"];
const URLS: &[&str] = &[
    "/healthz",
    "/healthz/*",
    "/healthz*",
    "/health**",
    "/*",
    "*",
    "**",
    "/*/etcd",
    "/a*b",
    "/",
    "",
];
const PATHS: &[&str] =
    &["/healthz", "/healthz/", "/healthz/etcd", "/metrics", "/*/etcd", "/a*b", "/", "", "*"];

/// RBAC objects, and requests to decide by them. Objects of the same kind have different names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RbacWorld {
    pub(crate) roles: Vec<Role>,
    pub(crate) role_bindings: Vec<RoleBinding>,
    pub(crate) cluster_roles: Vec<ClusterRole>,
    pub(crate) cluster_role_bindings: Vec<ClusterRoleBinding>,
    pub(crate) requests: Vec<AccessRequest>,
}

/// A request of a user.
#[derive(Debug, Serialize)]
pub(crate) struct AccessRequest {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) access: SelfSubjectAccessReviewSpec,
}

impl RbacWorld {
    /// Equal seeds give equal worlds.
    pub(crate) fn generate(seed: u64) -> Self {
        let random = &mut Rng::with_seed(seed);
        let mut world = Self {
            roles: Vec::new(),
            role_bindings: Vec::new(),
            cluster_roles: Vec::new(),
            cluster_role_bindings: Vec::new(),
            requests: Vec::new(),
        };
        let names = ROLE_NAMES.iter().copied().chain(is_rare(random).then_some(""));
        for name in names {
            // No Role is without a namespace: the API server has no such Role, and its authorizer
            // would find it for a ClusterRoleBinding.
            for namespace in NAMESPACES {
                if random.u8(..4) > 0 {
                    let (metadata, rules) = (metadata(namespace, name), rules(random));
                    world.roles.push(Role { metadata, rules });
                }
            }
            if random.u8(..4) > 0 {
                let metadata = metadata("", name);
                let rules = rules(random);
                world.cluster_roles.push(ClusterRole { metadata, rules, ..ClusterRole::default() });
            }
        }
        for number in 0..random.usize(1..4) {
            let namespace = pick_rarely(random, NAMESPACES, &[""]);
            world.role_bindings.push(RoleBinding {
                metadata: metadata(namespace, &format!("n{number}")),
                role_ref: role_ref(random, &["Role", "ClusterRole"]),
                subjects: subjects(random),
            });
        }
        for number in 0..random.usize(..3) {
            world.cluster_role_bindings.push(ClusterRoleBinding {
                metadata: metadata("", &format!("n{number}")),
                role_ref: role_ref(random, &["ClusterRole"]),
                subjects: subjects(random),
            });
        }
        for _ in 0..8 {
            let request = world.request(random);
            world.requests.push(request);
        }
        world
    }

    /// A request that often matches a binding and a rule, with a random part.
    fn request(&self, random: &mut Rng) -> AccessRequest {
        let aimed = (0..8).find_map(|_| self.aimed_request(random));
        let mut request = aimed.unwrap_or_else(|| random_request(random));
        if random.u8(..6) > 0 {
            return request;
        }
        let other = random_request(random);
        match random.u8(..5) {
            0 => request.user = other.user,
            1 => request.groups = other.groups,
            2 => request.access = other.access,
            _ => mix(&mut request.access, other.access, random),
        }
        request
    }

    /// A request that a random subject of a random binding sends, for a random rule of the bound
    /// role. `None` if there is no such subject or rule.
    fn aimed_request(&self, random: &mut Rng) -> Option<AccessRequest> {
        let cluster = self.cluster_role_bindings.iter();
        let cluster = cluster.map(|binding| ("", &binding.role_ref, &binding.subjects));
        let bindings = self.role_bindings.iter().map(|binding| {
            let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
            (namespace, &binding.role_ref, &binding.subjects)
        });
        let bindings: Vec<_> = bindings.chain(cluster).collect();
        let (namespace, role, subjects) = random.choice(bindings)?;
        let subject = random.choice(subjects.as_deref().unwrap_or_default())?;
        let is_role = |metadata: &ObjectMeta, namespace: &str| {
            metadata.namespace.as_deref().unwrap_or_default() == namespace
                && metadata.name.as_deref() == Some(&role.name)
        };
        let rules = if role.kind == "Role" {
            &self.roles.iter().find(|role| is_role(&role.metadata, namespace))?.rules
        } else {
            &self.cluster_roles.iter().find(|role| is_role(&role.metadata, ""))?.rules
        };
        let wanted = random.choice(rules.as_deref().unwrap_or_default())?;
        let mut request = random_request(random);
        match &*subject.kind {
            "Group" => request.groups.push(subject.name.clone()),
            "ServiceAccount" => {
                let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
                let namespace = own.unwrap_or(namespace);
                request.user = format!("system:serviceaccount:{namespace}:{}", subject.name);
            }
            _ => request.user.clone_from(&subject.name),
        }
        request.access = aimed_access(namespace, wanted, random);
        Some(request)
    }
}

fn pick<'a>(random: &mut Rng, alphabet: &[&'a str]) -> &'a str {
    alphabet[random.usize(..alphabet.len())]
}

fn text(random: &mut Rng, alphabet: &[&str]) -> Option<String> {
    let text = pick(random, alphabet);
    // An absent text and an empty one mean the same.
    (!text.is_empty() || random.bool()).then(|| text.to_owned())
}

/// A text of `usual`, or rarely one of `odd`.
fn pick_rarely<'a>(random: &mut Rng, usual: &[&'a str], odd: &[&'a str]) -> &'a str {
    let alphabet = if is_rare(random) { odd } else { usual };
    pick(random, alphabet)
}

fn is_rare(random: &mut Rng) -> bool {
    random.u8(..16) == 0
}

/// Up to `max` elements, but rarely none.
fn some<T>(random: &mut Rng, max: usize, mut element: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    let min = usize::from(!is_rare(random));
    (0..random.usize(min..=max)).map(|_| element(random)).collect()
}

fn texts(random: &mut Rng, alphabet: &[&str], max: usize) -> Vec<String> {
    some(random, max, |random| pick(random, alphabet).to_owned())
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn rules(random: &mut Rng) -> Option<Vec<PolicyRule>> {
    (!is_rare(random)).then(|| some(random, 2, rule))
}

fn rule(random: &mut Rng) -> PolicyRule {
    let kind = random.u8(..8);
    // One rule of eight is for resources and for URLs, which the API server rejects.
    let resource = (kind < 6).then_some(());
    let has_names = random.u8(..3) == 0;
    PolicyRule {
        verbs: texts(random, VERBS, 2),
        api_groups: resource.map(|()| texts(random, RESOURCE_GROUPS, 2)),
        resources: resource.map(|()| texts(random, RULE_RESOURCES, 2)),
        resource_names: has_names.then(|| texts(random, NAMES, 2)),
        non_resource_urls: (kind >= 5).then(|| texts(random, URLS, 2)),
    }
}

fn role_ref(random: &mut Rng, kinds: &[&str]) -> RoleRef {
    let name = pick_rarely(random, ROLE_NAMES, &["", "none"]);
    RoleRef {
        api_group: text(random, API_GROUPS),
        kind: pick_rarely(random, kinds, ODD_ROLE_KINDS).to_owned(),
        name: name.to_owned(),
    }
}

fn subjects(random: &mut Rng) -> Option<Vec<Subject>> {
    (!is_rare(random)).then(|| some(random, 2, subject))
}

fn subject(random: &mut Rng) -> Subject {
    let kind = pick_rarely(random, SUBJECT_KINDS, ODD_SUBJECT_KINDS);
    let name = match kind {
        "Group" => pick(random, GROUPS),
        "ServiceAccount" => pick(random, ACCOUNTS),
        _ => pick(random, USERS),
    };
    Subject {
        api_group: text(random, API_GROUPS),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: text(random, &["a", "b", "a:b", "", ""]),
    }
}

fn random_request(random: &mut Rng) -> AccessRequest {
    let access = if random.u8(..4) == 0 {
        let (path, verb) = (text(random, PATHS), text(random, VERBS));
        for_path(NonResourceAttributes { path, verb })
    } else {
        for_resource(ResourceAttributes {
            verb: text(random, VERBS),
            group: text(random, RESOURCE_GROUPS),
            resource: text(random, RESOURCES),
            subresource: text(random, SUBRESOURCES),
            namespace: text(random, &["a", "b", "a:b", "c", ""]),
            name: text(random, NAMES),
            ..ResourceAttributes::default()
        })
    };
    let (user, groups) = (pick(random, USERS).to_owned(), texts(random, GROUPS, 2));
    AccessRequest { user, groups, access }
}

fn for_path(attributes: NonResourceAttributes) -> SelfSubjectAccessReviewSpec {
    SelfSubjectAccessReviewSpec {
        non_resource_attributes: Some(attributes),
        resource_attributes: None,
    }
}

fn for_resource(attributes: ResourceAttributes) -> SelfSubjectAccessReviewSpec {
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        non_resource_attributes: None,
    }
}

/// A request that this rule probably allows.
fn aimed_access(
    namespace: &str,
    rule: &PolicyRule,
    random: &mut Rng,
) -> SelfSubjectAccessReviewSpec {
    /// A listed text, or a random one for `*` or an empty list.
    fn one(random: &mut Rng, listed: &[String], alphabet: &[&str]) -> Option<String> {
        let listed = random.choice(listed).filter(|listed| *listed != "*");
        listed.cloned().or_else(|| text(random, alphabet))
    }
    let verb = one(random, &rule.verbs, VERBS);
    let urls = rule.non_resource_urls.as_deref().unwrap_or_default();
    let resources = rule.resources.as_deref().unwrap_or_default();
    if let Some(url) = random.choice(urls)
        && (resources.is_empty() || random.bool())
        // A RoleBinding allows no paths.
        && (namespace.is_empty() || is_rare(random))
    {
        let rest = if url.ends_with('*') { pick(random, &["", "z", "/etcd"]) } else { "" };
        let path = Some(format!("{}{rest}", url.trim_end_matches('*')));
        return for_path(NonResourceAttributes { path, verb });
    }
    let resource = one(random, resources, RESOURCES);
    let (resource, subresource) = match resource.as_deref().and_then(|text| text.split_once('/')) {
        // Both forms mean the same to the authorizer.
        Some((resource, subresource)) if random.u8(..8) > 0 => {
            let resource = if resource == "*" { pick(random, RESOURCES) } else { resource };
            let subresource =
                if subresource == "*" { pick(random, SUBRESOURCES) } else { subresource };
            (Some(resource.to_owned()), Some(subresource.to_owned()))
        }
        _ => (resource, None),
    };
    let namespace =
        if namespace.is_empty() { text(random, NAMESPACES) } else { Some(namespace.to_owned()) };
    for_resource(ResourceAttributes {
        verb,
        group: one(random, rule.api_groups.as_deref().unwrap_or_default(), RESOURCE_GROUPS),
        resource,
        subresource,
        namespace,
        name: one(random, rule.resource_names.as_deref().unwrap_or_default(), NAMES),
        ..ResourceAttributes::default()
    })
}

/// Replaces one attribute by that of another request, if both are for resources.
fn mix(
    access: &mut SelfSubjectAccessReviewSpec,
    other: SelfSubjectAccessReviewSpec,
    random: &mut Rng,
) {
    let (Some(access), Some(other)) = (&mut access.resource_attributes, other.resource_attributes)
    else {
        return;
    };
    match random.u8(..6) {
        0 => access.verb = other.verb,
        1 => access.group = other.group,
        2 => access.resource = other.resource,
        3 => access.subresource = other.subresource,
        4 => access.namespace = other.namespace,
        _ => access.name = other.name,
    }
}
