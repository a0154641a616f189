//! `--forward`: a client that sends all requests to kubewarm. kubewarm answers from the cache what
//! is warm and forwards everything else with the caller's own token.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::api::{HttpReply, Served, Server, Watch, account, api_kubectl, let_read};
use crate::cases::reads::abuse::Peer;
use crate::cases::reads::tables::without_ages;
use crate::cases::reads::user_limits;
use crate::figures::informer;
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Timeout until both servers return equal responses, one after the other.
const SAME: Duration = Duration::from_secs(5);
const WARM: &str = "{targets: [
  {name: settings, resource: configmaps, scope: {type: AllNamespaces}}]}";

const SELECTED: &str = "{targets: [{name: claims, resource: persistentvolumeclaims,
  scope: {type: AllNamespaces}, labelSelector: {matchLabels: {tier: gold}}}]}";

/// A profile with the consistency `Eventual`.
fn eventual(mode: &str, namespace: &str) -> String {
    format!(
        "{{mode: {mode}, reads: {{consistency: Eventual}}, targets: [{{name: accounts,
           resource: serviceaccounts, scope: {{type: Namespaces, namespaces: [{namespace}]}}}}]}}"
    )
}

/// Returns the output of a command and whether it succeeded.
fn output_of(command: &mut Command, arguments: &[&str]) -> Result<(bool, String), Failure> {
    let output = command.args(arguments).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

struct ForwardingFixture {
    world: World,
    served: Served,
    reads: Server,
    /// The token of an account that may do everything in the namespace.
    token: String,
    /// The token of an account without permissions.
    denied: String,
    namespace: String,
}

impl ForwardingFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::lease()?;
        let served = Served::start_as_administrator(&world, &["--forward"])?;
        let namespace = world.namespace("team")?;
        let token = account(&world, &namespace, "whole")?;
        let denied = account(&world, &namespace, "denied")?;
        let_read(&world, (&namespace, "whole"), None)?;
        let owner = format!("--serviceaccount={namespace}:whole");
        world.cluster.run([
            "create",
            "rolebinding",
            "whole",
            "-n",
            &namespace,
            "--clusterrole=admin",
            &owner,
        ])?;
        let profile = Profile::apply(&world, NAMESPACE, "settings", WARM)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let reads = served.server()?;
        Ok(Self { world, served, reads, token, denied, namespace })
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String, Failure> {
        match output_of(&mut self.served.kubectl(&self.world, &self.token)?, arguments)? {
            (true, text) => Ok(text),
            (false, text) => Err(format!("{arguments:?}: {text}").into()),
        }
    }
}

#[test]
fn a_whole_client_points_at_kubewarm() -> Outcome {
    let scene = ForwardingFixture::start()?;
    requests_are_forwarded_as_the_caller(&scene)?;
    a_writer_reads_what_it_wrote(&scene)?;
    a_dry_run_write_delays_no_read(&scene)?;
    reads_do_not_wait_for_a_write_that_never_arrives(&scene)?;
    kubectl_does_everything(&scene)?;
    watches_of_undeclared_kinds_are_forwarded(&scene)?;
    connection_headers_are_not_forwarded(&scene)?;
    redirects_are_answers(&scene)?;
    too_large_bodies_are_rejected(&scene)?;
    let path = |kind: &str| format!("/api/v1/namespaces/{}/{kind}", scene.namespace);
    let callers = (&*scene.token, &*scene.denied);
    let paths = (&*path("services"), &*path("configmaps/own-1"));
    user_limits::forwarded_requests_are_limited_per_caller(&scene.served, callers, paths)?;
    a_browser_shows_its_token_as_a_subprotocol(&scene)?;
    a_request_that_would_be_anonymous_is_not_forwarded(&scene)?;
    nothing_is_forwarded_without_a_token(&scene)
}

/// The operator has the administrator's client certificate. kubewarm must not use this certificate
/// for callers' requests.
fn requests_are_forwarded_as_the_caller(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, reads, token, denied, namespace, .. } = scene;
    let name = format!("system:serviceaccount:{namespace}:whole");
    let fetch_own_subject =
        scene.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])?;
    assert_eq!(fetch_own_subject, name);
    let ours = output_of(&mut scene.served.kubectl(world, denied)?, &["get", "nodes"])?;
    let theirs = output_of(&mut api_kubectl(world, denied)?, &["get", "nodes"])?;
    assert!(!ours.0, "{ours:?}");
    assert_eq!(ours, theirs);
    let create = ["create", "configmap", "x", "-n", namespace];
    let ours = output_of(&mut scene.served.kubectl(world, denied)?, &create)?;
    assert!(!ours.0 && ours.1.contains(&format!("{namespace}:denied")), "{ours:?}");
    // The API server rejects an impersonation that is forbidden. kubewarm must not ignore the
    // headers and answer as the caller itself.
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("impersonate-user", "admin")];
    for path in ["/api/v1/configmaps", "/api/v1/nodes"] {
        let reply = reads.ask("GET", path, &headers)?;
        assert_eq!(reply.code, 403, "{reply:?}");
        assert!(reply.text.contains("cannot impersonate"), "{reply:?}");
    }
    Ok(())
}

fn a_writer_reads_what_it_wrote(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { reads, token, namespace, .. } = scene;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut ours = 0;
    for n in 0..50 {
        let name = format!("own-{n}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let written = reads.write(token, ("POST", &path), &object)?;
        assert_eq!(written.code, 201, "{written:?}");
        let reply = reads.get(token, &format!("{path}/{name}"))?;
        assert_eq!(reply.code, 200, "the written object is missing: {reply:?}");
        ours += usize::from(!reply.header("kubewarm-informer").is_empty());
        let all = reads.get(token, &path)?.json();
        let mut objects = all["items"].as_array().into_iter().flatten();
        assert!(objects.any(|object| object["metadata"]["name"] == *name), "{name}");
    }
    assert_eq!(ours, 50, "the reads were not served from the cache");
    Ok(())
}

/// The API server answers a dry-run write with the version that the client put into the object. No
/// read may wait for this version, because nothing was written.
fn a_dry_run_write_delays_no_read(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { reads, token, namespace, .. } = scene;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let metadata = json!({"name": "tried", "resourceVersion": u64::MAX.to_string()});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let dry_run = reads.write(token, ("POST", &format!("{path}?dryRun=All")), &object)?;
    assert_eq!(dry_run.code, 201, "{dry_run:?}");
    assert_eq!(dry_run.json()["metadata"]["resourceVersion"], u64::MAX.to_string(), "{dry_run:?}");
    for path in [path.clone(), format!("{path}/own-0")] {
        let reply = reads.get(token, &path)?;
        assert_eq!(reply.code, 200, "{reply:?}");
        assert!(!reply.header("kubewarm-informer").is_empty(), "not served from the cache");
    }
    Ok(())
}

/// Reads must not wait for writes that never reach the store. Such writes are to objects outside of
/// the selector, or while an eventual profile is paused.
fn reads_do_not_wait_for_a_write_that_never_arrives(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, served, reads, token, namespace, .. } = scene;
    let selected = Profile::apply(world, NAMESPACE, "selected", SELECTED)?;
    selected.await_condition("Ready", "True", None, SOON)?;
    let profile = Profile::apply(world, NAMESPACE, "held", &eventual("Active", namespace))?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Profile::apply(world, NAMESPACE, "held", &eventual("Paused", namespace))?;
    eventually(SOON, || {
        let informer = informer(&served.operator, namespace, "serviceaccounts")?;
        if informer["state"] == "Paused" { Ok(()) } else { Err(format!("{informer:#}").into()) }
    })?;

    let collection = |kind: &str| format!("/api/v1/namespaces/{namespace}/{kind}");
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for (kind, query, object) in [
        ("persistentvolumeclaims", "?labelSelector=tier%3Dgold", json!({"spec": claim})),
        ("serviceaccounts", "", json!({})),
    ] {
        let (path, mut object) = (collection(kind), object);
        object["metadata"] = json!({"name": "outside"});
        let written = reads.write(token, ("POST", &path), &object)?;
        assert_eq!(written.code, 201, "{written:?}");
        // A read that waited for the write would end with 504.
        let read = reads.get(token, &format!("{path}{query}"))?;
        assert_eq!(read.code, 200, "{read:?}");
        assert!(
            !read.header("kubewarm-informer").is_empty(),
            "not served from the cache: {read:?}"
        );
        assert!(!read.text.contains(r#""outside""#), "{read:?}");
    }
    Ok(())
}

fn kubectl_does_everything(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, namespace, token, .. } = scene;
    let n = &**namespace;
    let file = world.cluster.folder().join("forwarded.yaml");
    std::fs::write(
        &file,
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, \
         selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, \
         spec: {containers: [{name: c, image: example.com/none}]}}}}",
    )?;
    let file = file.to_string_lossy();
    for arguments in [
        &["apply", "-f", &file, "-n", n] as &[&str],
        &["apply", "--server-side", "--force-conflicts", "-f", &file, "-n", n],
        &["wait", "--for=jsonpath={.spec.replicas}=0", "deployment/web", "-n", n, "--timeout=30s"],
    ] {
        scene.kubectl(arguments)?;
    }
    kubectl_output_is_the_same(scene)?;
    for arguments in [
        &["scale", "deployment", "web", "--replicas=1", "-n", n] as &[&str],
        &["label", "configmap", "own-1", "a=b", "-n", n],
        &["delete", "configmap", "own-2", "-n", n, "--wait=true"],
        &["delete", "deployment", "web", "-n", n],
    ] {
        scene.kubectl(arguments)?;
    }
    let labelled = scene.kubectl(&["get", "cm", "-l", "a=b", "-n", n, "-o", "name"])?;
    assert_eq!(labelled.trim(), "configmap/own-1");
    // The node has no kubelet. So the API server answers these requests with errors, which kubewarm
    // must forward.
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: none, \
               automountServiceAccountToken: false, containers: [{name: c, image: example.com/none}]}}";
    let path = world.cluster.folder().join("pod.yaml");
    std::fs::write(&path, pod)?;
    scene.kubectl(&["apply", "-f", &path.to_string_lossy(), "-n", n])?;
    for arguments in [
        &["logs", "p", "-n", n] as &[&str],
        &["exec", "p", "-n", n, "--", "true"],
        &["attach", "p", "-n", n, "--pod-running-timeout=5s"],
        &["port-forward", "pod/p", "1:1", "-n", n],
    ] {
        let ours = output_of(&mut scene.served.kubectl(world, token)?, arguments)?;
        let theirs = output_of(&mut api_kubectl(world, token)?, arguments)?;
        assert_eq!(ours, theirs, "{arguments:?}");
        assert!(!ours.0, "{ours:?}");
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let kinds = ["api-resources", "-o", "name"];
    let theirs = output_of(&mut api_kubectl(world, token)?, &kinds)?;
    assert_eq!(lines(&scene.kubectl(&kinds)?), lines(&theirs.1));
    Ok(())
}

/// Compares kubectl's output through kubewarm with its output at the API server, for resources that
/// kubewarm caches or forwards. The comparison repeats, because a controller may write between the
/// two.
fn kubectl_output_is_the_same(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, served, token, namespace, .. } = scene;
    let n = &**namespace;
    let as_it_is = str::to_owned as fn(&str) -> String;
    for (arguments, shown) in [
        (&["get", "deployments", "-n", n] as &[&str], without_ages as fn(&str) -> String),
        (&["get", "deployments", "-n", n, "-o", "yaml"], as_it_is),
        (&["describe", "deployment", "web", "-n", n], without_ages),
        (&["describe", "configmap", "own-1", "-n", n], as_it_is),
        (&["explain", "deployments.spec"], as_it_is),
    ] {
        eventually(SAME, || {
            let ours = output_of(&mut served.kubectl(world, token)?, arguments)?;
            let theirs = output_of(&mut api_kubectl(world, token)?, arguments)?;
            if ours.0 && theirs.0 && shown(&ours.1) == shown(&theirs.1) {
                return Ok(());
            }
            Err(format!("{arguments:?}\nours: {}\ntheirs: {}", ours.1, theirs.1).into())
        })?;
    }
    Ok(())
}

/// The API server serves a watch of a kind that no profile declares, event by event, including
/// status updates.
fn watches_of_undeclared_kinds_are_forwarded(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, reads, token, namespace, .. } = scene;
    let api = Server::api(world)?;
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let query = format!("{path}?watch=true&resourceVersion=0&allowWatchBookmarks=true");
    let watches = [reads, &api].map(|server| server.watch(token, &query, "application/json"));
    let [ours, theirs] = watches;
    let (ours, theirs) = (ours?, theirs?);
    assert_eq!((ours.code, theirs.code), (200, 200));
    assert!(ours.headers.get("kubewarm-informer").is_none(), "{:?}", ours.headers);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    assert_eq!(reads.write(token, ("POST", &path), &service)?.code, 201);

    // The caller may write a Service, but not its status. kubewarm forwards the request, and the
    // API server decides.
    let status = format!("{path}/front/status");
    let balanced =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}});
    let refused = reads.write(token, ("PATCH", &status), &balanced)?;
    assert_eq!((refused.code, &refused.json()["reason"]), (403, &json!("Forbidden")));
    let role = ["role", "status", "--verb=get,patch", "--resource=services/status"];
    world.cluster.run([&["create", "-n", namespace], &role[..]].concat())?;
    let whole = format!("--serviceaccount={namespace}:whole");
    let binding = ["create", "rolebinding", "status", "-n", namespace, "--role=status", &whole];
    world.cluster.run(binding)?;
    eventually(SOON, || {
        let written = reads.write(token, ("PATCH", &status), &balanced)?;
        if written.code == 200 { Ok(()) } else { Err(format!("{written:?}").into()) }
    })?;
    let object = api.get(token, &status)?.json();
    assert_eq!(object["status"], balanced["status"], "{object}");
    assert_eq!(reads.get(token, &status)?.json(), object);

    let gone = reads.write(token, ("DELETE", &format!("{path}/front")), &json!({}))?;
    assert_eq!(gone.code, 200, "{gone:?}");
    let changes = |watch: &Watch| -> Vec<Value> {
        watch.events().into_iter().filter(|event| event["type"] != "BOOKMARK").collect()
    };
    eventually(SOON, || {
        let (ours, theirs) = (changes(&ours), changes(&theirs));
        let is_gone = theirs.last().is_some_and(|event| event["type"] == "DELETED");
        if is_gone && ours == theirs {
            return Ok(());
        }
        Err(format!("ours: {ours:?}\ntheirs: {theirs:?}").into())
    })?;
    let balanced = |event: &Value| event["object"]["status"] == balanced["status"];
    assert!(changes(&ours).iter().any(balanced), "{:?}", changes(&ours));
    assert!(!ours.is_over());
    Ok(())
}

/// Sends a request with a token and two more headers.
fn send(
    server: &Server,
    token: &str,
    (method, path): (&str, &str),
    [first, second]: [(&str, &str); 2],
) -> Result<HttpReply, Failure> {
    let bearer = format!("Bearer {token}");
    server.ask(method, path, &[("authorization", &bearer), first, second])
}

/// kubewarm does not forward headers that `Connection` names, nor an `Upgrade` to an unknown
/// protocol.
fn connection_headers_are_not_forwarded(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, reads, token, namespace, .. } = scene;
    let api = Server::api(world)?;
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let of_services = ("GET", &*services);
    let table = ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    for (connection, kind) in [("keep-alive", "Table"), ("keep-alive, Accept", "ServiceList")] {
        let headers = [table, ("connection", connection)];
        let [ours, theirs] = [reads, &api].map(|server| send(server, token, of_services, headers));
        assert_eq!(theirs?.json()["kind"], "Table", "{connection}");
        assert_eq!(ours?.json()["kind"], kind, "{connection}");
    }
    // A `Connection` header must not remove the headers with the caller's identity, because
    // the API server would then act for another user than these headers name.
    let named = ("connection", "Authorization, Impersonate-User");
    let reply = send(reads, token, of_services, [named, ("impersonate-user", "admin")])?;
    assert!(reply.code == 403 && reply.text.contains("cannot impersonate"), "{reply:?}");

    // The pod's node has an address like a kubelet's. So the API server tries to open a connection
    // that changes protocols there.
    world.cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: none}}")?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    }});
    let patch = ["patch", "node", "none", "--subresource=status", "--type=merge", "--patch"];
    world.cluster.run([&patch[..], &[&status.to_string()]].concat())?;
    let exec = format!("/api/v1/namespaces/{namespace}/pods/p/exec?command=true&stdout=true");
    let change = [("connection", "Upgrade"), ("upgrade", "example")];
    let [ours, theirs] = [reads, &api].map(|server| send(server, token, ("POST", &exec), change));
    let (ours, theirs) = (ours?, theirs?);
    let status = ours.json();
    let error = (ours.code, &status["message"]);
    assert_eq!(error, (400, &json!("Upgrade request required")), "{ours:?}");
    assert!(theirs.code == 500 && theirs.text.contains("127.0.0.1:1"), "{theirs:?}");
    Ok(())
}

fn redirects_are_answers(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, reads, token, .. } = scene;
    let older = "/openapi/v3/apis/apps/v1?hash=ABC";
    let (ours, theirs) = (reads.get(token, older)?, Server::api(world)?.get(token, older)?);
    assert_eq!((ours.code, &ours.text), (301, &theirs.text), "{ours:?}");
    assert_eq!(ours.header("location"), theirs.header("location"));
    assert!(ours.header("location").starts_with("/openapi/v3/apis/apps/v1?hash="), "{ours:?}");
    Ok(())
}

/// The API server rejects bodies over 3 MiB, kubewarm rejects forwarded bodies over 16 MiB.
fn too_large_bodies_are_rejected(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, served, reads, token, namespace, .. } = scene;
    let api = Server::api(world)?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let config_map = |bytes: usize| {
        let metadata = json!({"name": format!("of-{bytes}")});
        let data = json!({"text": "x".repeat(bytes)});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    };
    let large = config_map(1_000_000);
    assert_eq!(reads.write(token, ("POST", &path), &large)?.code, 201);
    let object = api.get(token, &format!("{path}/of-1000000"))?.json();
    assert!(object["data"] == large["data"], "the stored data differs from the sent data");
    // The body is only slightly too large. So both servers read all of it, and the client can
    // receive their responses.
    let larger = config_map(3 << 20);
    let [ours, theirs] = [reads, &api].map(|server| server.write(token, ("POST", &path), &larger));
    let (ours, theirs) = (ours?, theirs?);
    assert_eq!((ours.code, ours.json()), (413, theirs.json()));

    let length = (16 << 20) + 1;
    let announced = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    // kubewarm answers before it reads the body.
    let peer = Peer::of(served, token)?;
    let answer = Runtime::new()?.block_on(peer.send(announced.as_bytes(), SOON));
    let answer = answer.map_err(|fault| fault.to_string())?.ok_or("no answer")?;
    let status: Value = serde_json::from_slice(&answer.body)?;
    let error = (answer.code, &status["reason"], &status["message"]);
    let larger = json!("the body is larger than 16777216 bytes");
    assert_eq!(error, (413, &json!("RequestEntityTooLarge"), &larger), "{status}");
    Ok(())
}

/// The answer to a browser's WebSocket for `path`, with a base protocol and more subprotocols.
fn browser(
    scene: &ForwardingFixture,
    (token, path): (&str, &str),
    (protocol, others): (&str, &str),
) -> Result<(u16, String), Failure> {
    let shown = serde_json::to_value(ByteString(token.as_bytes().to_vec()))?;
    let shown = shown.as_str().unwrap_or_default().trim_end_matches('=').to_owned();
    let shown = shown.replace('+', "-").replace('/', "_");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nOrigin: https://x\r\nConnection: Upgrade\r\n\
         Upgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {others}base64url.bearer.authorization.k8s.io.{shown}\r\n\r\n"
    );
    let peer = Peer::of(&scene.served, token)?;
    let answer = Runtime::new()?.block_on(peer.send(request.as_bytes(), SOON));
    let answer = answer.map_err(|fault| fault.to_string())?.ok_or("no answer")?;
    Ok((answer.code, format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body))))
}

fn a_browser_shows_its_token_as_a_subprotocol(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { token, denied, namespace, .. } = scene;
    let path = format!("/api/v1/namespaces/{namespace}/secrets?watch=true&timeoutSeconds=1");
    let websocket = ("websocket", "example, ");
    let (code, answer) = browser(scene, (token, &path), websocket)?;
    assert_eq!(code, 101, "{answer}");
    assert!(answer.to_lowercase().contains("sec-websocket-protocol: example\r\n"), "{answer}");
    let (code, answer) = browser(scene, (denied, &path), websocket)?;
    assert!(code == 403 && answer.contains(&format!("{namespace}:denied")), "{answer}");
    let (code, answer) = browser(scene, ("made-up", &path), websocket)?;
    assert_eq!(code, 401, "{answer}");
    Ok(())
}

/// The API server answers `/version` even without credentials. kubewarm must not forward such a
/// request, which would be anonymous.
fn a_request_that_would_be_anonymous_is_not_forwarded(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { world, reads, token, .. } = scene;
    let spaced = format!("Bearer  {token}");
    let headers = [("authorization", &*spaced)];
    assert_eq!(Server::api(world)?.ask("GET", "/version", &headers)?.code, 200);
    assert_eq!(reads.ask("GET", "/version", &headers)?.code, 401);
    let sent_on = reads.ask("POST", "/version", &headers)?;
    assert_eq!((sent_on.code, &sent_on.json()["reason"]), (403, &json!("CannotForward")));
    for (protocol, others, expected) in [
        ("SPDY/3.1", "example, ", 403),
        ("websocket", "", 403),
        // This is no valid upgrade, so kubewarm handles it as a read.
        ("websocket, x", "example, ", 401),
    ] {
        let (code, answer) = browser(scene, (token, "/version"), (protocol, others))?;
        assert_eq!(code, expected, "{protocol} {others}: {answer}");
    }
    Ok(())
}

fn nothing_is_forwarded_without_a_token(scene: &ForwardingFixture) -> Outcome {
    let ForwardingFixture { reads, namespace, .. } = scene;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/own-1");
    for headers in [&[] as &[(&str, &str)], &[("x-remote-user", "admin")]] {
        let reply = reads.ask("DELETE", &path, headers)?;
        assert_eq!((reply.code, &reply.json()["reason"]), (403, &json!("CannotForward")));
    }
    let (_, metrics) = scene.served.operator.ask("/metrics")?;
    let counted = r#"kubewarm_read_requests_total{code="403",group="",handler="forward",outcome="rejected",resource="",version=""}"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(!scene.served.operator.process.log().contains(&scene.token), "a token is logged");
    Ok(())
}
