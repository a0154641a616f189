//! An authorization webhook that answers an access review differently from the real request, to
//! test that kubewarm relies on real requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::world::Failure;

/// In the namespace `boastful`, the webhook allows `configmaps` only in access reviews of
/// kubewarm's informers; in `modest`, only in real requests and in reviews of readers. It denies
/// everything that ServiceAccounts with the name `outcast` do. It has no opinion about all other
/// requests. Its thread ends with the process.
pub(crate) struct WebhookAuthorizer {
    kubeconfig: tempfile::NamedTempFile,
}

impl WebhookAuthorizer {
    pub(crate) fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut kubeconfig = tempfile::NamedTempFile::new()?;
        writeln!(
            kubeconfig,
            "apiVersion: v1
kind: Config
clusters: [{{name: webhook, cluster: {{server: 'http://{}'}}}}]
contexts: [{{name: webhook, context: {{cluster: webhook, user: ''}}}}]
current-context: webhook",
            listener.local_addr()?
        )?;
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || drop(answer(&stream)));
            }
        });
        Ok(Self { kubeconfig })
    }

    /// Arguments that make an API server send requests to this webhook before RBAC.
    pub(crate) fn apiserver_args(&self) -> [String; 3] {
        [
            "--authorization-mode=Webhook".to_owned(),
            format!("--authorization-webhook-config-file={}", self.kubeconfig.path().display()),
            "--authorization-webhook-version=v1".to_owned(),
        ]
    }
}

fn answer(mut stream: &TcpStream) -> Result<(), Failure> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 0 && line != "\r\n" {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let review: Value = serde_json::from_slice(&body)?;
    let is_denied = review["spec"]["user"].as_str().is_some_and(|user| user.ends_with(":outcast"));
    let is_allowed = !is_denied && is_allowed(&review["spec"]["resourceAttributes"]);
    let status = json!({"allowed": is_allowed, "denied": is_denied});
    let answer = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status,
    })
    .to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
    Ok(())
}

/// Whether the webhook allows this. An access review about an informer names no version (`*`),
/// which means all versions. A real request has a version, and so has a review of a reader.
fn is_allowed(attributes: &Value) -> bool {
    let is_review = attributes["version"] == "*";
    let boasts = attributes["namespace"] == "boastful" && is_review;
    let is_modest = attributes["namespace"] == "modest" && !is_review;
    attributes["resource"] == "configmaps" && (boasts || is_modest)
}
