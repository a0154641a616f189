//! Creates, edits and deletes a thousand profiles. They leave nothing behind in the process, and
//! the number of requests stays within its limits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _};
use kubewarm_api::v1alpha1::{CacheProfile, CacheProfileStatus};
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use serde_json::{Value, json};

use crate::figures::{Exposition, Kept, informers};
use crate::operator::{NAMESPACE, Operator};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const NAMESPACES: usize = 50;
/// The number of parallel writers.
const HANDS: usize = 16;

fn namespace(number: usize) -> String {
    format!("churn-{}", number % NAMESPACES)
}

/// The targets of a profile: one that all profiles of a namespace share, and in every second
/// profile one more of its own.
fn targets(number: usize, resource: &str) -> Value {
    let shared = json!({"name": "shared", "resource": "configmaps"});
    let single = json!({
        "name": "own", "resource": resource,
        "labelSelector": {"matchLabels": {"profile": number.to_string()}},
    });
    if number.is_multiple_of(2) { json!([shared, single]) } else { json!([shared]) }
}

/// Creates, edits and deletes profiles.
struct Author {
    client: Client,
}

impl Author {
    fn profiles(&self, number: usize) -> Api<CacheProfile> {
        Api::namespaced(self.client.clone(), &namespace(number))
    }

    async fn create(&self, numbers: std::ops::Range<usize>) -> Outcome {
        let created = futures::stream::iter(numbers).map(async |number| {
            let profile = serde_json::from_value(json!({
                "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
                "metadata": {"name": format!("p{number}")},
                "spec": {"targets": targets(number, "endpoints")},
            }))?;
            self.profiles(number).create(&PostParams::default(), &profile).await?;
            Ok::<_, Failure>(())
        });
        created.buffer_unordered(HANDS).try_collect().await
    }

    async fn edit(&self, numbers: std::ops::Range<usize>) -> Outcome {
        let edited = futures::stream::iter(numbers).map(async |number| {
            // A target's resource is immutable, so the edit replaces the target.
            let mut spec = json!({
                "warmup": {"deadlineSeconds": 30}, "targets": targets(number, "services"),
            });
            if let Some(name) = spec.pointer_mut("/targets/1/name") {
                *name = json!("other");
            }
            let patch = Patch::Merge(json!({"spec": spec}));
            let name = format!("p{number}");
            self.profiles(number).patch(&name, &PatchParams::default(), &patch).await?;
            Ok::<_, Failure>(())
        });
        edited.buffer_unordered(HANDS).try_collect().await
    }

    async fn delete(&self, numbers: std::ops::Range<usize>) -> Outcome {
        let deleted = futures::stream::iter(numbers).map(async |number| {
            let name = format!("p{number}");
            self.profiles(number).delete(&name, &DeleteParams::default()).await?;
            Ok::<_, Failure>(())
        });
        deleted.buffer_unordered(HANDS).try_collect().await
    }

    /// Creates, edits and deletes profiles, and waits until the informers match.
    async fn round(&self, operator: &Operator, numbers: std::ops::Range<usize>) -> Outcome {
        let singles = numbers.clone().filter(|number| number.is_multiple_of(2)).count();
        let shared = numbers.len().min(NAMESPACES);
        let synced = |resource: &str, wanted: usize| {
            eventually(SOON, || {
                let mut states = BTreeMap::<String, usize>::new();
                for informer in informers(operator)? {
                    if informer["resource"] == resource {
                        *states.entry(informer["state"].to_string()).or_default() += 1;
                    }
                }
                let watching = states.remove("\"Watching\"").unwrap_or_default();
                if watching == wanted && states.is_empty() {
                    return Ok(());
                }
                let informers =
                    format!("{watching} of {wanted} informers of {resource} are watching");
                Err(format!("{informers}, others are {states:?}").into())
            })
        };
        self.create(numbers.clone()).await?;
        synced("endpoints", singles)?;
        // One informer more than the shared ones belongs to the profile `resident`, which exists
        // during the whole test.
        synced("configmaps", shared + 1)?;
        self.edit(numbers.clone()).await?;
        synced("services", singles)?;
        synced("endpoints", 0)?;
        self.delete(numbers).await?;
        synced("services", 0)?;
        synced("configmaps", 1)?;
        Ok(())
    }
}

/// Records the statuses that kubewarm writes, as a watch shows them.
#[derive(Default)]
struct Observer {
    last: BTreeMap<String, (Option<CacheProfileStatus>, Option<Instant>)>,
    /// Statuses that were written too soon after the previous one.
    too_soon: Vec<String>,
}

/// The minimum between two writes of a status, as a watch sees them: 10 s, less the delay of the
/// watch.
const BETWEEN: Duration = Duration::from_millis(8_500);

impl Observer {
    /// Watches statuses until the profile `the-end` appears. A watch that breaks is opened again.
    async fn watch(mut self, client: Client) -> Self {
        let all: Api<CacheProfile> = Api::all(client);
        let events = watcher(all, watcher::Config::default()).default_backoff();
        let mut events = events.touched_objects().boxed();
        while let Some(event) = events.next().await {
            let Ok(profile) = event else { continue };
            self.see(&profile);
            if profile.meta().name.as_deref() == Some("the-end") {
                break;
            }
        }
        self
    }

    fn see(&mut self, profile: &CacheProfile) {
        let uid = profile.meta().uid.clone().unwrap_or_default();
        let (last, written) = self.last.entry(uid).or_default();
        if *last == profile.status {
            return;
        }
        if let (Some(old), Some(new), Some(at)) = (&*last, &profile.status, &*written)
            && at.elapsed() < BETWEEN
            && words(old) == words(new)
        {
            let name = profile.meta().name.clone().unwrap_or_default();
            let (old, new) = (serde_json::to_string(old), serde_json::to_string(new));
            self.too_soon.push(format!("{name}, {:?}: {old:?} {new:?}", at.elapsed()));
        }
        last.clone_from(&profile.status);
        *written = Some(Instant::now());
    }
}

/// The parts of a status that kubewarm may write at once after a change: statuses and reasons of
/// conditions.
fn words(status: &CacheProfileStatus) -> Vec<(String, String, String)> {
    let of_profile = status.conditions.iter().map(|condition| (String::new(), condition));
    let of_targets = status.targets.iter().flat_map(|target| {
        target.conditions.iter().map(|condition| (target.name.clone(), condition))
    });
    of_profile
        .chain(of_targets)
        .map(|(prefix, c)| (prefix + &c.type_, c.status.clone(), c.reason.clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_profiles_leave_nothing_behind_after_their_deletion() -> Outcome {
    let world = World::alone()?;
    let namespaces: Vec<String> = (0..NAMESPACES)
        .map(|n| {
            format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}", namespace(n))
        })
        .collect();
    world.cluster.apply(&namespaces.join("\n---\n"))?;
    let operator = Operator::start(&world)?;
    Operator::grant_reading(&world)?;
    let client =
        ApiServerConnection::load(&ConnectionOptions::of_file(world.cluster.kubeconfig()))?
            .client();
    let author = Author { client: client.clone() };
    let resident = |name: &str| {
        let spec = "{targets: [{name: settings, resource: configmaps}]}";
        crate::profile::Profile::apply(&world, NAMESPACE, name, spec).map(drop)
    };
    resident("resident")?;
    let observer = tokio::spawn(Observer::default().watch(client));

    author.round(&operator, 0..20).await?;
    let before = eventually(SOON, || Rest::read(&operator))?;
    author.round(&operator, 20..520).await?;
    let middle = Kept::read(&operator)?.resident_kib;
    author.round(&operator, 520..1_020).await?;

    eventually(SOON, || Rest::read(&operator)?.is_as(&before))?;
    let end = Kept::read(&operator)?.resident_kib;
    assert!(end <= middle + middle / 5, "resident memory grew from {middle} to {end} KiB");

    let figures = Exposition::read(&operator)?;
    let reconciled =
        |bound: &str| figures.sum("kubewarm_reconcile_duration_seconds_bucket", &[bound]);
    // A reconcile takes milliseconds, and the metrics count about thirty. On a busy machine, one of
    // them may be slow.
    let (quick, all) = (reconciled("le=\"2.5\""), reconciled("le=\"+Inf\""));
    assert!(quick >= all * 0.9, "only {quick} of {all} reconciles took less than 2.5 s");

    resident("the-end")?;
    let observer = tokio::time::timeout(SOON, observer).await??;
    assert!(observer.last.len() > 1_000, "only {} profiles were seen", observer.last.len());
    let early = &observer.too_soon;
    assert!(early.is_empty(), "{} statuses too soon:\n{}", early.len(), early.join("\n"));
    Ok(())
}

/// The process's resources in use while only the profile `resident` exists. They must not grow with
/// the profiles that have come and gone.
struct Rest {
    files: usize,
    tasks: f64,
    series: Vec<String>,
}

/// How many files and tasks more than before are no leak: a request in progress adds a socket and a
/// task.
const PASSING: usize = 3;

impl Rest {
    /// Reads the values. Fails while another profile has metrics.
    fn read(operator: &Operator) -> Result<Self, Failure> {
        let figures = Exposition::read(operator)?;
        let profiles: Vec<_> = figures.series("kubewarm_profile_info", &[]).collect();
        if !matches!(profiles.as_slice(), [one] if one.contains("\"resident\"")) {
            return Err(format!("{} profiles have series", profiles.len()).into());
        }
        // Series that can appear at any time do not count: series of bookmarks, and of broken
        // watches of the profiles themselves.
        let passing = ["bookmark", "resource=\"cacheprofiles\""];
        let names = figures.names().into_iter();
        let lasting = names.filter(|name| !passing.iter().any(|part| name.contains(part)));
        Ok(Self {
            files: Kept::read(operator)?.files,
            tasks: figures.sum("tokio_alive_tasks", &[]),
            series: lasting.map(str::to_owned).collect(),
        })
    }

    /// Fails if the process uses more than `before`.
    fn is_as(&self, before: &Self) -> Outcome {
        let Self { files, tasks, series } = before;
        let passing = f64::from(u8::try_from(PASSING)?);
        if self.files > files + PASSING || self.tasks > tasks + passing {
            let now = format!("{} files and {} tasks", self.files, self.tasks);
            return Err(format!("{now} after {files} and {tasks}").into());
        }
        let more: Vec<_> = self.series.iter().filter(|line| !series.contains(line)).collect();
        if more.is_empty() { Ok(()) } else { Err(format!("series that stay: {more:#?}").into()) }
    }
}
