//! Helpers for tests to apply, await and read a CacheProfile.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::operator::LISTENING;
use crate::world::{Failure, SOON, World, eventually};

/// A profile in a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Profile<'a> {
    pub(crate) world: &'a World,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Profile<'a> {
    /// Applies a profile with this `spec`, a YAML flow mapping.
    pub(crate) fn apply(
        world: &'a World,
        namespace: &'a str,
        name: &'a str,
        spec: &str,
    ) -> Result<Self, Failure> {
        world.cluster.apply(&format!(
            "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
"
        ))?;
        Ok(Self { world, namespace, name })
    }

    /// The profile's object, as the API server has it.
    pub(crate) fn read(&self) -> Result<Value, Failure> {
        let Self { namespace, name, .. } = self;
        self.world.read(&format!(
            "/apis/kubewarm.io/v1alpha1/namespaces/{namespace}/cacheprofiles/{name}"
        ))
    }

    /// Applies the RBAC manifests in the profile's status, as an administrator would.
    pub(crate) fn grant(&self) -> Result<(), Failure> {
        for field in ["manifests", "manifestsElevated"] {
            let pointer = format!("/status/access/{field}");
            let profile = self.read()?;
            if let Some(manifests) = profile.pointer(&pointer).and_then(Value::as_str) {
                self.world.cluster.apply(manifests)?;
            }
        }
        Ok(())
    }

    /// Waits until the status contains the RBAC manifests.
    pub(crate) fn await_manifests(&self) -> Result<(), Failure> {
        eventually(SOON, || {
            let profile = self.read()?;
            let manifests = profile.pointer("/status/access/manifests");
            manifests.map(drop).ok_or_else(|| format!("no manifests in {profile:#}").into())
        })
    }

    /// Waits until a condition of the profile has this status and, if given, this reason.
    pub(crate) fn await_condition(
        &self,
        kind: &str,
        status: &str,
        reason: Option<&str>,
        limit: Duration,
    ) -> Result<Value, Failure> {
        self.await_that(limit, |profile| condition(profile.get("status")?, kind, status, reason))
    }

    /// Waits until a condition of a target has this status and reason.
    pub(crate) fn await_target(
        &self,
        name: &str,
        (kind, status, reason): (&str, &str, &str),
        limit: Duration,
    ) -> Result<Value, Failure> {
        self.await_that(limit, |profile| {
            condition(target(profile, name)?, kind, status, Some(reason))
        })
    }

    /// Waits until `holds` returns a value for the profile.
    pub(crate) fn await_that(
        &self,
        limit: Duration,
        holds: impl Fn(&Value) -> Option<()>,
    ) -> Result<Value, Failure> {
        let Self { world, namespace, name } = self;
        let held = eventually(limit, || {
            let profile = self.read()?;
            let status = &profile["status"];
            if holds(&profile).is_some() { Ok(profile) } else { Err(format!("{status:#}").into()) }
        });
        // Unlike a text, this error is printed with its line breaks.
        held.map_err(|error| {
            let asked = format!("for the status of {namespace}/{name}");
            let answer = format!("{error}{}", log_ends(world));
            testbed::Error::Answer { asked, answer }.into()
        })
    }
}

/// The last lines of each operator's log, after a line with the log's path.
fn log_ends(world: &World) -> String {
    const LINES: usize = 40;
    let mut ends = Vec::new();
    let logs = world.cluster.folder().join("log");
    for path in logs.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The logs of the control plane are long, and seldom name the cause.
        if text.contains(LISTENING) {
            let lines: Vec<_> = text.lines().collect();
            let (_, end) = lines.split_at(lines.len().saturating_sub(LINES));
            ends.push(format!("\n{}:\n{}", path.display(), end.join("\n")));
        }
    }
    ends.concat()
}

/// Returns `Some(())` if a condition of `holder` has this status and, if given, this reason.
fn condition(holder: &Value, kind: &str, status: &str, reason: Option<&str>) -> Option<()> {
    let conditions = holder.get("conditions")?.as_array()?;
    let is_met = conditions.iter().any(|condition| {
        condition["type"] == kind
            && condition["status"] == status
            && reason.is_none_or(|reason| condition["reason"] == reason)
    });
    is_met.then_some(())
}

/// The message of a condition of the profile, or an empty string.
pub(crate) fn message<'a>(profile: &'a Value, kind: &str) -> &'a str {
    let conditions = profile.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

/// A spec with the targets `parts` and `settings` for one namespace.
pub(crate) fn parts_and_settings(namespace: &str) -> String {
    format!(
        "{{targets: [
          {{name: parts, group: example.com, resource: parts,
            scope: {{type: Namespaces, namespaces: [{namespace}]}}}},
          {{name: settings, resource: configmaps,
            scope: {{type: Namespaces, namespaces: [{namespace}]}}}}]}}"
    )
}

/// The transition time of a condition. If it stays the same, the condition did not change.
pub(crate) fn since<'a>(profile: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = profile.pointer("/status/conditions")?.as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)?.get("lastTransitionTime")
}

/// The status of one target.
pub(crate) fn target<'a>(profile: &'a Value, name: &str) -> Option<&'a Value> {
    let targets = profile.pointer("/status/targets")?.as_array()?;
    targets.iter().find(|target| target["name"] == name)
}

/// The problems of a target, each as one text of namespace, reason and message.
pub(crate) fn problems(profile: &Value, name: &str) -> Vec<String> {
    let problems = target(profile, name).and_then(|target| target.get("problems")?.as_array());
    problems
        .into_iter()
        .flatten()
        .map(|problem| {
            let field = |name: &str| problem[name].as_str().unwrap_or_default();
            format!("{}: {}: {}", field("namespace"), field("reason"), field("message"))
        })
        .collect()
}

/// The number before `unit` in a message about a limit.
pub(crate) fn number_before(text: &str, unit: &str) -> Result<u64, Failure> {
    let before = text.split(unit).next().filter(|before| before.len() < text.len());
    let number = before.and_then(|before| before.rsplit(' ').next());
    Ok(number.ok_or_else(|| format!("no{unit} in {text}"))?.parse()?)
}
