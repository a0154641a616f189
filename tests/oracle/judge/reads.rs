//! Judges the responses to gets and lists.

use std::collections::BTreeMap;

use crate::collection::STRICT;
use crate::history::Timeline;
use crate::observation::{
    ChangeType, CollectionIndex, Form, Millis, ObjectState, Observation, ObservedContent, ReaderId,
    StatedAge,
};

use super::{AGE_TOLERANCE, FindingKind, MAX_STALENESS, SLACK, Verdict};

/// The newest state that a reader has seen at a replica. The reader's later reads must not return
/// an older state.
#[derive(Clone, Copy, Debug)]
struct ReadFloor {
    epoch: usize,
    revision: u64,
    at: Millis,
}

/// How long a replica remembers the versions that a reader has seen: 1 minute, less the time
/// between two reads. After this time, a read may return an older state.
const REMEMBERED: Millis = 50_000;

/// The states that each reader has seen, by collection.
#[derive(Debug, Default)]
pub(super) struct ReadFloors(BTreeMap<(ReaderId, CollectionIndex), ReadFloor>);

/// An epoch in which the response is right.
#[derive(Clone, Copy, Debug)]
struct Match {
    epoch: usize,
    /// The revision of the returned state. If the response says that the object is absent, the
    /// state is that of this revision or an earlier one. `None` if the object is still absent at
    /// the end of the epoch.
    revision: Option<u64>,
    /// When it was known that a newer state had replaced the returned state.
    replaced: Option<Millis>,
}

impl ReadFloors {
    pub(super) fn judge(
        &mut self,
        observation: &Observation,
        timelines: &[Timeline<'_>],
        verdict: &mut Verdict,
    ) {
        let is_strict = observation.collection == STRICT;
        let default = if is_strict { ReadPromise::EarlierWrites } else { ReadPromise::Age };
        let (name, promised, matches) = match &observation.content {
            ObservedContent::List { form, version, at_least, objects, age } => {
                if version < at_least {
                    let text = format!("a list of version {version} instead of {at_least}");
                    verdict.find(FindingKind::TooOld, observation, &text);
                }
                let promise = if *at_least > 0 { ReadPromise::Version } else { default };
                (None, (promise, *age), lists(timelines, observation, (*version, *form), objects))
            }
            ObservedContent::Get { name, object, age } => {
                (Some(name.as_str()), (default, *age), gets(timelines, observation, name, *object))
            }
            ObservedContent::Written { name, version } => {
                let is_stored = |timeline: &Timeline<'_>| {
                    timeline.epoch.began <= observation.arrived
                        && timeline
                            .after(version - 1, Some(name))
                            .any(|change| change.revision == *version)
                };
                let Some(epoch) = timelines.iter().rposition(is_stored) else {
                    let text = format!("{name} was accepted at {version}, and is not stored");
                    return verdict.find(FindingKind::NeverExisted, observation, &text);
                };
                self.raise(observation, epoch, *version);
                return;
            }
            ObservedContent::Refused { .. }
            | ObservedContent::Malformed
            | ObservedContent::WatchOpened { .. }
            | ObservedContent::Event { .. }
            | ObservedContent::Bookmark { .. } => return,
        };
        // A restore keeps earlier states, so a response can be right in several epochs. The judge
        // uses the epoch in which the returned state stayed the newest for longest.
        let newest =
            |candidate: &&Match| (candidate.replaced.unwrap_or(Millis::MAX), candidate.epoch);
        let Some(best) = matches.iter().max_by_key(newest) else {
            verdict.find(FindingKind::NeverExisted, observation, &describe(&observation.content));
            return;
        };
        judge_age(observation, promised, best.replaced, verdict);
        if let Some(revision) = best.revision {
            // The order of reads does not apply to a read with a version, because its caller
            // accepts this version.
            if !matches!(promised.0, ReadPromise::Version) {
                self.judge_order(observation, (best.epoch, revision, name), timelines, verdict);
            }
            // A response without an object names no version, so later reads cannot contradict it.
            if !is_absent(&observation.content) {
                self.raise(observation, best.epoch, revision);
            }
        }
    }

    fn judge_order(
        &self,
        observation: &Observation,
        (epoch, revision, name): (usize, u64, Option<&str>),
        timelines: &[Timeline<'_>],
        verdict: &mut Verdict,
    ) {
        let key = (observation.reader.clone(), observation.collection);
        let Some(floor) = self.0.get(&key) else { return };
        if floor.epoch != epoch || observation.sent.saturating_sub(floor.at) > REMEMBERED {
            return;
        }
        let lost = timelines[epoch].after(revision, name).next();
        if let Some(lost) = lost.filter(|lost| lost.revision <= floor.revision) {
            let text = format!(
                "version {revision} lacks {} at {}, and {} was seen before: {}",
                lost.name,
                lost.revision,
                floor.revision,
                describe(&observation.content)
            );
            verdict.find(FindingKind::WentBack, observation, &text);
        }
    }

    fn raise(&mut self, observation: &Observation, epoch: usize, revision: u64) {
        let key = (observation.reader.clone(), observation.collection);
        let at = observation.arrived;
        let floor = self.0.entry(key).or_insert(ReadFloor { epoch, revision, at });
        if (epoch, revision) >= (floor.epoch, floor.revision) {
            *floor = ReadFloor { epoch, revision, at };
        }
    }
}

/// The epochs in which the collection had exactly these objects at `version`.
fn lists(
    timelines: &[Timeline<'_>],
    observation: &Observation,
    (version, form): (u64, Form),
    objects: &BTreeMap<String, ObjectState>,
) -> Vec<Match> {
    let is_right = |timeline: &Timeline<'_>| {
        let expected = timeline.objects(version, form);
        timeline.epoch.began <= observation.arrived
            && version <= timeline.epoch.head
            && expected.len() == objects.len()
            && expected.iter().all(|(name, state)| objects.get(*name) == Some(state))
    };
    let right = timelines.iter().enumerate().filter(|(_, timeline)| is_right(timeline));
    right
        .map(|(epoch, timeline)| {
            let replaced = timeline.replaced(version, None);
            Match { epoch, revision: Some(version), replaced }
        })
        .collect()
}

/// The epochs in which the object had this state. `object` is `None` if the response says that the
/// object is absent.
fn gets(
    timelines: &[Timeline<'_>],
    observation: &Observation,
    name: &str,
    object: Option<ObjectState>,
) -> Vec<Match> {
    let find = |(epoch, timeline): (usize, &Timeline<'_>)| {
        let Some(state) = object else {
            // After a restore, the recorder starts later than the API server. Then it records all
            // earlier changes at once, with a time that is too late.
            let recorded = timeline.epoch.changes.first().map_or(0, |first| first.known);
            let known_by = observation.arrived.max(recorded) + SLACK;
            let creation = timeline.creation(name, known_by);
            let replaced = creation.map(|creation| creation.known);
            let replaced = replaced.into_iter().chain(timeline.epoch.ended).min();
            let revision = creation.map(|creation| creation.revision - 1);
            return Some(Match { epoch, revision, replaced });
        };
        let is_named = timeline.after(state.version - 1, None).next()?.name == name;
        let (change, stored) = timeline.change(state.version, Form::Whole)?;
        let replaced = timeline.replaced(state.version, Some(name));
        (is_named && stored == state && change != ChangeType::Deleted).then_some(Match {
            epoch,
            revision: Some(state.version),
            replaced,
        })
    };
    let begun = timelines.iter().enumerate();
    let begun = begun.filter(|(_, timeline)| timeline.epoch.began <= observation.arrived);
    begun.filter_map(find).collect()
}

/// What a read promises about the age of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPromise {
    /// The response is at most `maxStalenessSeconds` old, and at most as old as it states.
    Age,
    /// The response contains every write before the read.
    EarlierWrites,
    /// The response has at least the version that the reader names.
    Version,
}

fn judge_age(
    observation: &Observation,
    (promise, StatedAge { freshness, has_warning }): (ReadPromise, StatedAge),
    replaced: Option<Millis>,
    verdict: &mut Verdict,
) {
    let Some(replaced) = replaced else { return };
    let real = observation.arrived.saturating_sub(replaced);
    verdict.oldest = verdict.oldest.max(real);
    let limit = match (promise, freshness) {
        // A response without an object has no freshness header, so only the profile's staleness
        // limit applies.
        (ReadPromise::Age, None) if is_absent(&observation.content) => MAX_STALENESS,
        (ReadPromise::Version, Some(freshness)) if has_warning => freshness,
        (ReadPromise::Age | ReadPromise::Version, Some(freshness)) => freshness.min(MAX_STALENESS),
        (ReadPromise::Version, None) => return,
        // A response without the freshness header comes from the API server, which promises every
        // earlier write.
        (ReadPromise::EarlierWrites, _) | (ReadPromise::Age, None) => {
            if replaced < observation.sent {
                let text = format!("{real} ms old: {}", describe(&observation.content));
                verdict.find(FindingKind::OldStrict, observation, &text);
            }
            return;
        }
    };
    if real > limit + AGE_TOLERANCE {
        let what = describe(&observation.content);
        let text = format!("{real} ms old, states {freshness:?}, warning: {has_warning}: {what}");
        verdict.find(FindingKind::OldUndeclared, observation, &text);
    }
}

fn is_absent(content: &ObservedContent) -> bool {
    matches!(content, ObservedContent::Get { object: None, .. })
}

/// The answer in words.
fn describe(content: &ObservedContent) -> String {
    match content {
        ObservedContent::List { version, objects, .. } => {
            let objects: Vec<_> =
                objects.iter().map(|(name, object)| format!("{name}@{}", object.version)).collect();
            format!("list {version}: {}", objects.join(" "))
        }
        ObservedContent::Get { name, object, .. } => {
            let version =
                object.map_or_else(|| "absent".to_owned(), |object| object.version.to_string());
            format!("get {name}: {version}")
        }
        ObservedContent::Refused { .. }
        | ObservedContent::Malformed
        | ObservedContent::Written { .. }
        | ObservedContent::WatchOpened { .. }
        | ObservedContent::Event { .. }
        | ObservedContent::Bookmark { .. } => format!("{content:?}"),
    }
}
