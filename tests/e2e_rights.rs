//! Compares the operator's shipped roles with the requests that it sent in the end-to-end tests: no
//! permission may be missing or unused. It checks the roles for the whole cluster and the roles for
//! some namespaces.
//!
//! The API servers of `tests/e2e` write audit logs with these requests and the profiles. A list or
//! watch that a profile needs is granted by that profile's roles, all other requests need the
//! operator's roles. Cargo runs test binaries by name, so `e2e` runs first.

#![expect(clippy::expect_used, reason = "a test may panic")]

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt, fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The operator's user name at the API server.
const OPERATOR: &str = "system:serviceaccount:kubewarm-system:kubewarm";
const HOME: &str = "kubewarm-system";
/// The namespace in `deploy/operator-rbac-namespaces.yaml` that stands for each watched namespace.
const WATCHED: &str = "shop";
/// Resources that a Role cannot grant, which the operator requests but can do without: admission
/// policies and CustomResourceDefinitions. So a rejected request is no missing permission. An
/// administrator can grant these resources.
const DISPENSABLE: &[&str] = &[
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "customresourcedefinitions",
];
/// Resources that every authenticated user may create by the ClusterRole `system:basic-user`, so no
/// shipped role grants them.
const REVIEWS: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// Resources that the operator watches only if an access review permits it, as a trigger for early
/// access checks. Only the role for `--authorization=rbac` grants them.
const HINTS: &[&str] = &["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
/// Paths that every authenticated user may read by the ClusterRole `system:discovery`, so no
/// shipped role grants them.
const DISCOVERY: &[&str] = &["/api", "/apis", "/openapi", "/readyz", "/version"];

/// Resources whose writes `tests/node` shows: the API servers of `tests/e2e` publish no address.
const OF_NODE: &str = "endpointslices";

/// One combination of a rule's verbs, groups, resources and names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    /// `None` means all namespaces, an empty name means cluster-scoped or no namespace.
    namespace: Option<String>,
    verb: String,
    group: String,
    resource: String,
    name: Option<String>,
}

/// A request of the operator in the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AuditedRequest {
    verb: String,
    /// `None` if the request is not about a resource.
    object: Option<Object>,
    path: String,
    is_allowed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, verb, group, resource, name } = self;
        let role = if namespace.is_some() { "the Role" } else { "the ClusterRole" };
        write!(f, "{role}: {verb} {resource}.{group}")?;
        name.as_ref().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

impl Object {
    fn resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

impl Permission {
    fn allows(&self, verb: &str, object: &Object) -> bool {
        self.verb == verb
            && self.group == object.api_group
            && self.resource == object.resource()
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
            && self.name.as_ref().is_none_or(|name| *name == object.name)
    }

    /// The order of the permissions that allow the same request. The test counts the narrowest of
    /// them as used by the request.
    fn narrowness(&self) -> (bool, bool) {
        (self.name.is_some(), self.namespace.is_some())
    }
}

/// The permissions of the roles that kubewarm prints for a profile. For a profile with a
/// ServiceAccount, kubewarm needs only tokens: the ServiceAccount itself lists and watches.
fn needs(profile: &Value) -> Vec<Permission> {
    let home = text(profile, "/metadata/namespace");
    let need = |verb: &str, group: &str, resource: &str, namespace: Option<&str>, name| {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Permission { namespace: namespace.map(str::to_owned), verb, group, resource, name }
    };
    if let Some(account) = profile.pointer("/spec/serviceAccountName").and_then(Value::as_str) {
        let name = Some(account.to_owned());
        return vec![need("create", "", "serviceaccounts/token", Some(home), name)];
    }
    let mut all = Vec::new();
    for target in profile.pointer("/spec/targets").and_then(Value::as_array).into_iter().flatten() {
        let mut read = |group: &str, resource: &str, namespace: Option<&str>| {
            let verbs = ["list", "watch"];
            all.extend(verbs.map(|verb| need(verb, group, resource, namespace, None)));
        };
        let group = target.pointer("/group").and_then(Value::as_str).unwrap_or_default();
        let resource = text(target, "/resource");
        let scope = target.get("scope").or_else(|| profile.pointer("/spec/scope"));
        let places = match scope.and_then(|scope| scope["type"].as_str()) {
            None | Some("OwnNamespace") => vec![home],
            Some("Namespaces") => {
                let names = scope.and_then(|scope| scope["namespaces"].as_array());
                names.into_iter().flatten().filter_map(Value::as_str).collect()
            }
            Some("AllNamespaces" | "Cluster") => vec![""],
            Some(_selector) => {
                read("", "namespaces", Some(""));
                read(group, resource, None);
                continue;
            }
        };
        for place in &places {
            read(group, resource, Some(place));
        }
        // The operator gets each namespace by name to see whether it exists.
        let exist = |place: &&str| need("get", "", "namespaces", None, Some((*place).to_owned()));
        all.extend(places.iter().filter(|place| !place.is_empty()).map(exist));
    }
    all
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).expect(pointer)
}

/// Returns whether the request lists or watches RBAC objects as a trigger for new access checks.
fn is_hint(AuditedRequest { verb, object, is_allowed, .. }: &AuditedRequest) -> bool {
    let is_hint = |object: &Object| {
        object.api_group == "rbac.authorization.k8s.io" && HINTS.contains(&&*object.resource())
    };
    *is_allowed && ["list", "watch"].contains(&&**verb) && object.as_ref().is_some_and(is_hint)
}

/// Returns whether every authenticated user may send the request.
fn is_granted_to_all_authenticated(
    AuditedRequest { verb, object, path, .. }: &AuditedRequest,
) -> bool {
    let Some(object) = object else {
        let is_below = |base: &str| {
            path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        return verb == "get" && DISCOVERY.iter().any(|base| is_below(base));
    };
    let kind = (object.api_group.as_str(), object.resource.as_str());
    verb == "create" && object.subresource.is_empty() && REVIEWS.contains(&kind)
}

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).expect("the file is in the repository")
}

/// Returns the documents of one kind.
fn of_kind<T: DeserializeOwned>(text: &str, kind: &str) -> Vec<T> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    let those = all.into_iter().filter(|document| document["kind"] == kind);
    those.map(|one| serde_json::from_value(one).expect("the kind's fields")).collect()
}

/// All permissions of the shipped Roles for some namespaces.
fn shipped_roles() -> BTreeSet<Permission> {
    let text = read("deploy/operator-rbac-namespaces.yaml");
    let cluster_roles = of_kind::<ClusterRole>(&text, "ClusterRole");
    assert!(cluster_roles.is_empty(), "{cluster_roles:?}");
    let mut all = BTreeSet::new();
    for role in of_kind::<Role>(&text, "Role") {
        let namespace = role.metadata.namespace.as_deref();
        assert!([Some(HOME), Some(WATCHED)].contains(&namespace), "{namespace:?}");
        role.rules.iter().flatten().for_each(|rule| all.extend(permissions(rule, namespace)));
    }
    all
}

/// All permissions of the shipped roles, including the roles for `--metrics-auth` and the read API.
/// The test compares a `*` literally, so no `*` would count as used.
fn shipped() -> BTreeSet<Permission> {
    let files = [
        "deploy/operator-rbac.yaml",
        "deploy/metrics-auth.yaml",
        "deploy/read-api.yaml",
        "deploy/rbac-authorization.yaml",
        "deploy/certificate.yaml",
        "deploy/inject.yaml",
        "deploy/inject-policy.yaml",
    ];
    let text = files.map(read).join("---\n");
    let mut all = BTreeSet::new();
    for role in of_kind::<ClusterRole>(&text, "ClusterRole") {
        role.rules.iter().flatten().for_each(|rule| all.extend(permissions(rule, None)));
    }
    for role in of_kind::<Role>(&text, "Role") {
        let namespace = role.metadata.namespace.as_deref();
        assert!([Some(HOME), Some("default")].contains(&namespace), "{namespace:?}");
        role.rules.iter().flatten().for_each(|rule| all.extend(permissions(rule, namespace)));
    }
    all
}

fn permissions(rule: &PolicyRule, namespace: Option<&str>) -> Vec<Permission> {
    assert!(rule.non_resource_urls.is_none(), "{rule:?}: a non-resource URL");
    let names: Vec<_> = match &rule.resource_names {
        Some(names) => names.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                all.extend(names.iter().map(|name| Permission {
                    namespace: namespace.map(str::to_owned),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                }));
            }
        }
    }
    all
}

/// The distinct requests that the operator sent in the last end-to-end run with these permissions.
/// The flag is true if a profile, and not the operator itself, needs the request.
fn sent(rights: OperatorRoles) -> BTreeSet<(AuditedRequest, bool)> {
    const ADVICE: &str = "run `cargo test --test e2e` first, all of it";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-requests");
    let entries = fs::read_dir(&folder).map(|all| all.filter_map(Result::ok)).map_err(|_| ADVICE);
    let files: Vec<_> = entries.expect("the audit logs of e2e").map(|entry| entry.path()).collect();
    let of_binary = modified(Path::new(env!("CARGO_BIN_EXE_kubewarm")));
    let newest = files.iter().map(|file| modified(file)).max();
    assert!(newest >= Some(of_binary), "kubewarm is newer than the audit logs: {ADVICE}");
    let is_of = |file: &&PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("roles-") == (rights == OperatorRoles::Roles)
    };
    files.iter().filter(is_of).flat_map(requests).collect()
}

/// The operator's roles in one world of `tests/e2e/support/world.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperatorRoles {
    ClusterWide,
    Roles,
}

fn modified(path: &Path) -> SystemTime {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    time.expect("the file is there and has a time")
}

/// The operator's requests to one API server. The flag is true if a profile on that server, and not
/// the operator itself, needs the request.
fn requests(file: &PathBuf) -> Vec<(AuditedRequest, bool)> {
    let text = fs::read_to_string(file).expect("an audit log is text");
    // A killed API server leaves an incomplete last line.
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let (mine, others): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry["user"]["username"] == OPERATOR);
    let profiles = others.iter().filter_map(|entry| entry.get("responseObject"));
    let profiles = profiles.filter(|written| written["kind"] == "CacheProfile");
    let needed: BTreeSet<_> = profiles.flat_map(needs).collect();
    let is_needed = |AuditedRequest { verb, object, .. }: &AuditedRequest| {
        let allows = |object: &Object| needed.iter().any(|need| need.allows(verb, object));
        object.as_ref().is_some_and(allows)
    };
    let sent: BTreeSet<_> = mine.iter().filter_map(request).collect();
    // The audit log calls a PUT that creates an object an `update`, but the API server also demands
    // the permission `create`.
    let created = mine.iter().filter(|entry| entry["responseStatus"]["code"] == 201);
    let created = created.filter_map(request).filter(|request| request.verb == "update");
    let created = created.map(|request| AuditedRequest { verb: "create".to_owned(), ..request });
    let sent: BTreeSet<_> = sent.into_iter().chain(created).collect();
    let with_need = |request| {
        let is_needed = is_needed(&request);
        (request, is_needed)
    };
    sent.into_iter().map(with_need).collect()
}

fn request(entry: &Value) -> Option<AuditedRequest> {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    let object = entry
        .get("objectRef")
        .map(|reference| Object::deserialize(reference).expect("a reference"));
    let path = text("/requestURI")?.split('?').next()?.to_owned();
    Some(AuditedRequest {
        verb: text("/verb")?.to_owned(),
        object,
        path,
        is_allowed: text("/annotations/authorization.k8s.io~1decision") == Some("allow"),
    })
}

/// Returns the requests that no permission allows, and the permissions that no request used.
fn compare(
    shipped: &BTreeSet<Permission>,
    sent: &BTreeSet<(AuditedRequest, bool)>,
    is_dispensable: impl Fn(&AuditedRequest) -> bool,
) -> (Vec<String>, Vec<String>) {
    let (mut unused, mut missing) = (shipped.clone(), BTreeMap::new());
    for (request, is_of_profile) in sent {
        let AuditedRequest { verb, object, path, is_allowed } = request;
        let by = object.as_ref().and_then(|object| {
            let by = shipped.iter().filter(|permission| permission.allows(verb, object));
            by.max_by_key(|permission| permission.narrowness())
        });
        match by {
            Some(permission) if *is_allowed => {
                unused.remove(permission);
            }
            Some(_) => {}
            None if *is_of_profile
                || is_hint(request)
                || is_granted_to_all_authenticated(request) => {}
            None if is_dispensable(request) => {}
            None => {
                let kind = object.as_ref().map(|object| (&object.api_group, object.resource()));
                missing.entry((verb, kind)).or_insert(path);
            }
        }
    }
    // One path for each kind of request is enough for the message, because a thousand profiles
    // cause a thousand paths.
    let missing = missing.iter().map(|((verb, _), path)| format!("{verb} {path}")).collect();
    let unused = unused.iter().map(ToString::to_string).collect();
    (missing, unused)
}

#[test]
fn the_cluster_roles_grant_exactly_what_the_operator_requests() {
    let (missing, mut unused) = compare(&shipped(), &sent(OperatorRoles::ClusterWide), |_| false);
    unused.retain(|unused: &String| !unused.contains(OF_NODE));
    assert!(
        missing.is_empty() && unused.is_empty(),
        "deploy/operator-rbac.yaml, metrics-auth.yaml, read-api.yaml, rbac-authorization.yaml, certificate.yaml, inject.yaml and inject-policy.yaml differ from the operator's \
         requests in the end-to-end tests:\n\
         not granted: {missing:#?}\nnever used (run all tests first): {unused:#?}"
    );
}

#[test]
fn the_roles_for_some_namespaces_grant_exactly_what_the_operator_requests() {
    let sent = sent(OperatorRoles::Roles);
    let lists_profiles = |(request, _): &(AuditedRequest, bool)| {
        let object = request.object.as_ref().filter(|object| object.resource == "cacheprofiles")?;
        (request.verb == "list").then(|| object.namespace.clone())
    };
    let watched: BTreeSet<_> = sent.iter().filter_map(lists_profiles).collect();
    assert!(watched.len() > 2 && !watched.contains(""), "{watched:?}");
    // The roles of all watched namespaces are equal, so one namespace can stand for all of them.
    // One of them can also be the operator's own namespace, which has more permissions.
    let as_watched = |(mut request, is_of_profile): (AuditedRequest, bool)| {
        if let Some(object) = &mut request.object
            && watched.contains(&object.namespace)
            && !(object.namespace == HOME && object.resource == "leases")
        {
            object.namespace = WATCHED.to_owned();
        }
        (request, is_of_profile)
    };
    let sent = sent.into_iter().map(as_watched).collect();
    let is_dispensable = |request: &AuditedRequest| {
        let resource = request.object.as_ref().map(|object| object.resource.as_str());
        !request.is_allowed && resource.is_some_and(|resource| DISPENSABLE.contains(&resource))
    };
    let (missing, unused) = compare(&shipped_roles(), &sent, is_dispensable);
    assert!(
        missing.is_empty() && unused.is_empty(),
        "deploy/operator-rbac-namespaces.yaml differs from the operator's requests in \
         tests/e2e/cases/access/namespaces.rs:\n\
         not granted: {missing:#?}\nnever used: {unused:#?}"
    );
}

#[test]
fn requests_without_a_profile_need_the_operators_roles() {
    let profile = |spec: &str| {
        let text = format!("{{metadata: {{namespace: shop}}, spec: {spec}}}");
        serde_saphyr::from_str::<Value>(&text).expect("it is YAML")
    };
    let asks = |spec: &str| {
        let needed = needs(&profile(spec));
        move |verb: &str, resource: &str, namespace: &str| {
            let (resource, namespace) = (resource.to_owned(), namespace.to_owned());
            let object = Object { resource, namespace, ..Object::default() };
            needed.iter().any(|need| need.allows(verb, &object))
        }
    };
    let pods = asks("{targets: [{resource: pods}]}");
    assert!(pods("list", "pods", "shop") && pods("watch", "pods", "shop"));
    assert!(
        !pods("watch", "pods", "")
            && !pods("watch", "pods", "bank")
            && !pods("get", "pods", "shop")
    );
    assert!(!pods("watch", "nodes", "") && !pods("watch", "namespaces", ""));
    let everywhere = asks("{targets: [{resource: pods, scope: {type: AllNamespaces}}]}");
    assert!(everywhere("watch", "pods", "") && !everywhere("watch", "pods", "shop"));
    let selected = asks("{targets: [{resource: pods, scope: {type: NamespaceSelector}}]}");
    assert!(selected("watch", "pods", "bank") && selected("watch", "namespaces", ""));
    let account = asks("{serviceAccountName: x, targets: [{resource: pods}]}");
    assert!(!account("list", "pods", "shop"), "its account sends that request");
}
