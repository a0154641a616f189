//! Counts the requests that kubewarm sends for three hundred profiles with a hundred
//! ServiceAccounts.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operator::{NAMESPACE, Operator};
use crate::world::{Failure, Outcome, World, eventually};

const NAMESPACES: usize = 10;
const ACCOUNTS: usize = 10;
const KINDS: [&str; 3] = ["configmaps", "services", "limitranges"];
const PROFILES: usize = NAMESPACES * ACCOUNTS * KINDS.len();
/// Timeout: ten times what the profiles need to become authorized.
const PATIENCE: Duration = Duration::from_mins(15);
/// The time in which the test counts requests at the end.
const CALM: Duration = Duration::from_mins(1);
/// The kinds of counted requests. The audit log cannot distinguish consistent lists of informers
/// from access checks, so both count as checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CountedRequest {
    Token,
    Check,
    Review,
}

/// The requests for tokens and for access checks in the audit log.
fn sent(world: &World) -> Result<Vec<CountedRequest>, Failure> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let mut requests = Vec::new();
    for line in log.lines() {
        let request: Value = serde_json::from_str(line)?;
        let text = |at: &str| request.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (uri, user) = (text("/requestURI"), text("/user/username"));
        if !user.starts_with("system:serviceaccount:") || text("/stage") == "ResponseStarted" {
            continue;
        }
        let what = if uri.contains("/serviceaccounts/") && uri.contains("/token") {
            CountedRequest::Token
        } else if uri.contains("/selfsubjectrulesreviews")
            || uri.contains("/selfsubjectaccessreviews")
        {
            CountedRequest::Review
        } else if uri.contains("limit=1&")
            || uri.ends_with("limit=1")
            || uri.ends_with("&timeoutSeconds=1")
        {
            CountedRequest::Check
        } else {
            continue;
        };
        requests.push(what);
    }
    Ok(requests)
}

/// The objects of a tenant: ServiceAccounts of a namespace, their permissions, the operator's
/// permission to request their tokens, and their profiles.
fn tenant(namespace: &str) -> Result<String, std::fmt::Error> {
    let rbac = "apiVersion: rbac.authorization.k8s.io/v1";
    let mut all = format!(
        "{rbac}
kind: Role
metadata: {{name: crowd, namespace: {namespace}}}
rules:
- {{apiGroups: [''], resources: [{}], verbs: [list, watch]}}
---
{rbac}
kind: RoleBinding
metadata: {{name: crowd, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: crowd}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:serviceaccounts:{namespace}'}}]
---
{rbac}
kind: Role
metadata: {{name: tokens, namespace: {namespace}}}
rules:
- {{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}}
---
{rbac}
kind: RoleBinding
metadata: {{name: tokens, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tokens}}
subjects: [{{kind: ServiceAccount, name: kubewarm, namespace: {NAMESPACE}}}]
",
        KINDS.join(", ")
    );
    for account in 0..ACCOUNTS {
        write!(
            all,
            "---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader-{account}, namespace: {namespace}}}
"
        )?;
        for kind in KINDS {
            write!(
                all,
                "---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: {kind}-{account}, namespace: {namespace}}}
spec: {{serviceAccountName: reader-{account}, targets: [{{name: all, resource: {kind}}}]}}
"
            )?;
        }
    }
    Ok(all)
}

/// The number of authorized profiles.
fn authorized(world: &World) -> Result<usize, Failure> {
    let path =
        "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Authorized')].status} {end}";
    let states = world.cluster.run(["get", "cprof", "-A", "-o", path])?;
    Ok(states.split_whitespace().filter(|state| *state == "True").count())
}

#[test]
fn three_hundred_profiles_send_no_more_requests_than_documented() -> Outcome {
    let world = World::alone()?;
    for _ in 0..NAMESPACES {
        let namespace = world.namespace("crowd")?;
        world.cluster.apply(&tenant(&namespace)?)?;
    }
    let _operator = Operator::start(&world)?;
    let started = Instant::now();
    eventually(PATIENCE, || match authorized(&world)? {
        PROFILES => Ok(()),
        some => Err(format!("{some} of {PROFILES} are authorized").into()),
    })?;
    let before = sent(&world)?;
    let count =
        |sent: &[CountedRequest], what| sent.iter().filter(|request| **request == what).count();
    let summary = |sent: &[CountedRequest]| {
        let [tokens, checks, reviews] =
            [CountedRequest::Token, CountedRequest::Check, CountedRequest::Review]
                .map(|what| count(sent, what));
        format!("{tokens} tokens, {checks} requests of access checks, {reviews} reviews")
    };
    let counts = summary(&before);
    // Each ServiceAccount needs one token. On a busy machine, the log once contained one of the
    // requests twice.
    let each = NAMESPACES * ACCOUNTS;
    let tokens = count(&before, CountedRequest::Token);
    assert!((each..=each + each / 20).contains(&tokens), "one each: {counts}");
    // The limit for each profile: three requests for its first access check, a list and a watch
    // every 5 minutes, and a consistent list each minute. Informers share such a list only if they
    // read as the same ServiceAccount.
    let minutes = usize::try_from(started.elapsed().as_secs())? / 60;
    let checks = (3 + 1 + minutes) * PROFILES + 2 * PROFILES * minutes / 5;
    assert!(count(&before, CountedRequest::Check) <= checks, "{counts} in {minutes} minutes");

    std::thread::sleep(CALM);
    let after: Vec<_> = sent(&world)?.split_off(before.len());
    let counts = summary(&after);
    assert_eq!(count(&after, CountedRequest::Token), 0, "{counts}");
    // The limit for each ServiceAccount in this minute: three rules reviews, and one that began
    // before.
    assert!(count(&after, CountedRequest::Review) <= 4 * NAMESPACES * ACCOUNTS, "{counts}");
    // The limit for each profile in this minute has two parts. A list and a watch belong to an
    // access check that is due again after five minutes. One consistent list belongs to this
    // minute, and one was due before.
    assert!(count(&after, CountedRequest::Check) <= (2 + 2) * PROFILES, "{counts}");
    assert!(count(&after, CountedRequest::Review) > 0, "{counts}");
    Ok(())
}
