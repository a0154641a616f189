//! The command `get` reads objects from kubewarm's stores, and can compare them with the API
//! server's objects.

mod comparison;
mod contents;
mod request;
mod response_objects;

use self::{
    comparison::{TimedResponse, comparison},
    contents::contents,
    request::{WHOLE, accept, path},
};
use super::{
    CommandError,
    cache::{self, CacheConnectionArgs},
    cluster::{ConnectionArgs, served},
    flag_values,
    output::OutputArgs,
    port_forward,
    print::{show, show_as, tell},
    profile_readiness::title,
    report::CommandExitCode,
};
use clap::Args;
use http::{HeaderMap, Uri};
use jiff::Timestamp;
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault, Resource, ResourceInfo};
use kubewarm_client::{
    ApiResponse, ApiServerConnection, ConnectionOptions, ServedResources, get_all,
    load_context_user,
};
use response_objects::ResponseObjects;
use serde_json::Value;
use std::{path::PathBuf, time::Duration};
use tokio::time::sleep;

const CODES: &str = "\
Exit codes:
  0  printed; with --compare: no difference
  1  with --compare: a difference
  2  an error";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct GetArgs {
    /// Resource by plural, singular or short name, such as pods or deployments.apps.
    pub kind: String,

    /// Object [default: all objects].
    #[arg(value_parser = object, conflicts_with_all = ["all_namespaces", "selector", "field_selector"])]
    pub name: Option<String>,

    /// Namespace of the objects [default: the context's].
    #[arg(short, long, value_parser = flag_values::namespace)]
    pub namespace: Option<String>,

    /// Read objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Label selector, such as app=web,tier!=2.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,

    /// Field selector, such as spec.nodeName=n1.
    #[arg(long, value_name = "FIELDS")]
    pub field_selector: Option<String>,

    /// Compare UID and resource version of the objects with the API server, and print both
    /// latencies. Different objects are read again after 1s, and only lasting differences are
    /// printed.
    #[arg(long)]
    pub compare: bool,

    /// Kubeconfig of the read API from `kubewarm kubeconfig`, instead of the flags of the cache.
    #[arg(
        long,
        env = "KUBEWARM_CACHE_KUBECONFIG",
        value_name = "FILE",
        conflicts_with_all = [
            "cache_server",
            "cache_profile",
            "cache_certificate_authority",
            "cache_tls_server_name",
        ]
    )]
    pub cache_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub cache: CacheConnectionArgs,

    /// Connection flags. They select the user, and the API server for `--compare`.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Parses an object name. It rejects characters that would change the path of a request.
fn object(text: &str) -> Result<String, String> {
    let is_safe = |c: char| c.is_ascii_graphic() && !"/%?#".contains(c);
    if text.is_empty() || text.chars().all(|c| c == '.') || !text.chars().all(is_safe) {
        return Err("expected the name of an object".to_owned());
    }
    Ok(text.to_owned())
}

/// Delay before `get --compare` reads differing objects again. Within this time, a change in the
/// API server normally reaches kubewarm's stores.
const SETTLING: Duration = Duration::from_secs(1);
/// Maximum number of objects per page, as in kubectl.
const PAGE: &str = "500";
/// Response header of the read API: time since kubewarm last confirmed that the data is current, in
/// milliseconds.
const FRESHNESS: &str = "kubewarm-freshness-milliseconds";

/// A client for kubewarm's read API or for the API server.
struct NamedClient {
    client: Client,
    /// Name of the server in messages.
    name: &'static str,
}

/// Prints the objects in kubewarm's stores, or with `--compare` their differences from the API
/// server's objects.
///
/// # Errors
///
/// [`CommandError`] if the read API cannot be reached, does not serve the resource, or rejects the
/// request.
pub async fn get(
    args: &GetArgs,
    now: impl Fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let (connection, api_server) = connect(args).await?;
    // This client does not retry. Retries would hide from the user that kubewarm lacks a
    // permission.
    let cache = NamedClient { client: connection.informer_client(), name: "the cache" };
    let kinds = served(cache.client.clone()).await;
    let kinds = kinds.map_err(|fault| undiscovered(connection.server(), fault))?;
    let kind = find(&kinds, &args.kind).ok_or_else(|| not_warm(&args.kind))?;
    let namespace = (kind.is_namespaced && !args.all_namespaces)
        .then(|| args.namespace.as_deref().unwrap_or_else(|| connection.namespace()));
    let path = |page: &[(&str, &str)]| path(&kind.resource, namespace, args, page);
    if args.compare {
        let api_server = match api_server {
            Some(connection) => connection,
            None => args.connection.connect()?,
        };
        let server = NamedClient { client: api_server.client(), name: "the API server" };
        return compare(&cache, &server, &path(&[]), args).await;
    }
    let pages = pages(&cache, path, accept(args.output.format)).await?;
    let (report, format) = contents(pages, kind, args, now());
    show_as(&report, format)
}

/// Finds the resource that `typed` names. `typed` is a plural, singular or short name or a kind,
/// optionally with `.group` or `.version.group`. The first match wins, in the order of the API
/// server's discovery.
fn find<'a>(served: &'a ServedResources, typed: &str) -> Option<&'a ResourceInfo> {
    let (name, place) = typed.split_once('.').unwrap_or((typed, ""));
    let is_there = |resource: &Resource| {
        place.is_empty()
            || resource.group() == place
            || place.strip_prefix(resource.version()).and_then(|rest| rest.strip_prefix('.'))
                == Some(resource.group())
    };
    served.resources().find(|info| info.is_called(name) && is_there(&info.resource))
}

/// Returns the error for a failed discovery at the read API, with the next step for the user.
fn undiscovered(server: &Uri, fault: RequestFault) -> CommandError {
    let next = match (fault.reason(), profile_of(server)) {
        (FaultReason::Unauthorized, _) => {
            "kubewarm rejected your credentials; read with the token of a ServiceAccount: write a kubeconfig \
             with --token-file of `kubewarm kubeconfig`, and pass it with --cache-kubeconfig"
                .to_owned()
        }
        (FaultReason::Forbidden, Some(profile)) => {
            format!("you need the permission to get CacheProfile {profile}, and to read the objects")
        }
        (_, _) => "could not read what the cache serves".to_owned(),
    };
    let server = server.to_string();
    CommandError::caused(format!("{}: {next}", server.trim_end_matches('/')), fault)
}

/// Returns `NAME -n NAMESPACE` of the profile in the URL of the read API, or `None` for a URL
/// without a profile.
fn profile_of(server: &Uri) -> Option<String> {
    let path = server.path().trim_end_matches('/').strip_prefix("/profiles/")?;
    path.split_once('/').map(|(namespace, name)| title(name, namespace))
}

fn not_warm(kind: &str) -> CommandError {
    CommandError::new(format!(
        "the read API serves no {kind} to you, because no selected profile keeps it warm; `kubewarm status -A` \
         lists the warm targets, --cache-profile selects a profile"
    ))
}

/// Connects to the read API with `--cache-kubeconfig`, or else with the other `--cache-*` flags.
/// Outside of a pod and without `--cache-server`, opens a port-forward to the read API.
///
/// The second value is the connection to the API server; `None` if the read API's address and CA
/// come from flags or from `--cache-kubeconfig`.
async fn connect(
    args: &GetArgs,
) -> Result<(ApiServerConnection, Option<ApiServerConnection>), CommandError> {
    args.connection.refuse_impersonation()?;
    let request_timeout = args.connection.request_timeout();
    if let Some(file) = &args.cache_kubeconfig {
        let options = ConnectionOptions { request_timeout, ..ConnectionOptions::of_file(file) };
        return Ok((ApiServerConnection::load(&options)?, None));
    }
    let CacheConnectionArgs { cache_server, service, .. } = &args.cache;
    let context = load_context_user(&args.connection.options())?;
    let connect = || args.connection.connect();
    let api_server = if args.cache.is_complete() { None } else { Some(connect()?) };
    let load = || api_server.clone().map_or_else(connect, Ok);
    let (kubeconfig, remark) = cache::kubeconfig(&args.cache, context, load).await?;
    if let Some(remark) = remark {
        tell(&remark);
    }
    // A pod can reach the read API's Service directly, so only a command outside of a pod needs a
    // port-forward.
    let is_outside = |server: &&ApiServerConnection| server.service_account_namespace().is_none();
    let streams = match api_server.as_ref().filter(is_outside) {
        Some(api_server) if cache_server.is_none() => {
            let namespace = service.operator_namespace.name();
            Some(port_forward::open(api_server, namespace, &service.cache_service).await?)
        }
        Some(_) | None => None,
    };
    let cache = ApiServerConnection::from_kubeconfig(kubeconfig, request_timeout, streams)?;
    Ok((cache, api_server))
}

/// Reads an object, or all pages of a list.
async fn pages(
    server: &NamedClient,
    path: impl Fn(&[(&str, &str)]) -> String,
    accept: &'static str,
) -> Result<Vec<Value>, CommandError> {
    let mut pages = Vec::new();
    let mut next = path(&[("limit", PAGE)]);
    loop {
        let response = server.request(&next, accept).await?;
        let page: Value = response.json().map_err(|fault| server.failed(&fault))?;
        let token = page.pointer("/metadata/continue").and_then(Value::as_str);
        let token = token.filter(|token| !token.is_empty()).map(str::to_owned);
        pages.push(page);
        let Some(token) = token else { return Ok(pages) };
        next = path(&[("limit", PAGE), ("continue", &token)]);
    }
}

/// Compares the objects of kubewarm's read API (`cache`) and of the API server (`server`). Reads
/// the API server first, so that a change between both reads can only make the data of `cache`
/// newer. If objects differ, reads `cache` and then `server` again after 1 s.
async fn compare(
    cache: &NamedClient,
    server: &NamedClient,
    path: &str,
    args: &GetArgs,
) -> Result<CommandExitCode, CommandError> {
    // These requests only open both connections, so that the later, measured latencies contain no
    // handshake.
    for target in [cache, server] {
        target.request("/version", WHOLE).await?;
    }
    let theirs = server.read(path, args).await?;
    let ours = cache.read(path, args).await?;
    let mut differences = ours.rows.differences(&theirs.rows);
    if !differences.is_empty() {
        sleep(SETTLING).await;
        let again = cache.read(path, args).await?.rows;
        let settled = server.read(path, args).await?.rows;
        differences.retain(|difference| difference.is_still(&again, &settled));
    }
    show(&comparison(&ours, &theirs, &differences), args.output.format)
}

impl NamedClient {
    /// Sends a request. It returns an error for a status other than 2xx.
    async fn request(&self, path: &str, accept: &'static str) -> Result<ApiResponse, CommandError> {
        let answer = self.send(path, accept).await?;
        if !answer.status.is_success() {
            return Err(self.failed(&answer.fault()));
        }
        Ok(answer)
    }

    async fn send(&self, path: &str, accept: &'static str) -> Result<ApiResponse, CommandError> {
        let answer = get_all(&self.client, path, accept).await;
        let answer = answer.map_err(|fault| self.failed(&fault))?;
        for warning in answer.headers.get_all(http::header::WARNING) {
            tell(&format!("{} warns: {}", self.name, warning.to_str().unwrap_or_default()));
        }
        Ok(answer)
    }

    /// Reads all objects in one response, without pages. If the named object does not exist, the
    /// result contains no objects.
    async fn read(&self, path: &str, args: &GetArgs) -> Result<TimedResponse, CommandError> {
        let answer = self.send(path, WHOLE).await?;
        let rows = if answer.status == http::StatusCode::NOT_FOUND && args.name.is_some() {
            ResponseObjects::default()
        } else {
            let objects = answer.json().map_err(|fault| self.failed(&fault))?;
            ResponseObjects::new(objects).map_err(|fault| self.failed(&fault))?
        };
        let ApiResponse { first_byte, whole, headers, body, .. } = answer;
        let (bytes, freshness) = (body.len(), freshness(&headers));
        Ok(TimedResponse { rows, first_byte, whole, bytes, freshness })
    }

    fn failed(&self, fault: &RequestFault) -> CommandError {
        let (message, reason) = (fault.message(), fault.reason());
        let is_rejected = matches!(reason, FaultReason::Unauthorized | FaultReason::Forbidden);
        let verb = if is_rejected { "rejected the request" } else { "did not answer" };
        CommandError::new(format!("{} {verb}: {message} ({reason})", self.name))
    }
}

/// Returns the time since kubewarm last confirmed that its data is current. Returns `None` for a
/// response of the API server, which does not contain this time.
fn freshness(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(FRESHNESS)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};
    use kube::client::Body;
    use std::{convert::Infallible, future::ready};
    use tower::service_fn;

    #[test]
    fn names_that_change_the_path_are_rejected() {
        for text in ["red", "system:node:n1", "a.b", "A_b"] {
            assert!(object(text).is_ok(), "{text}");
        }
        for text in ["", ".", "..", "a/b", "a%2fb", "a?b", "a#b", "a b", "é"] {
            assert!(object(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rejected_discovery_names_the_server_and_the_next_step() {
        let text = |url: &str, reason| {
            undiscovered(&url.parse().unwrap(), RequestFault::new(reason, "no")).to_string()
        };
        let plain = "https://kubewarm.kubewarm-system.svc/";
        let error = text(plain, FaultReason::Unauthorized);
        assert!(
            error.starts_with("https://kubewarm.kubewarm-system.svc: kubewarm rejected"),
            "{error}"
        );
        assert!(error.contains("--token-file"), "{error}");
        let error = text("https://localhost:8443/profiles/shop/checkout", FaultReason::Forbidden);
        assert!(error.contains("permission to get CacheProfile checkout -n shop,"), "{error}");
        for (url, reason) in [(plain, FaultReason::Forbidden), (plain, FaultReason::Unreachable)] {
            let error = text(url, reason);
            assert!(error.ends_with(": could not read what the cache serves"), "{error}");
        }
    }

    /// `kubectl get hpa` reads the same version.
    #[tokio::test]
    async fn the_first_version_in_discovery_has_the_name() {
        let scalers = r#"{"resource":"horizontalpodautoscalers","shortNames":["hpa"]}"#;
        let group = |name: &str, versions: [&str; 2]| {
            let [first, second] = versions
                .map(|version| format!(r#"{{"version":"{version}","resources":[{scalers}]}}"#));
            format!(r#"{{"metadata":{{"name":"{name}"}},"versions":[{first},{second}]}}"#)
        };
        let groups = [group("autoscaling", ["v2", "v1"]), group("a.example", ["v1", "v2"])];
        let items = groups.join(",");
        let answer = service_fn(move |asked: http::Request<Body>| {
            let items = if asked.uri().path() == "/apis" { &*items } else { "" };
            let list = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{items}]}}"#);
            ready(Ok::<_, Infallible>(http::Response::new(Body::from(list.into_bytes()))))
        });
        let kinds = served(Client::new(answer, "default")).await.unwrap();
        let found = |typed: &str| find(&kinds, typed).unwrap().resource.to_string();
        assert_eq!(found("hpa"), "horizontalpodautoscalers.v2.autoscaling");
        assert_eq!(found("hpa.v1.autoscaling"), "horizontalpodautoscalers.v1.autoscaling");
        assert_eq!(found("hpa.a.example"), "horizontalpodautoscalers.v1.a.example");
    }

    #[tokio::test]
    async fn a_read_api_from_flags_needs_no_usable_api_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let pair = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        std::fs::write(file("ca.crt"), pair.cert.pem()).unwrap();
        // kubewarm rejects connections to this kubeconfig's cluster, because it disables the
        // verification of the server. So `connect` succeeds only if it does not use this cluster.
        let kubeconfig = "clusters: [{name: a, cluster: {server: 'https://b', insecure-skip-tls-verify: true}}]\n\
             users: [{name: a, user: {token: secret}}]\n\
             contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n";
        std::fs::write(file("config"), kubeconfig).unwrap();
        let line = format!(
            "pods --cache-server https://c --cache-certificate-authority {} --kubeconfig {}",
            file("ca.crt"),
            file("config")
        );
        let (cache, api_server) = connect(&parse(&line).unwrap()).await.unwrap();
        assert_eq!(cache.server().host(), Some("c"));
        assert!(api_server.is_none());
    }

    #[test]
    fn conflicting_flags_are_usage_errors() {
        for line in [
            "",
            "pods one -A",
            "pods one -l app=web",
            "pods --cache-kubeconfig a --cache-server https://b",
            "pods --cache-server http://b",
        ] {
            let error = parse::<GetArgs>(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
