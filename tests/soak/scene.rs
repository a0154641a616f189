//! The cluster of the soak test: its profiles, the disturbances of its API server, and the
//! operator's resource use.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::figures::{Exposition, Kept, informers};
use crate::operator::{NAMESPACE, Operator};
use crate::world::{Failure, Outcome, World, eventually};
use crate::writers::KINDS;

/// The namespaces in which objects are written.
pub(crate) const NAMESPACES: [&str; 4] = ["soak-0", "soak-1", "soak-2", "soak-3"];
/// The time after a restart of the API server in which every informer is checked or relists, a few
/// at a time.
const SETTLED: Duration = Duration::from_mins(2);
/// The time for which the API server is frozen. It is shorter than the clients' request timeout.
const FROZEN: Duration = Duration::from_secs(15);
/// How many files and tasks more than before are no leak: each request in progress has a socket and
/// a task, and the pool keeps some connections open.
const PASSING: usize = 8;

/// The cluster and the operator.
pub(crate) struct SoakFixture {
    // The operator is the first field, so that it ends before the control plane.
    operator: Operator,
    world: World,
}

/// What a round makes of the profile `edited` in each namespace. The permanent profile stays the
/// same.
#[derive(Clone, Copy)]
enum Edit {
    /// Some of the namespace's leases.
    Leases,
    /// Some of the namespace's parts, with another list method.
    Parts,
    /// The profile does not exist.
    Gone,
}

impl Edit {
    fn of(round: usize) -> Self {
        [Self::Leases, Self::Parts, Self::Gone][round % 3]
    }
}

impl SoakFixture {
    /// Starts the API server and the operator, and waits until all profiles are warm.
    pub(crate) fn set() -> Result<Self, Failure> {
        let world = World::alone()?;
        let namespaces = NAMESPACES
            .map(|name| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"));
        world.cluster.apply(&namespaces.join("\n---\n"))?;
        world.cluster.apply(&definition(false))?;
        eventually(SETTLED, || Ok(world.cluster.run(["get", "parts"])?))?;
        let operator = Operator::start(&world)?;
        Operator::grant_reading(&world)?;
        let scene = Self { operator, world };
        scene.world.cluster.apply(&resident())?;
        scene.rest()?;
        Ok(scene)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.world.cluster.kubeconfig()
    }

    /// The number of informers with the edit of a round, or at rest without one.
    pub(crate) fn expected_informers(round: Option<usize>) -> usize {
        // The permanent profile has one informer for each kind and namespace, and one more for all
        // parts of the cluster.
        let resident = KINDS.len() * NAMESPACES.len() + 1;
        match round.map(Edit::of) {
            Some(Edit::Gone) => resident,
            // The profile `edited` of each namespace has one informer of its own. Informers are not
            // shared across namespaces, and the permanent profile is in another namespace.
            None => resident + NAMESPACES.len(),
            Some(Edit::Leases | Edit::Parts) => resident + 2 * NAMESPACES.len(),
        }
    }

    /// Edits the profiles and disturbs the API server. Returns a description.
    pub(crate) async fn disturb(&self, round: usize) -> Result<&'static str, Failure> {
        let cluster = &self.world.cluster;
        match Edit::of(round) {
            Edit::Leases => self.declare(
                "{targets: [
                  {name: settings, resource: configmaps},
                  {name: leases, group: coordination.k8s.io, resource: leases,
                    labelSelector: {matchLabels: {writer: '1'}}}]}",
            )?,
            Edit::Parts => self.declare(
                "{targets: [
                  {name: settings, resource: configmaps},
                  {name: parts, group: example.com, resource: parts,
                    labelSelector: {matchExpressions: [
                      {key: writer, operator: In, values: ['0', '2']}]}}]}",
            )?,
            Edit::Gone => {
                for namespace in NAMESPACES {
                    cluster.run(["delete", "cprof", "edited", "-n", namespace])?;
                }
            }
        }
        // This period (4 rounds) differs from the period of the edits (3 rounds), so that all
        // combinations occur.
        match round % 4 {
            0 => cluster.apiserver().restart()?,
            1 => {
                cluster.apiserver().freeze()?;
                tokio::time::sleep(FROZEN).await;
                cluster.apiserver().thaw()?;
            }
            2 => drop(cluster.apply(&definition(round % 8 == 2))?),
            _ => {
                cluster.apiserver().kill()?;
                tokio::time::sleep(FROZEN).await;
                cluster.apiserver().start()?;
            }
        }
        let done = ["restarted", "frozen", "its definition edited", "away"];
        Ok(done[round % 4])
    }

    /// Restores the profiles, and waits until all are warm and removed informers are gone.
    pub(crate) fn rest(&self) -> Outcome {
        self.declare("{targets: [{name: settings, resource: configmaps}]}")?;
        let wanted = Self::expected_informers(None);
        eventually(SETTLED, || {
            let mut informers = informers(&self.operator)?;
            informers
                .retain(|informer| KINDS.iter().any(|kind| informer["resource"] == kind.plural));
            let count = informers.len();
            informers.retain(|informer| informer["state"] != "Watching");
            if count == wanted && informers.is_empty() {
                return Ok(());
            }
            Err(format!("{count} informers instead of {wanted}, not watching: {informers:#?}")
                .into())
        })?;
        let ready = ["wait", "--for=condition=Ready", "cprof", "--all", "-A", "--timeout=120s"];
        self.world.cluster.run(ready)?;
        Ok(())
    }

    /// Applies this spec in every namespace.
    fn declare(&self, spec: &str) -> Outcome {
        let profiles = NAMESPACES.map(|namespace| profile(namespace, "edited", spec));
        self.world.cluster.apply(&profiles.join("\n---\n"))?;
        Ok(())
    }

    /// The operator's current resource use.
    pub(crate) fn figures(&self) -> Result<Figures, Failure> {
        let Kept { files, resident_kib, .. } = Kept::read(&self.operator)?;
        let tasks = Exposition::read(&self.operator)?.sum("tokio_alive_tasks", &[]);
        Ok(Figures { files, resident_kib, tasks })
    }

    /// The last lines of the operator's log.
    pub(crate) fn end_of_log(&self) -> String {
        let log = self.operator.process.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(50)..].join("\n")
    }
}

/// The operator's resource use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    files: usize,
    resident_kib: u64,
    tasks: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, resident_kib, tasks } = self;
        write!(f, "{} MiB, {files} files, {tasks} tasks", resident_kib / 1024)
    }
}

impl Figures {
    /// Compares the last figures with the figures after a third of the time. By then, allocators
    /// and pools have grown to their size, so later growth is a leak.
    pub(crate) fn judge(all: &[Self]) -> Outcome {
        let (Some(before), Some(end)) = (all.get(all.len() / 3), all.last()) else {
            return Err("nothing was measured".into());
        };
        let passing = f64::from(u8::try_from(PASSING)?);
        if end.files > before.files + PASSING
            || end.tasks > before.tasks + passing
            || end.resident_kib > before.resident_kib + before.resident_kib / 4
        {
            return Err(format!("the operator grew from {before} to {end}").into());
        }
        Ok(())
    }
}

fn profile(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
"
    )
}

/// The permanent profile: all written kinds in each namespace, and all parts cluster-wide.
fn resident() -> String {
    let namespaces = NAMESPACES.join(", ");
    let targets = KINDS.map(|kind| {
        format!(
            "{{name: {0}, group: '{1}', resource: {0},
               scope: {{type: Namespaces, namespaces: [{namespaces}]}}}}",
            kind.plural, kind.group
        )
    });
    let everywhere = "{name: everywhere, group: example.com, resource: parts,
                       scope: {type: AllNamespaces}}";
    profile(NAMESPACE, "resident", &format!("{{targets: [{}, {everywhere}]}}", targets.join(", ")))
}

/// The CRD of parts. With `has_default`, it has a default that changes all objects without a write.
fn definition(has_default: bool) -> String {
    let default = if has_default { ", default: red" } else { "" };
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: parts.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Part, plural: parts, singular: part}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{
      type: object, x-kubernetes-preserve-unknown-fields: true, properties: {{spec: {{
        type: object, x-kubernetes-preserve-unknown-fields: true,
        properties: {{colour: {{type: string{default}}}}}}}}}}}}}
"
    )
}
