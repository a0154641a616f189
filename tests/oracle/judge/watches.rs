//! Judges watches: each must bring every change after its version once, and in order.

use std::collections::BTreeMap;

use crate::history::Timeline;
use crate::observation::{CollectionIndex, Observation, ObservedContent, ReaderId};

use super::{FindingKind, LATEST_EVENT, RunTimes, Timelines, Verdict};

/// How far the judge has followed a watch.
#[derive(Clone, Debug)]
struct JudgedWatch {
    /// The epochs in which all changes that the watch has brought so far are right.
    epochs: Vec<usize>,
    position: u64,
    last: Observation,
}

#[derive(Debug, Default)]
pub(super) struct JudgedWatches(BTreeMap<(ReaderId, CollectionIndex), JudgedWatch>);

impl JudgedWatches {
    pub(super) fn judge(
        &mut self,
        observation: &Observation,
        timelines: &[Timeline<'_>],
        times: &RunTimes,
        verdict: &mut Verdict,
    ) {
        let key = (observation.reader.clone(), observation.collection);
        let all = || (0..timelines.len()).collect::<Vec<_>>();
        if let ObservedContent::WatchOpened { version, resumes } = observation.content {
            if !resumes {
                let last = observation.clone();
                self.0.insert(key, JudgedWatch { epochs: all(), position: version, last });
            }
            return;
        }
        let Some(session) = self.0.get_mut(&key) else { return };
        let Some(version) = version_of(&observation.content) else { return };
        let position = session.position;
        session.epochs.retain(|epoch| follows(&observation.content, &timelines[*epoch], position));
        if session.epochs.is_empty() {
            let text = format!("after {}: {:?}", session.position, observation.content);
            verdict.find(FindingKind::WatchBroke, observation, &text);
            session.epochs = all();
        } else if let Some(epoch) = session.epochs.last()
            && let ObservedContent::Event { .. } = observation.content
            && let Some(change) = timelines[*epoch].after(session.position, None).next()
            && change.known >= times.calm
            && observation.arrived > change.known + LATEST_EVENT
        {
            let late = observation.arrived - change.known;
            let text = format!("{} came {late} ms late", change.revision);
            verdict.find(FindingKind::Silent, observation, &text);
        }
        session.position = version;
        session.last = observation.clone();
    }

    /// Checks at the end of the run that each watch has brought all changes.
    pub(super) fn finish(
        &self,
        timelines: &Timelines<'_>,
        times: &RunTimes,
        verdict: &mut Verdict,
    ) {
        for ((_, collection), session) in &self.0 {
            let timelines = &timelines[*collection];
            let Some(newest) = timelines.last() else { continue };
            let missing = newest.after(session.position, None).next();
            let is_of_newest = session.epochs.contains(&(timelines.len() - 1));
            if missing.is_some() || !is_of_newest {
                let mut last = session.last.clone();
                last.arrived = times.end;
                let missing = missing.map(|change| (change.revision, &change.name));
                let text = format!("ends at {} without {missing:?}", session.position);
                verdict.find(FindingKind::Silent, &last, &text);
            }
        }
    }
}

/// The version of an event or a bookmark.
fn version_of(content: &ObservedContent) -> Option<u64> {
    match content {
        ObservedContent::Event { object, .. } => Some(object.version),
        ObservedContent::Bookmark { version } => Some(*version),
        ObservedContent::Refused { .. }
        | ObservedContent::Malformed
        | ObservedContent::List { .. }
        | ObservedContent::Get { .. }
        | ObservedContent::Written { .. }
        | ObservedContent::WatchOpened { .. } => None,
    }
}

/// Whether an event or a bookmark is the next one after a version.
fn follows(content: &ObservedContent, timeline: &Timeline<'_>, position: u64) -> bool {
    let next = timeline.after(position, None).next();
    if let ObservedContent::Event { form, change, name, object } = content {
        let is_next =
            next.is_some_and(|next| next.revision == object.version && next.name == *name);
        return is_next && timeline.change(object.version, *form) == Some((*change, *object));
    }
    version_of(content).is_some_and(|version| {
        (position..=timeline.epoch.head).contains(&version)
            && next.is_none_or(|next| next.revision > version)
    })
}
