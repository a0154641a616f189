//! The rules of each place: what they mean for the cells there, and what is too much.

use super::{Book, REVIEW, Spot};
use crate::access::{
    evidence::{Evidence, Word, jittered, lacks_token},
    excess::{Excess, Needed, excess},
    limits::Class,
    rules::{Need, VERBS, opinion, place},
};
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Fault, Reason};
use kubewarm_client::{Completeness, ReviewedRules};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Between two reviews of the rules of a place that are incomplete: they are for the excess only.
const INCOMPLETE: Duration = Duration::from_mins(5);

/// What is known of one.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) payer: Arc<str>,
    pub(super) due: Option<Instant>,
    /// Of the cells here; before anything is known, as if they were held.
    pub(super) class: Class,
    rules: Option<ReviewedRules>,
    /// Whether the last review came to nothing.
    has_failed: bool,
    excess: Option<Arc<Excess>>,
}

impl Book {
    /// Makes the places follow the cells, and recomputes what is too much where something else is
    /// needed than before.
    pub(super) fn survey(&mut self, now: Instant) {
        let mut old = std::mem::take(&mut self.spots);
        for cell in self.cells.values_mut() {
            let place = self.spots.entry(cell.spot.clone()).or_insert_with(|| {
                old.remove(&cell.spot).unwrap_or_else(|| Place {
                    payer: Arc::clone(&cell.payer),
                    due: Some(now),
                    class: Class::Held,
                    rules: None,
                    has_failed: false,
                    excess: None,
                })
            });
            let rules = place.rules.as_ref();
            if rules.is_some_and(|rules| rules.completeness == Completeness::Incomplete) {
                cell.review.get_or_insert(now);
            }
        }
        let before = std::mem::take(&mut self.needed);
        for key in self.cells.keys().chain(&self.unchecked) {
            let here = self.needed.entry((key.identity.clone(), place(key))).or_default();
            here.entry(key.resource.group_resource().clone()).or_default().extend(VERBS);
        }
        for (spot, place) in &mut self.spots {
            let across = (spot.0.clone(), None);
            if [spot, &across].iter().any(|spot| before.get(spot) != self.needed.get(spot)) {
                place.compare(spot, &self.needed);
            }
        }
    }

    /// Takes the rules of a place in.
    pub(super) fn ruled(
        &mut self,
        spot: &Spot,
        answer: Result<ReviewedRules, Fault>,
        (sent, now, wall): (Instant, Instant, Timestamp),
        told: &mut Vec<(CellKey, Word)>,
    ) {
        let spread = (self.spread)();
        let Some(place) = self.spots.get_mut(spot) else { return };
        let had_failed = std::mem::replace(&mut place.has_failed, answer.is_err());
        let mut period = None;
        let rules = match answer {
            Ok(rules) => rules,
            // This server does not answer such reviews, or not for this place.
            Err(fault) if is_permanent(fault.reason()) => {
                ReviewedRules { rules: Vec::new(), completeness: Completeness::Incomplete }
            }
            Err(fault) => {
                let here = self.cells.values_mut().filter(|cell| cell.spot == *spot);
                here.for_each(|cell| cell.evidence.doubt(&fault, sent, now));
                // Without a token, no other review is answered either.
                let is_over = had_failed && !lacks_token(fault.reason())
                    || fault.reason() == Reason::TooLarge;
                if !is_over {
                    place.due.get_or_insert_with(|| now + jittered(REVIEW, spread));
                    return;
                }
                // The cells go on without it. What was too much is taken to be that still.
                period = Some(REVIEW);
                let rules = place.rules.as_ref().map(|known| known.rules.clone());
                ReviewedRules {
                    rules: rules.unwrap_or_default(),
                    completeness: Completeness::Incomplete,
                }
            }
        };
        let period = match rules.completeness {
            Completeness::Complete => REVIEW,
            Completeness::Incomplete => period.unwrap_or(INCOMPLETE),
        };
        place.due.get_or_insert_with(|| now + jittered(period, spread));
        let is_new = place.rules.as_ref() != Some(&rules);
        place.class = Class::Sought;
        for (key, cell) in self.cells.iter_mut().filter(|(_, cell)| cell.spot == *spot) {
            cell.review = match rules.completeness {
                Completeness::Complete => None,
                Completeness::Incomplete => cell.review.or(Some(now)),
            };
            for verb in VERBS {
                if let Some(allowed) = opinion(&rules, &Need::of(key, verb)) {
                    let words = cell.evidence.reviewed(verb, allowed, sent, now, wall);
                    told.extend(words.into_iter().map(|word| (key.clone(), word)));
                }
            }
            place.join(&cell.evidence);
        }
        place.rules = Some(rules);
        if is_new {
            place.compare(spot, &self.needed);
        }
    }

    /// What is too much in a place; `None` before its rules are known.
    pub(in crate::access) fn excess(&self, spot: &Spot) -> Option<Arc<Excess>> {
        self.spots.get(spot)?.excess.clone()
    }
}

impl Place {
    /// Checks here go with those of the cell, if these go first.
    pub(super) fn join(&mut self, cell: &Evidence) {
        self.class = self.class.min(cell.class());
    }

    /// Whether the rules are all there is; `None` before they are known.
    pub(super) fn completeness(&self) -> Option<Completeness> {
        self.rules.as_ref().map(|rules| rules.completeness)
    }

    /// Computes what is too much here: what is needed across the cluster is needed here, too.
    fn compare(&mut self, (identity, here): &Spot, needed: &BTreeMap<Spot, Needed>) {
        let Some(rules) = &self.rules else { return };
        let mut all = Needed::new();
        for place in [None, here.clone()] {
            for (of, verbs) in needed.get(&(identity.clone(), place)).into_iter().flatten() {
                all.entry(of.clone()).or_default().extend(verbs);
            }
        }
        self.excess = Some(Arc::new(excess(rules, &all)));
    }
}

/// Whether asking again will hardly help.
pub(super) fn is_permanent(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Forbidden | Reason::NotServed | Reason::NotListable | Reason::Unsupported
    )
}
