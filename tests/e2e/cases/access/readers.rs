//! Readers with different permissions. For every verb, path and selector, kubewarm returns the API
//! server's answer, or refuses the request as the API server does.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use serde_json::{Deserializer, Value};

use crate::accept::{ANY, METADATA, METADATA_LIST, TABLE};
use crate::api::{HttpReply, Server, account};
use crate::world::{Failure, Outcome, World, eventually};

/// Timeout until a changed permission has an effect: access decisions count for 10 s, the rest is
/// for a busy machine.
const DECISION_REFRESH: Duration = Duration::from_secs(30);
/// A streaming list.
const STREAMED: &str = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const WATCH: &str = "watch=1&timeoutSeconds=1&resourceVersion=0";

/// Both servers and two namespaces with equal contents. `profile` declares every kind that these
/// tests read.
pub(crate) struct ComparedServers<'a> {
    pub(crate) world: &'a World,
    pub(crate) api: &'a Server,
    pub(crate) reads: &'a Server,
    pub(crate) profile: &'a str,
    pub(crate) a: &'a str,
    pub(crate) b: &'a str,
}

/// The permissions of an account, in the namespace `a` or everywhere.
struct AccountRights {
    account: &'static str,
    is_everywhere: bool,
    rules: &'static str,
}

const fn here(account: &'static str, rules: &'static str) -> AccountRights {
    AccountRights { account, is_everywhere: false, rules }
}

const fn everywhere(account: &'static str, rules: &'static str) -> AccountRights {
    AccountRights { account, is_everywhere: true, rules }
}

const GET: &str = "{apiGroups: ['*'], resources: ['*'], verbs: [get]}";
const LIST: &str = "{apiGroups: ['*'], resources: ['*'], verbs: [list]}";
const READERS: &[AccountRights] = &[
    // This reader may read no objects, only the logs of pods.
    here("denied", "{apiGroups: [''], resources: [pods/log], verbs: ['*']}"),
    here("getter", GET),
    here("lister", LIST),
    here("watcher", "{apiGroups: ['*'], resources: ['*'], verbs: [watch]}"),
    here("tenant", "{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}"),
    here(
        "of-red",
        "{apiGroups: [''], resources: [configmaps], resourceNames: [red], verbs: [get, list, watch]}",
    ),
    here(
        "of-hidden",
        "{apiGroups: [''], resources: [secrets], resourceNames: [hidden], verbs: [get]}",
    ),
    everywhere("getter-of-all", GET),
    everywhere("lister-of-all", LIST),
    everywhere(
        "of-red-everywhere",
        "{apiGroups: [''], resources: [configmaps], resourceNames: [red], verbs: [get, list, watch]}",
    ),
    everywhere(
        "of-parts",
        "{apiGroups: [example.com], resources: [parts], verbs: [get, list, watch]}",
    ),
];

/// A path with its query, and the `Accept` header.
type PathAndAccept = (String, &'static str);

/// Requests for which both servers must give the same answer.
fn requests(a: &str, b: &str) -> Vec<PathAndAccept> {
    let (base, other) = (format!("/api/v1/namespaces/{a}"), format!("/api/v1/namespaces/{b}"));
    let custom = format!("/apis/example.com/v1/namespaces/{a}");
    let mut all = Vec::new();
    for name in ["red", "none", "red?watch=1", "red?fieldSelector=metadata.name%3Dblue"] {
        all.push((format!("{base}/configmaps/{name}"), ANY));
    }
    all.push((format!("{base}/configmaps/red"), METADATA));
    all.push((format!("{other}/configmaps/red"), ANY));
    for collection in [format!("{base}/configmaps"), "/api/v1/configmaps".to_owned()] {
        for query in [
            "",
            "limit=1",
            "resourceVersion=0",
            "labelSelector=app%3Dweb",
            "fieldSelector=metadata.name%3Dred",
            "fieldSelector=metadata.name%3Dblue",
            "fieldSelector=metadata.name!%3Dred",
            "fieldSelector=metadata.name%3Dred,metadata.name%3Dblue",
            "fieldSelector=metadata.name%3Dblue,metadata.name%3Dred",
            "fieldSelector=metadata.name%3Dred&fieldSelector=metadata.name%3Dblue",
            "watch=0&watch=1",
        ] {
            all.push((format!("{collection}?{query}"), ANY));
        }
        for named in [format!("metadata.namespace%3D{b}"), format!("metadata.namespace%3D{a}")] {
            all.push((format!("{collection}?fieldSelector={named}"), ANY));
            all.push((format!("{collection}?fieldSelector={named},metadata.name%3Dred"), ANY));
        }
        all.push((collection.clone(), TABLE));
        all.push((collection.clone(), METADATA_LIST));
        all.push((format!("{collection}?fieldSelector=metadata.name%3Dred"), METADATA_LIST));
        for (query, accept) in [
            (WATCH.to_owned(), ANY),
            (format!("{WATCH}&watch=0"), METADATA),
            (format!("{WATCH}&fieldSelector=metadata.name%3Dred"), ANY),
            (format!("{WATCH}&fieldSelector=metadata.name%3Dblue"), ANY),
            (STREAMED.to_owned(), ANY),
            (format!("{STREAMED}&labelSelector=app%3Dapi"), METADATA),
        ] {
            all.push((format!("{collection}?{query}"), accept));
        }
    }
    for path in [
        "parts",
        "parts/bolt",
        "widgets",
        "widgets/none",
        "widgets?fieldSelector=metadata.name%3Dparts",
    ] {
        all.push((format!("{custom}/{path}"), ANY));
    }
    all.push((format!("/apis/example.com/v1/widgets?{WATCH}"), ANY));
    // Reads by name, by a selector of the name, and by watch.
    all.push((format!("{base}/secrets/hidden"), METADATA));
    all.push((format!("{base}/secrets/none"), METADATA));
    all.push((format!("{base}/secrets"), METADATA_LIST));
    all.push((format!("{base}/secrets?fieldSelector=metadata.name%3Dhidden"), METADATA_LIST));
    all.push((format!("{base}/secrets?{WATCH}&fieldSelector=metadata.name%3Dhidden"), METADATA));
    all.push((format!("/api/v1/secrets?{WATCH}"), METADATA));
    for path in [base.clone(), other, "/api/v1/namespaces".to_owned()] {
        all.push((path, ANY));
    }
    all.push((format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{a}"), ANY));
    all
}

/// Paths that two parsers could read differently.
fn oddities(a: &str, b: &str) -> Vec<PathAndAccept> {
    let (base, other) = (format!("/api/v1/namespaces/{a}"), format!("/api/v1/namespaces/{b}"));
    let parts = "/apis/example.com/v1";
    let paths = [
        format!("{base}/../{b}/configmaps"),
        format!("{base}/%2e%2e/{b}/configmaps/red"),
        format!("{base}%2F..%2F{b}/configmaps"),
        format!("{base}%2f%2e%2e%2f{b}/configmaps"),
        format!("{base}%252F..%252F{b}/configmaps"),
        format!("{base};{b}/configmaps"),
        format!("{base}/configmaps;x/red"),
        format!("{base}/configmaps/red;x"),
        format!("{base}/configmaps/..;/{b}/configmaps"),
        format!("{base}/configmaps/red%3Fwatch=1"),
        format!("{base}/configmaps/red%00"),
        format!("{base}/configmaps/red%0a"),
        format!("{base}/configmaps/.."),
        format!("{base}/configmaps/%2e"),
        format!("{base}/configmaps%5c..%5csecrets"),
        format!("{base}/configmaps/red/../../secrets/hidden"),
        format!("{base}//configmaps/red"),
        format!("{base}/configmaps//red"),
        format!("{base}/configmaps/red//"),
        format!("//api/v1/namespaces/{b}/configmaps"),
        format!("/./api/v1/namespaces/{b}/configmaps"),
        format!("/api/v1/namespaces//{b}/configmaps"),
        format!("/api/v1//namespaces/{b}/configmaps"),
        format!("/API/v1/namespaces/{b}/configmaps"),
        format!("/api/v1/Namespaces/{b}/configmaps"),
        format!("/api/v1/namespaces/{}/configmaps", b.to_uppercase()),
        format!("/api/v1/watch/namespaces/{b}/configmaps?timeoutSeconds=1"),
        format!("/api/v1/watch/namespaces/{a}/secrets/hidden?timeoutSeconds=1"),
        format!("/api/v1/proxy/namespaces/{b}/configmaps/red"),
        format!("{other}/configmaps/red/status"),
        format!("{parts}/parts/../widgets"),
        format!("{parts}/parts%2F..%2Fwidgets"),
        format!("{parts}/namespaces/{a}/parts/../widgets"),
        format!("{parts}/namespaces/{a}/parts/..%2fwidgets"),
        format!("{parts}/namespaces/{a}/parts/bolt/../../widgets"),
        format!("{parts}/namespaces/{a}/parts;widgets"),
        format!("/profiles/{a}/../api/v1/namespaces/{b}/configmaps"),
        format!("/profiles/{a}%2Fx/api/v1/namespaces/{b}/configmaps"),
    ];
    let queries = [
        "watch=perhaps&timeoutSeconds=1",
        "watch=false&watch=true&timeoutSeconds=1",
        "fieldSelector=metadata.name%3D%3Dred",
        "fieldSelector=metadata.name%3D..",
        "fieldSelector=metadata.name%3Da%252Fred",
        "fieldSelector=metadata.name%20%3Dred",
        "fieldSelector=metadata.name%3Dred,",
        "fieldSelector=,metadata.name%3Dred",
        "fieldSelector=metadata.name%3Dred%5C,x",
        "fieldselector=metadata.name%3Dred",
        "fieldSelector=metadata.name%3Dred;watch=1",
        "labelSelector=app%3Dweb&labelSelector=app%3Dapi",
        "limit=-1&fieldSelector=metadata.name%3Dred",
        "resourceVersion=x&fieldSelector=metadata.name%3Dred",
    ];
    let collection = format!("{base}/configmaps");
    let queries = queries.map(|query| format!("{collection}?{query}"));
    paths.into_iter().chain(queries).map(|path| (path, ANY)).collect()
}

/// The answer to a reader: namespace and name of each object, or code and body of an error.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Objects(BTreeSet<String>),
    Said(u16, Value),
}

impl Shown {
    const fn code(&self) -> u16 {
        match self {
            Self::Objects(_) => 200,
            Self::Said(code, _) => *code,
        }
    }

    fn of(reply: &HttpReply) -> Self {
        if reply.code != 200 {
            return Self::Said(reply.code, reply.json());
        }
        let mut names = BTreeSet::new();
        let mut add = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            names.insert(format!("{}/{}", text("namespace"), text("name")));
        };
        for value in Deserializer::from_str(&reply.text).into_iter().flatten() {
            let value: Value = value;
            match (value["items"].as_array(), value["rows"].as_array(), &value["type"]) {
                (Some(items), _, _) => items.iter().for_each(&mut add),
                (_, Some(rows), _) => rows.iter().for_each(|row| add(&row["object"])),
                (_, _, Value::String(kind)) if kind == "BOOKMARK" => {}
                (_, _, Value::String(_)) => add(&value["object"]),
                (_, _, _) => add(&value),
            }
        }
        Self::Objects(names)
    }
}

/// Creates the accounts with their permissions and returns their tokens. All of them may read
/// `profile`.
fn appoint(place: &ComparedServers<'_>) -> Result<BTreeMap<&'static str, String>, Failure> {
    let ComparedServers { world, profile, a, .. } = place;
    let mut tokens = BTreeMap::new();
    let mut all = Vec::new();
    let authority = "rbac.authorization.k8s.io";
    let mut grant = |name: &str, namespace: Option<&str>, rules: &str, subject: &str| {
        let (kind, field) = match namespace {
            Some(namespace) => ("", format!(", namespace: {namespace}")),
            None => ("Cluster", String::new()),
        };
        let api = format!("apiVersion: {authority}/v1");
        all.push(format!(
            "{{{api}, kind: {kind}Role, metadata: {{name: {name}{field}}}, rules: [{rules}]}}"
        ));
        all.push(format!(
            "{{{api}, kind: {kind}RoleBinding, metadata: {{name: {name}{field}}}, subjects: [{subject}], \
             roleRef: {{apiGroup: {authority}, kind: {kind}Role, name: {name}}}}}"
        ));
    };
    for AccountRights { account: name, is_everywhere, rules } in READERS {
        // The names have a prefix, because other accounts with the names in `READERS` have other
        // permissions.
        let reader = format!("some-{name}");
        let subject = format!("{{kind: ServiceAccount, name: {reader}, namespace: {a}}}");
        grant(&reader, (!is_everywhere).then_some(a), rules, &subject);
        tokens.insert(*name, account(world, a, &reader)?);
    }
    let (home, profile) = profile.split_once('/').ok_or("no namespace")?;
    let rule = format!(
        "{{apiGroups: [kubewarm.io], resources: [cacheprofiles], resourceNames: [{profile}], verbs: [get]}}"
    );
    let group =
        format!("{{apiGroup: {authority}, kind: Group, name: 'system:serviceaccounts:{a}'}}");
    grant("see-profile", Some(home), &rule, &group);
    world.cluster.apply(&format!("{{apiVersion: v1, kind: List, items: [{}]}}", all.join(", ")))?;
    Ok(tokens)
}

/// The answers to one reader: of kubewarm, of kubewarm at the profile's own path, and of the API
/// server.
fn all_shown(
    place: &ComparedServers<'_>,
    token: &str,
    requests: &[PathAndAccept],
) -> Result<[Vec<Shown>; 3], String> {
    let below = format!("/profiles/{}", place.profile);
    let ask = |server: &Server, before: &str| -> Result<Vec<Shown>, String> {
        let shown = requests.iter().map(|(path, accept)| {
            let path = format!("{before}{path}");
            let reply = server.get_as(token, &path, accept);
            Ok(Shown::of(&reply.map_err(|error| format!("{path}: {error}"))?))
        });
        shown.collect()
    };
    thread::scope(|scope| {
        let sources = [(place.reads, ""), (place.reads, &*below), (place.api, "")];
        let asking = sources.map(|(server, before)| scope.spawn(move || ask(server, before)));
        let mut shown = asking.map(|thread| thread.join().map_err(|_| "a thread ended".to_owned()));
        let mut next = |at: usize| std::mem::replace(&mut shown[at], Err(String::new()))?;
        Ok([next(0)?, next(1)?, next(2)?])
    })
}

pub(crate) fn get_what_they_may_read(place: &ComparedServers<'_>) -> Outcome {
    let tokens = appoint(place)?;
    let results: Vec<_> = thread::scope(|scope| {
        let asking = tokens.iter().map(|(name, token)| {
            let same = move || {
                let same = eventually(DECISION_REFRESH, || Ok(answered_alike(place, token)?));
                same.map_err(|error| format!("{name}: {error}"))
            };
            (*name, scope.spawn(same))
        });
        let asking: Vec<_> = asking.collect();
        asking.into_iter().map(|(name, thread)| (name, thread.join())).collect()
    });
    for (name, joined) in results {
        let codes = joined.map_err(|_| format!("{name}: a thread ended"))??;
        assert!(codes[&403] > 0, "{name} may do everything: {codes:?}");
        assert_eq!(codes.contains_key(&200), name != "denied", "{name}: {codes:?}");
    }
    a_caller_without_permission_learns_nothing(place, &tokens)
}

/// Counts the API server's status codes, and fails if kubewarm's answers differ.
fn answered_alike(
    place: &ComparedServers<'_>,
    token: &str,
) -> Result<BTreeMap<u16, usize>, String> {
    let mut all = requests(place.a, place.b);
    let alike = all.len();
    all.extend(oddities(place.a, place.b));
    let [ours, by_profile, theirs] = all_shown(place, token, &all)?;
    let mut codes = BTreeMap::new();
    let mut different = Vec::new();
    for (at, (path, accept)) in all.iter().enumerate() {
        let their = &theirs[at];
        let is_odd = at >= alike;
        let may_be = |shown: &Shown| {
            let is_refused = matches!(shown, Shown::Said(400..=499, _));
            shown == their || (is_odd && is_refused)
        };
        if !may_be(&ours[at]) || !may_be(&by_profile[at]) {
            different.push(format!(
                "{path} ({accept})\n  ours: {:?}\n  by profile: {:?}\n  theirs: {their:?}",
                ours[at], by_profile[at]
            ));
        }
        if !is_odd {
            *codes.entry(their.code()).or_default() += 1;
        }
    }
    if different.is_empty() { Ok(codes) } else { Err(different.join("\n")) }
}

/// A refusal reveals neither whether an object exists, nor what is warm, nor others' permissions.
fn a_caller_without_permission_learns_nothing(
    place: &ComparedServers<'_>,
    tokens: &BTreeMap<&'static str, String>,
) -> Outcome {
    let ComparedServers { reads, api, a, .. } = place;
    let one = |kind: &str, name: &str| format!("/api/v1/namespaces/{a}/{kind}/{name}");
    for reader in ["denied", "of-hidden", "of-red-everywhere", "lister"] {
        let token = &tokens[reader];
        let refusal = |kind: &str, name: &str| -> Result<String, Failure> {
            let reply = reads.get(token, &one(kind, name))?;
            assert_eq!(reply.code, 403, "{reader}: {reply:?}");
            Ok(reply.text.replace(kind, "KIND").replace(name, "NAME"))
        };
        let expected = refusal("configmaps", "blue")?;
        for (kind, name) in [("configmaps", "none"), ("limitranges", "none"), ("nothings", "none")]
        {
            assert_eq!(refusal(kind, name)?, expected, "{reader}: {kind}/{name}");
        }
    }
    // A decision about one reader does not apply to another reader. Headers with which a proxy
    // names a user have no effect.
    let path = one("configmaps", "red");
    for _ in 0..3 {
        for (reader, code) in [("tenant", 200), ("denied", 403), ("getter", 200), ("lister", 403)] {
            assert_eq!(reads.get(&tokens[reader], &path)?.code, code, "{reader}");
        }
    }
    let bearer = format!("Bearer {}", tokens["denied"]);
    let tenant = format!("system:serviceaccount:{a}:some-tenant");
    let headers = [
        ("authorization", &*bearer),
        ("x-remote-user", &tenant),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
    ];
    let (ours, theirs) = (reads.ask("GET", &path, &headers)?, api.ask("GET", &path, &headers)?);
    assert_eq!((ours.code, ours.json()), (403, theirs.json()));
    Ok(())
}
