//! Port-forwards to the pods of kubewarm's read API, for users outside the cluster.

use super::{CommandError, error::CommandErrorSource};
use k8s_openapi::{
    api::core::v1::{Container, Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use kubewarm_client::{ApiServerConnection, StreamConnector};
use std::{io, sync::Arc, time::Duration};
use tokio::{io::DuplexStream, time::timeout};

/// Maximum number of pods of the Service in which kubewarm looks for a ready pod.
pub(super) const MAX_PODS: u32 = 100;
/// Timeout for the kubelet to open a stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// A port-forward to the admin port of a pod, which serves probes, metrics and debug information.
pub(super) struct AdminPortForward {
    /// The pod's name.
    pub(super) pod: String,
    pub(super) is_tls: bool,
    /// The streams of the port-forward, or the reason why the kubelet opens none.
    pub(super) streams: Result<StreamConnector, CommandError>,
}

/// Opens a port-forward to the first ready pod of the Service `name`, with one stream per
/// connection. No other process can use the streams. The function opens and closes a stream itself,
/// so that a missing permission is an error of this function.
///
/// # Errors
///
/// [`CommandError`] with the missing permission or object, and the flag for another address.
pub(super) async fn open(
    connection: &ApiServerConnection,
    namespace: &str,
    name: &str,
) -> Result<StreamConnector, CommandError> {
    let elsewhere = |error: CommandError| {
        CommandError::caused(
            "no port-forward to the read API; pass --cache-server with an address of the read API",
            error,
        )
    };
    let (service, pods) = ready_pods(connection, namespace, name).await.map_err(elsewhere)?;
    let (pod, port) =
        destination(&service, &pods).ok_or_else(|| elsewhere(unready(namespace, name)))?;
    connect(connection, namespace, pod, port).await.map_err(elsewhere)
}

/// Opens a port-forward to the admin port of each ready pod of `service`. A pod without a container
/// port `admin` is left out.
///
/// # Errors
///
/// [`CommandError`] with the missing permission or object.
pub(super) async fn open_admin_ports(
    connection: &ApiServerConnection,
    namespace: &str,
    service: &str,
) -> Result<Vec<AdminPortForward>, CommandError> {
    let (_, pods) = ready_pods(connection, namespace, service).await?;
    let mut opened = Vec::new();
    for pod in &pods {
        let Some((port, is_tls)) = admin_port(pod) else { continue };
        let streams = connect(connection, namespace, pod.name_any(), port).await;
        opened.push(AdminPortForward { pod: pod.name_any(), is_tls, streams });
    }
    if opened.is_empty() { Err(unready(namespace, service)) } else { Ok(opened) }
}

/// Returns the Service and its ready pods, in the order of their names.
async fn ready_pods(
    connection: &ApiServerConnection,
    namespace: &str,
    name: &str,
) -> Result<(Service, Vec<Pod>), CommandError> {
    let client = connection.client();
    let title = format!("service {name} in namespace {namespace:?}");
    let service = Api::<Service>::namespaced(client.clone(), namespace).get(name).await;
    let service = service.map_err(|error| unopened(&format!("get {title}"), cause(error)))?;
    let selector = selector(&service).ok_or_else(|| {
        let error = io::Error::other("it has no selector");
        unopened(&format!("find a pod of {title}"), error)
    })?;
    let query = ListParams::default().limit(MAX_PODS).labels(&selector);
    let pods = Api::<Pod>::namespaced(client, namespace).list(&query).await;
    let pods = pods.map_err(|error| {
        unopened(&format!("list pods in namespace {namespace:?}"), cause(error))
    })?;
    let mut ready: Vec<_> = pods.items.into_iter().filter(is_ready).collect();
    ready.sort_by_key(Pod::name_any);
    Ok((service, ready))
}

async fn connect(
    connection: &ApiServerConnection,
    namespace: &str,
    pod: String,
    port: u16,
) -> Result<StreamConnector, CommandError> {
    // The informer client has no timeout for responses, because a stream can last for any time.
    let pods = Api::namespaced(connection.informer_client(), namespace);
    let pod = Arc::new(PodPort { pods, pod, port });
    let probe = pod.stream().await.map_err(|error| {
        unopened(&format!("create pods/portforward in namespace {namespace:?}"), error)
    })?;
    // No request uses this stream, which only shows that the user can open a port-forward. An exec
    // plugin can run before the first request, and the stream could end meanwhile.
    drop(probe);
    Ok(StreamConnector::new(move || {
        let pod = Arc::clone(&pod);
        async move { pod.stream().await }
    }))
}

fn unopened(what: &str, error: impl Into<CommandErrorSource>) -> CommandError {
    CommandError::caused(format!("cannot {what}"), error)
}

/// Returns the API server's message if it rejected the request, because the text of this
/// [`kube::Error`] contains debug output. Returns any other error as it is.
fn cause(error: kube::Error) -> CommandErrorSource {
    let kube::Error::Api(status) = error else { return error.into() };
    format!("{} (HTTP {})", status.message, status.code).into()
}

fn unready(namespace: &str, service: &str) -> CommandError {
    let text = format!("find a pod of service {service} in namespace {namespace:?}");
    unopened(&text, io::Error::other("none is ready"))
}

struct PodPort {
    pods: Api<Pod>,
    pod: String,
    port: u16,
}

impl PodPort {
    async fn stream(&self) -> io::Result<DuplexStream> {
        let Self { pods, pod, port } = self;
        let opened = timeout(STREAM_TIMEOUT, pods.portforward(pod, &[*port])).await?;
        let stream = opened.map_err(|error| io::Error::other(cause(error)))?.take_stream(*port);
        stream.ok_or_else(|| io::Error::other("no stream of the port"))
    }
}

/// Returns the label selector of the pods of `service`; `None` for a Service without a selector,
/// because an empty label selector matches all pods.
pub(super) fn selector(service: &Service) -> Option<String> {
    let labels = service.spec.as_ref()?.selector.as_ref().filter(|labels| !labels.is_empty())?;
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    Some(labels.collect::<Vec<_>>().join(","))
}

/// Returns the name of the first of `pods`, and a port of that pod. The port is the target of the
/// port `api` of `service`, or without `api` the target of the first port.
fn destination(service: &Service, pods: &[Pod]) -> Option<(String, u16)> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let is_api = |port: &&ServicePort| port.name.as_deref() == Some("api");
    let port = ports.iter().find(is_api).or_else(|| ports.first())?;
    let pod = pods.first()?;
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => container_port(pod, name)?.1,
    };
    Some((pod.name_any(), number.try_into().ok()?))
}

/// Returns the number of a pod's port `admin`, and whether this port serves TLS. kubewarm assumes
/// TLS if the liveness probe of the port's container uses HTTPS.
fn admin_port(pod: &Pod) -> Option<(u16, bool)> {
    let (container, port) = container_port(pod, "admin")?;
    let probe = container.liveness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
    let is_tls = probe.and_then(|get| get.scheme.as_deref()) == Some("HTTPS");
    Some((port.try_into().ok()?, is_tls))
}

/// Returns the container with the port `name`, and the number of this port.
fn container_port<'a>(pod: &'a Pod, name: &str) -> Option<(&'a Container, i32)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers
        .flat_map(|container| container.ports.iter().flatten().map(move |port| (container, port)));
    let (container, port) = ports.find(|(_, port)| port.name.as_deref() == Some(name))?;
    Some((container, port.container_port))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::{super::text::causes, *};
    use futures::{SinkExt as _, StreamExt as _};
    use kube::config::Kubeconfig;
    use kubewarm_client::get;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
    };

    fn service(port: &Value) -> Value {
        let ports = [json!({ "name": "admin", "port": 9 }), port.clone()];
        json!({ "metadata": {}, "spec": { "selector": { "a": "b", "c": "d" }, "ports": ports } })
    }

    fn pod(name: &str, ready: &str) -> Value {
        let port = json!({ "name": "api", "containerPort": 8443 });
        json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "kubewarm", "ports": [port] }] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    fn find_destination(port: &Value, pods: &[Value]) -> Option<(String, u16)> {
        let pods: Vec<Pod> = serde_json::from_value(json!(pods)).unwrap();
        destination(&serde_json::from_value(service(port)).unwrap(), &pods)
    }

    fn shown(error: &CommandError) -> String {
        causes(error)
    }

    #[test]
    fn the_destination_is_the_first_pod_and_its_port() {
        let api = json!({ "name": "api", "port": 443, "targetPort": "api" });
        let pods = [pod("b", "True"), pod("c", "True")];
        assert_eq!(find_destination(&api, &pods), Some(("b".to_owned(), 8443)));
        let number = json!({ "name": "api", "port": 443, "targetPort": 6443 });
        assert_eq!(find_destination(&number, &pods), Some(("b".to_owned(), 6443)));
        assert_eq!(
            find_destination(&json!({ "name": "x", "port": 1 }), &pods),
            Some(("b".to_owned(), 9))
        );
        assert_eq!(find_destination(&api, &[]), None);
        let unknown = json!({ "name": "api", "port": 443, "targetPort": "other" });
        assert_eq!(find_destination(&unknown, &pods), None);
    }

    #[test]
    fn a_pod_that_ends_or_is_not_ready_is_left_out() {
        let parsed = |pod: &Value| is_ready(&serde_json::from_value(pod.clone()).unwrap());
        assert!(parsed(&pod("a", "True")));
        assert!(!parsed(&pod("a", "False")));
        let mut leaving = pod("a", "True");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
        assert!(!parsed(&leaving));
    }

    #[test]
    fn the_liveness_probe_shows_whether_the_admin_port_serves_tls() {
        let port = |scheme: Value| {
            let mut pod = pod("a", "True");
            let container = &mut pod["spec"]["containers"][0];
            container["ports"] = json!([{ "name": "api", "containerPort": 8443 }, { "name": "admin", "containerPort": 9090 }]);
            container["livenessProbe"] =
                json!({ "httpGet": { "port": "admin", "scheme": scheme } });
            admin_port(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(port(json!("HTTPS")), Some((9090, true)));
        assert_eq!(port(Value::Null), Some((9090, false)));
        assert_eq!(admin_port(&serde_json::from_value(pod("a", "True")).unwrap()), None);
    }

    /// A connection to `server`, or to any server through `streams`.
    fn connection(server: &str, streams: Option<StreamConnector>) -> ApiServerConnection {
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{ "name": "a", "cluster": { "server": server } }],
            "users": [{ "name": "a", "user": {} }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "current-context": "a",
        }))
        .unwrap();
        ApiServerConnection::from_kubeconfig(kubeconfig, None, streams).unwrap()
    }

    /// A fake API server with a Service and a pod, which is an HTTP server. In the namespace
    /// `closed`, the API server forbids port-forwards. In the namespace `ending`, the first
    /// port-forward ends before the first request.
    async fn api_server() -> ApiServerConnection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let is_first = Arc::new(AtomicBool::new(true));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, Arc::clone(&is_first)));
            }
        });
        connection(&server, None)
    }

    fn rejection(message: &str) -> (u16, Value) {
        let status =
            json!({ "kind": "Status", "status": "Failure", "message": message, "code": 403 });
        (403, status)
    }

    async fn answer(mut socket: TcpStream, is_first: Arc<AtomicBool>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let (code, body) = match path.split('?').next().unwrap() {
            "/api/v1/namespaces/open/pods/b/portforward" => {
                return serve(socket, &head, false).await;
            }
            "/api/v1/namespaces/ending/pods/b/portforward" => {
                return serve(socket, &head, is_first.swap(false, Ordering::Relaxed)).await;
            }
            "/api/v1/namespaces/closed/pods/b/portforward" => rejection("pods \"b\" is forbidden"),
            path if path.ends_with("/services/forbidden") => {
                rejection("services \"forbidden\" is forbidden")
            }
            path if path.ends_with("/services/unselected") => {
                (200, json!({ "metadata": {}, "spec": { "selector": {} } }))
            }
            path if path.ends_with("/services/kubewarm") => {
                (200, service(&json!({ "name": "api", "port": 443, "targetPort": "api" })))
            }
            path if path.ends_with("/pods") => {
                assert!(head.contains("labelSelector=a%3Db%2Cc%3Dd"), "{head}");
                (200, json!({ "metadata": {}, "items": [pod("b", "True")] }))
            }
            path => panic!("unexpected request for {path}"),
        };
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {code} .\r\nconnection: close\r\ncontent-length: {}", body.len());
        socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    }

    /// Answers as the kubelet does: the first message of each channel is the port number. Then it
    /// ends the stream, or answers each HTTP request on the data channel.
    async fn serve(mut socket: TcpStream, head: &str, is_ending: bool) {
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        let accept = derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 .\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\
             sec-websocket-protocol: v4.channel.k8s.io\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut streams = WebSocketStream::from_raw_socket(socket, Role::Server, None).await;
        for channel in [0, 1] {
            let [low, high] = 8443_u16.to_le_bytes();
            streams.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        if is_ending {
            return;
        }
        while let Some(Ok(message)) = streams.next().await {
            if message.into_data().ends_with(b"\r\n\r\n") {
                let response = b"\0HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                streams.send(Message::binary(response.to_vec())).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn concurrent_requests_travel_through_streams_without_a_listener() {
        let streams = open(&api_server().await, "open", "kubewarm").await.unwrap();
        // No DNS server resolves this host name, so the client can reach a server only through
        // `streams`.
        let client = connection("http://read-api.invalid", Some(streams)).client();
        let (first, second) = tokio::join!(get(&client, "/one"), get(&client, "/two"));
        for response in [first, second] {
            assert_eq!(response.unwrap().status, 200);
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_before_the_first_request_fails_no_request() {
        let streams = open(&api_server().await, "ending", "kubewarm").await.unwrap();
        let client = connection("http://read-api.invalid", Some(streams)).client();
        assert_eq!(get(&client, "/one").await.unwrap().status, 200);
    }

    #[tokio::test]
    async fn a_service_without_a_selector_has_no_port_forward() {
        let error = open(&api_server().await, "open", "unselected").await.unwrap_err();
        let text = shown(&error);
        assert!(text.contains("--cache-server"), "{text}");
        assert!(text.contains("cannot find a pod of service unselected"), "{text}");
        assert!(text.ends_with("it has no selector"), "{text}");
    }

    #[tokio::test]
    async fn a_missing_permission_is_named_with_the_flag_for_another_address() {
        let error = open(&api_server().await, "closed", "kubewarm").await.unwrap_err();
        let text = shown(&error);
        assert!(text.contains("cannot create pods/portforward in namespace \"closed\""), "{text}");
        assert!(text.contains("--cache-server"), "{text}");
        assert!(text.ends_with(": pods \"b\" is forbidden (HTTP 403)"), "{text}");
    }

    #[tokio::test]
    async fn the_message_of_the_api_server_is_printed_without_debug_output() {
        let opened = open_admin_ports(&api_server().await, "open", "forbidden").await;
        let expected = "cannot get service forbidden in namespace \"open\": \
                        services \"forbidden\" is forbidden (HTTP 403)";
        assert_eq!(shown(&opened.err().unwrap()), expected);
    }
}
