//! What a table held before the changes that are provisional, so that they can be taken back.

use super::{
    contents::{Contents, Identity, Packed},
    heap::taken,
    record::{Packing, Record},
};
use crate::model::ResourceVersion;
use std::{collections::VecDeque, sync::Arc, time::Instant};

/// Changes that are remembered: at 50 a second, some 20 s of them, which is how often access is
/// verified.
const MAX_STEPS: usize = 1_024;

/// Bytes of former records that are remembered, packed as they were.
const MAX_BYTES: usize = 4 << 20;

/// The changes since access was last verified, oldest first. Beyond its bounds the oldest are
/// forgotten, and can be taken back only with everything else; so are those of secrets.
#[derive(Debug, Default)]
pub(super) struct Undo {
    steps: VecDeque<Step>,
    /// Bytes of the records among them; they count as the table's records, too.
    record_bytes: usize,
    /// Bytes allocated for names and odd identities.
    aside_bytes: usize,
    /// When the newest of those arrived that have been forgotten unverified.
    forgotten: Option<Instant>,
}

/// One change.
#[derive(Debug)]
pub(super) struct Step {
    arrived: Instant,
    /// The table's version before it.
    pub(super) version: Option<ResourceVersion>,
    pub(super) namespace: Arc<str>,
    pub(super) before: Before,
}

/// What there was.
#[derive(Debug)]
pub(super) enum Before {
    /// No object of this name.
    Absent(Box<str>),
    /// This one.
    Held(Identity, Record),
}

/// Memory that is given back once the table's lock is.
pub(super) type Gone = (Option<Record>, Vec<Step>);

/// Which row is about to change, and how the table stood.
#[derive(Debug)]
pub(super) struct Mark {
    arrived: Instant,
    version: Option<ResourceVersion>,
    namespace: Arc<str>,
    identity: Identity,
}

impl Undo {
    /// Whether nothing is provisional.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.forgotten.is_none()
    }

    /// What arrived then is not remembered.
    fn forget(&mut self, arrived: Instant) {
        self.forgotten = self.forgotten.max(Some(arrived));
    }

    /// Bytes allocated, without the records.
    pub(super) fn bytes(&self) -> usize {
        self.steps.capacity() * size_of::<Step>() + self.aside_bytes
    }

    /// What is to be undone, newest first; `None` if not all of it is remembered.
    pub(super) fn into_steps(self) -> Option<impl Iterator<Item = Step>> {
        self.forgotten.is_none().then(|| self.steps.into_iter().rev())
    }

    fn push(&mut self, step: Step) {
        self.record_bytes += step.record_bytes();
        self.aside_bytes += step.aside_bytes();
        self.steps.push_back(step);
    }

    fn pop(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        self.record_bytes -= step.record_bytes();
        self.aside_bytes -= step.aside_bytes();
        Some(step)
    }
}

impl Step {
    fn is_secret(&self) -> bool {
        match &self.before {
            Before::Absent(_) => false,
            Before::Held(_, record) => record.packing() == Packing::Secret,
        }
    }

    fn record_bytes(&self) -> usize {
        match &self.before {
            Before::Absent(_) => 0,
            Before::Held(_, record) => record.bytes(),
        }
    }

    fn aside_bytes(&self) -> usize {
        match &self.before {
            Before::Absent(name) => taken(name.len()),
            Before::Held(identity, _) => identity.text_bytes(),
        }
    }
}

impl Contents {
    /// How a row that is there stands, before something that arrived at `arrived` changes it.
    pub(super) fn mark(&self, number: u32, arrived: Option<Instant>) -> Option<Mark> {
        let arrived = arrived?;
        let namespace = self.namespaces.shared_name(self.slab.get(number)?.namespace);
        let identity = self.identity(number)?;
        Some(Mark { arrived, version: self.version.clone(), namespace, identity })
    }

    /// Parts with a record: for good, or, where its row was marked, until access is verified.
    pub(super) fn part(&mut self, mark: Option<Mark>, old: Record) -> Gone {
        let Some(Mark { arrived, version, namespace, identity }) = mark else {
            self.dismiss(&old);
            return (Some(old), Vec::new());
        };
        let before = Before::Held(identity, old);
        (None, self.remember(Step { arrived, version, namespace, before }))
    }

    /// As [`Contents::part`], of a row whose record stays.
    pub(super) fn keep(&mut self, number: u32, mark: Mark) -> Gone {
        let Some(copy) = self.slab.get(number).map(|row| row.record.clone()) else {
            return Gone::default();
        };
        let with = self.dictionary(copy.packing()).map(Arc::clone);
        let copy = self.admit(Packed { record: copy, with });
        self.part(Some(mark), copy)
    }

    /// Notes that there was no such object before.
    pub(super) fn was_absent(&mut self, arrived: Instant, namespace: &str, name: &str) -> Gone {
        let number = self.namespaces.number(namespace);
        let namespace = number.map_or_else(|| namespace.into(), |n| self.namespaces.shared_name(n));
        let (version, before) = (self.version.clone(), Before::Absent(name.into()));
        (None, self.remember(Step { arrived, version, namespace, before }))
    }

    fn remember(&mut self, step: Step) -> Vec<Step> {
        if step.is_secret() {
            // What was in it before is not kept a moment longer, for whatever purpose.
            self.undo.forget(step.arrived);
            self.let_go(&step);
            return vec![step];
        }
        self.undo.push(step);
        let mut gone = Vec::new();
        while self.undo.steps.len() > MAX_STEPS || self.undo.record_bytes > MAX_BYTES {
            let Some(oldest) = self.undo.pop() else { break };
            self.undo.forget(oldest.arrived);
            self.let_go(&oldest);
            gone.push(oldest);
        }
        gone
    }

    /// What arrived until `at` is provisional no more. Cost: some 20 ns a change, under the lock.
    pub(super) fn verified(&mut self, at: Instant) -> Vec<Step> {
        let mut gone = Vec::new();
        while self.undo.steps.front().is_some_and(|oldest| oldest.arrived <= at) {
            let Some(oldest) = self.undo.pop() else { break };
            self.let_go(&oldest);
            gone.push(oldest);
        }
        self.undo.forgotten = self.undo.forgotten.filter(|arrived| *arrived > at);
        if self.undo.is_empty() {
            self.undo = Undo::default();
        }
        gone
    }

    /// Nothing is provisional any more.
    pub(super) fn all_verified(&mut self) -> Undo {
        let undo = std::mem::take(&mut self.undo);
        undo.steps.iter().for_each(|step| self.let_go(step));
        undo
    }

    /// Counts the record of a step out.
    pub(super) fn let_go(&mut self, step: &Step) {
        if let Before::Held(_, record) = &step.before {
            self.dismiss(record);
        }
    }
}
