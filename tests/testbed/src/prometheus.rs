//! A Prometheus server that scrapes the targets of a test.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::error::{Action, Error, Result};
use crate::node::Entrance;
use crate::process::Process;

const PROGRAM: &str = "prometheus";
const REMEDY: &str = "install Debian's package prometheus";
/// The read timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Debian's Prometheus server. It ends with the control plane at the latest.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    /// The way into the node's network, if the server runs there. `None` if it runs on the host.
    entrance: Option<Entrance>,
}

/// One series and its value at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels of the series, including its name.
    pub labels: BTreeMap<String, String>,
    /// The value of the series.
    pub value: f64,
}

impl Prometheus {
    pub(crate) fn start(
        cluster: &ControlPlane,
        entrance: Option<&Entrance>,
        config: &Value,
    ) -> Result<Self> {
        let path = cluster.folder().join("prometheus.yml");
        // Prometheus reads YAML, and JSON is also YAML.
        std::fs::write(&path, config.to_string()).action(|| format!("write {}", path.display()))?;
        let mut command = match entrance {
            Some(entrance) => entrance.network_command(PROGRAM),
            None => Command::new(PROGRAM),
        };
        let flag = |name: &str, value: PathBuf| format!("--{name}={}", value.display());
        command
            .arg(flag("config.file", path))
            .arg(flag("storage.tsdb.path", cluster.folder().join(PROGRAM)))
            .arg("--web.listen-address=127.0.0.1:0");
        Command::new(PROGRAM)
            .arg("--version")
            .output()
            .map_err(|_| Error::Missing { program: PROGRAM, remedy: REMEDY })?;
        let process = cluster.process(PROGRAM, &command, |log| {
            log.contains("Server is ready to receive web requests")
        });
        process.start()?;
        Ok(Self { process, entrance: entrance.cloned() })
    }

    /// The current value of an expression.
    ///
    /// # Errors
    /// When the expression is invalid, or its value is not an instant vector.
    pub fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", expression)
            .finish();
        let path = format!("/api/v1/query?{query}");
        let data = self.get(&path)?;
        let sample = |series: &Value| {
            let labels = series["metric"].as_object()?.iter();
            let labels = labels.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            let value = series["value"][1].as_str()?.parse().ok()?;
            Some(Sample { labels: labels.collect::<Option<_>>()?, value })
        };
        let series = data["result"].as_array();
        let samples = series.and_then(|series| series.iter().map(sample).collect());
        samples.ok_or_else(|| answer(&path, &data.to_string()))
    }

    /// The `data` field of a response of the HTTP API.
    ///
    /// # Errors
    /// When the response is not a success.
    pub fn get(&self, path: &str) -> Result<Value> {
        let log = self.process.log();
        let line = log.lines().rev().find(|line| line.contains("\"Listening on\""));
        let address = line.and_then(|line| line.split_once("address=")).map(|(_, at)| at.trim());
        let address = address.ok_or_else(|| answer(path, "it has no address"))?;
        let asked = match &self.entrance {
            Some(entrance) => entrance.on_network(|| ask(address, path))?,
            None => ask(address, path),
        };
        let text = asked.action(|| format!("ask Prometheus for {path}"))?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        match body {
            Some(Ok(Value::Object(mut body))) if body.get("status") == Some(&"success".into()) => {
                Ok(body.remove("data").unwrap_or_default())
            }
            _ => Err(answer(path, &text)),
        }
    }
}

fn answer(path: &str, answer: &str) -> Error {
    Error::Answer { asked: format!("Prometheus for {path}"), answer: answer.to_owned() }
}

/// Sends a request, and returns the response's headers and body. The request uses HTTP/1.0, whose
/// responses are not chunked.
fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
