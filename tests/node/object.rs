//! Reads objects of the cluster as JSON.

use std::time::Duration;

use serde_json::Value;
use testbed::eventually;

use crate::world::{Failure, NodeWorld};

impl NodeWorld {
    /// Reads an object.
    pub(crate) fn get(&self, what: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.run(&format!("get {what} --output=json"))?)?)
    }

    /// Reads the items of a list.
    pub(crate) fn list(&self, what: &str) -> Result<Vec<Value>, Failure> {
        Ok(self.get(what)?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until `holds` returns true for an object, and returns the object.
    pub(crate) fn await_that(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        eventually(limit, || {
            let object = self.get(what)?;
            if holds(&object) { Ok(object) } else { Err(format!("{object:#}").into()) }
        })
    }
}

/// The properties of a pod with one container that tests use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) address: String,
    /// The id of the running container at containerd.
    pub(crate) container: String,
    pub(crate) restarts: u64,
    pub(crate) is_ready: bool,
}

impl Pod {
    /// Reads the properties from the object.
    pub(crate) fn of(pod: &Value) -> Self {
        let status = &pod["status"]["containerStatuses"][0];
        let id = status["containerID"].as_str().unwrap_or_default();
        Self {
            name: text(pod, "/metadata/name").to_owned(),
            address: text(pod, "/status/podIP").to_owned(),
            container: id.trim_start_matches("containerd://").to_owned(),
            restarts: status["restartCount"].as_u64().unwrap_or_default(),
            is_ready: status["ready"] == true,
        }
    }
}

/// The text at this JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The status of a condition; empty if there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    condition.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}
