//! The operator's shipped role against all that the end-to-end tests made it ask for: nothing missing,
//! nothing unused.
//!
//! The API servers of `tests/e2e` write that down. Cargo runs tests by name, so those come first.

#![expect(clippy::expect_used, reason = "a test may panic")]

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Who the operator is for the API server.
const OPERATOR: &str = "system:serviceaccount:kubewarm-system:kubewarm";
/// The operator's namespace.
const HOME: &str = "kubewarm-system";
/// What every authenticated user may create: `system:basic-user`.
const REVIEWS: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// What every authenticated user may read: `system:discovery`.
const DISCOVERY: &[&str] = &["/api", "/apis", "/openapi", "/version"];

/// One permission: a rule allows as many as it has combinations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    at_home: bool,
    verb: String,
    group: String,
    resource: String,
    name: Option<String>,
}

/// A request of the operator, as the API server's audit log has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    verb: String,
    /// `None` where it is not about a resource.
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
        let Self { at_home, verb, group, resource, name } = self;
        let role = if *at_home { "the Role" } else { "the ClusterRole" };
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
            && (!self.at_home || object.namespace == HOME)
            && self.name.as_ref().is_none_or(|name| *name == object.name)
    }

    /// Of several that allow a request, the one with most of this is what it needs.
    fn narrowness(&self) -> (bool, bool) {
        (self.name.is_some(), self.at_home)
    }
}

/// Whether the roles of profiles are what this needs: kubewarm prints those, and holds none of them
/// by itself. Profiles and its own leases are its own affair.
fn is_of_profiles(verb: &str, object: &Object) -> bool {
    let is_own = match (object.api_group.as_str(), object.resource.as_str()) {
        ("kubewarm.io", _) => true,
        ("coordination.k8s.io", "leases") => object.namespace == HOME,
        _ => false,
    };
    let of = (verb, object.api_group.as_str(), object.resource());
    match (of.0, of.1, of.2.as_str()) {
        ("list" | "watch", _, _) => !is_own && object.subresource.is_empty(),
        ("get", "", "namespaces") | ("create", "", "serviceaccounts/token") => true,
        _ => false,
    }
}

/// Whether every authenticated user may ask for it.
fn is_for_everybody(Request { verb, object, path, .. }: &Request) -> bool {
    let Some(object) = object else {
        let is_below = |base: &str| {
            path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        return verb == "get" && DISCOVERY.iter().any(|base| is_below(base));
    };
    let of = (object.api_group.as_str(), object.resource.as_str());
    verb == "create" && object.subresource.is_empty() && REVIEWS.contains(&of)
}

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).expect("the file is in the repository")
}

/// The documents of one kind.
fn of_kind<T: DeserializeOwned>(text: &str, kind: &str) -> Vec<T> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    let those = all.into_iter().filter(|document| document["kind"] == kind);
    those.map(|one| serde_json::from_value(one).expect("the kind's fields")).collect()
}

/// All that the shipped roles allow. A `*` is taken literally: no request has one.
fn shipped() -> BTreeSet<Permission> {
    let text = read("deploy/operator-rbac.yaml");
    let mut all = BTreeSet::new();
    for role in of_kind::<ClusterRole>(&text, "ClusterRole") {
        role.rules.iter().flatten().for_each(|rule| all.extend(permissions(rule, false)));
    }
    for role in of_kind::<Role>(&text, "Role") {
        assert_eq!(role.metadata.namespace.as_deref(), Some(HOME));
        role.rules.iter().flatten().for_each(|rule| all.extend(permissions(rule, true)));
    }
    all
}

fn permissions(rule: &PolicyRule, at_home: bool) -> Vec<Permission> {
    assert!(rule.non_resource_urls.is_none(), "{rule:?}: nobody looks whether that is used");
    let names: Vec<_> = match &rule.resource_names {
        Some(names) => names.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                all.extend(names.iter().map(|name| Permission {
                    at_home,
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

/// What the operator asked for in the last end-to-end run: each kind of request once.
fn asked() -> BTreeSet<Request> {
    const ADVICE: &str = "run `cargo test --test e2e` first, all of it";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-requests");
    let entries = fs::read_dir(&folder).map(|all| all.filter_map(Result::ok)).map_err(|_| ADVICE);
    let files: Vec<_> = entries.expect("what e2e wrote").map(|entry| entry.path()).collect();
    let of_binary = modified(Path::new(env!("CARGO_BIN_EXE_kubewarm")));
    let newest = files.iter().map(|file| modified(file)).max();
    assert!(newest >= Some(of_binary), "kubewarm has been built anew: {ADVICE}");
    files.iter().flat_map(requests).collect()
}

fn modified(path: &Path) -> SystemTime {
    let found = fs::metadata(path).and_then(|found| found.modified());
    found.expect("the file is there and has a time")
}

fn requests(file: &PathBuf) -> BTreeSet<Request> {
    let text = fs::read_to_string(file).expect("an audit log is text");
    // A killed API server leaves half a line.
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mine = entries.filter(|entry| entry["user"]["username"] == OPERATOR);
    mine.filter_map(|entry| request(&entry)).collect()
}

fn request(entry: &Value) -> Option<Request> {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    let object = entry.get("objectRef").map(|of| Object::deserialize(of).expect("a reference"));
    let path = text("/requestURI")?.split('?').next()?.to_owned();
    Some(Request {
        verb: text("/verb")?.to_owned(),
        object,
        path,
        is_allowed: text("/annotations/authorization.k8s.io~1decision") == Some("allow"),
    })
}

#[test]
fn the_operator_is_granted_what_it_asks_for_and_nothing_else() {
    let (shipped, asked) = (shipped(), asked());
    let (mut unused, mut missing) = (shipped.clone(), BTreeMap::new());
    for request in &asked {
        let Request { verb, object, path, is_allowed } = request;
        let by = object.as_ref().and_then(|object| {
            let by = shipped.iter().filter(|permission| permission.allows(verb, object));
            by.max_by_key(|permission| permission.narrowness())
        });
        let is_others = object.as_ref().is_some_and(|object| is_of_profiles(verb, object));
        match by {
            Some(permission) if *is_allowed => {
                unused.remove(permission);
            }
            Some(_) => {}
            None if is_others || is_for_everybody(request) => {}
            None => {
                let of = object.as_ref().map(|of| (&of.api_group, of.resource()));
                missing.entry((verb, of)).or_insert(path);
            }
        }
    }
    // One of each kind: a thousand profiles make a thousand paths.
    let missing: Vec<_> =
        missing.iter().map(|((verb, _), path)| format!("{verb} {path}")).collect();
    let unused: Vec<_> = unused.iter().map(ToString::to_string).collect();
    assert!(
        missing.is_empty() && unused.is_empty(),
        "deploy/operator-rbac.yaml, and what the end-to-end tests made the operator ask for:\n\
         not granted: {missing:#?}\nnever used, unless only some tests were run: {unused:#?}"
    );
}
