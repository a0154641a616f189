//! Faults that the test plants into copies of a run's observations. The judge must find each of
//! them, so that a judge that finds nothing fails the run.

use crate::judge::FindingKind;
use crate::observation::{Observation, ObservedContent, ReaderId};

/// A fault of a cache, which the test simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlantedFault {
    DroppedEvent,
    SwappedEvents,
    ReplayedEvent,
    EmptyList,
    /// A response that claims to be fresh gets the content of a response that is at least 15 s
    /// older.
    LateAnswer,
    WrongVersion,
    /// A watch stays open and brings nothing more.
    SilentWatch,
}

pub(crate) const PLANTED_FAULTS: [PlantedFault; 7] = [
    PlantedFault::DroppedEvent,
    PlantedFault::SwappedEvents,
    PlantedFault::ReplayedEvent,
    PlantedFault::EmptyList,
    PlantedFault::LateAnswer,
    PlantedFault::WrongVersion,
    PlantedFault::SilentWatch,
];

/// How much older the content of a late answer is, in milliseconds.
const LATE: u64 = 15_000;
/// The number of changes that a silent watch does not bring.
const SILENCED: usize = 5;

impl PlantedFault {
    /// For this fault, the judge must report at least one of these kinds of findings.
    pub(crate) fn shown_by(self) -> &'static [FindingKind] {
        match self {
            Self::DroppedEvent | Self::SwappedEvents | Self::ReplayedEvent => {
                &[FindingKind::WatchBroke]
            }
            Self::EmptyList | Self::WrongVersion => &[FindingKind::NeverExisted],
            Self::LateAnswer => &[FindingKind::OldUndeclared, FindingKind::OldStrict],
            Self::SilentWatch => &[FindingKind::Silent],
        }
    }

    /// Plants the fault into a copy of the observations. `None` if no observation is suitable for
    /// it.
    pub(crate) fn plant(self, observations: &[Observation]) -> Option<Vec<Observation>> {
        let mut planted = observations.to_vec();
        match self {
            Self::DroppedEvent => {
                let (first, _) = neighbours(&planted)?;
                planted.remove(first);
            }
            Self::SwappedEvents => {
                let (first, second) = neighbours(&planted)?;
                let content = planted[first].content.clone();
                planted[first].content = planted[second].content.clone();
                planted[second].content = content;
            }
            Self::ReplayedEvent => {
                let (first, _) = neighbours(&planted)?;
                planted.insert(first + 1, planted[first].clone());
            }
            Self::EmptyList => {
                let lists =
                    planted.iter_mut().filter_map(|observation| observation.content.list_mut());
                lists.map(|(_, objects)| objects).find(|objects| !objects.is_empty())?.clear();
            }
            Self::LateAnswer => {
                let (late, content) = late_answer(&planted)?;
                planted[late].content = content;
            }
            Self::WrongVersion => {
                let (version, _) = planted
                    .iter_mut()
                    .rev()
                    .find_map(|observation| observation.content.list_mut())?;
                *version += 1_000_000;
            }
            Self::SilentWatch => silence(&mut planted)?,
        }
        Some(planted)
    }
}

fn is_event(observation: &Observation) -> bool {
    matches!(observation.content, ObservedContent::Event { .. })
}

/// The indexes of two successive events of one watch, near the middle of the run.
fn neighbours(observations: &[Observation]) -> Option<(usize, usize)> {
    let watch_of = |observation: &Observation| (observation.reader.clone(), observation.collection);
    (observations.len() / 2..observations.len()).find_map(|first| {
        let watch = watch_of(&observations[first]);
        let mut later =
            (first + 1..observations.len()).filter(|at| watch_of(&observations[*at]) == watch);
        let second = later.next()?;
        (is_event(&observations[first]) && is_event(&observations[second]))
            .then_some((first, second))
    })
}

/// The index of a response that a store gave and that claims to be fresh, and the content of an
/// older response to the same request.
fn late_answer(observations: &[Observation]) -> Option<(usize, ObservedContent)> {
    let lists = |observation: &Observation| {
        let ObservedContent::List { age, at_least: 0, objects, form, .. } = &observation.content
        else {
            return None;
        };
        let is_fresh = age.freshness.is_some_and(|age| age < 5_000);
        is_fresh
            .then(|| (observation.reader.clone(), observation.collection, *form, objects.clone()))
    };
    observations.iter().enumerate().rev().find_map(|(at, late)| {
        let (reader, collection, form, objects) = lists(late)?;
        let is_older = |earlier: &&Observation| {
            earlier.arrived + LATE < late.arrived
                && lists(earlier).is_some_and(|(by, place, as_form, contents)| {
                    (by, place, as_form) == (reader.clone(), collection, form)
                        && contents != objects
                })
        };
        let earlier = observations[..at].iter().rev().find(is_older)?;
        Some((at, with_age_of(&earlier.content, &late.content)?))
    })
}

fn with_age_of(content: &ObservedContent, late: &ObservedContent) -> Option<ObservedContent> {
    let ObservedContent::List { age: stated, .. } = late else { return None };
    let mut content = content.clone();
    let ObservedContent::List { age, .. } = &mut content else { return None };
    *age = *stated;
    Some(content)
}

/// Removes the last events of a watch, and everything that follows these events.
fn silence(observations: &mut Vec<Observation>) -> Option<()> {
    let last = observations.iter().rposition(is_event)?;
    let watch: (ReaderId, usize) =
        (observations[last].reader.clone(), observations[last].collection);
    let is_of = |observation: &Observation| {
        observation.reader == watch.0 && observation.collection == watch.1
    };
    let events = (0..observations.len()).rev();
    let first = events.filter(|at| is_of(&observations[*at]) && is_event(&observations[*at]));
    let first = first.take(SILENCED).last()?;
    let mut at = 0;
    observations.retain(|observation| {
        at += 1;
        at <= first || !is_of(observation)
    });
    Some(())
}
