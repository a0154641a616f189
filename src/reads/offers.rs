//! What profiles offer to readers: their cells, and on which terms.

use crate::model::{
    CellKey, Declared, Mode, OnAccessLost, ProfileRef, Projection, ReadTerms, Resource,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What all profiles offer, by resource. Made anew when a profile, or what it comes to, changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    pub(super) by_resource: BTreeMap<Resource, Vec<Offering>>,
}

/// One cell of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offering {
    /// The profile.
    pub profile: ProfileRef,
    /// The cell.
    pub key: CellKey,
    /// Whether it is watched.
    pub mode: Mode,
    /// `freshness.maxStalenessSeconds`.
    pub max_staleness: Duration,
    /// `serving.consistency`, and what becomes of cold reads.
    pub reads: ReadTerms,
    /// `serving.onAccessLost`.
    pub on_access_lost: OnAccessLost,
}

impl Offers {
    /// Of these profiles.
    ///
    /// Both the declared cells and those that answer until these are synced: what is contained in either
    /// is declared, and what is contained in the former alone is waited for.
    #[must_use]
    pub fn of<'a>(profiles: impl IntoIterator<Item = &'a Declared>) -> Self {
        let mut by_resource: BTreeMap<Resource, Vec<Offering>> = BTreeMap::new();
        for profile in profiles {
            if profile.mode == Mode::Plan {
                continue;
            }
            let targets = profile.targets.iter().filter(|target| !target.is_stopped());
            let cells = targets.flat_map(|target| {
                let serving = target.serving.iter().flat_map(|serving| &*serving.cells);
                target.cells.iter().chain(serving)
            });
            let cells: BTreeSet<_> = cells.collect();
            for key in cells.into_iter().filter(|key| key.projection != Projection::Profile) {
                by_resource.entry(key.resource.clone()).or_default().push(Offering {
                    profile: profile.profile.clone(),
                    key: key.clone(),
                    mode: profile.mode,
                    max_staleness: profile.max_staleness,
                    reads: profile.reads,
                    on_access_lost: profile.on_access_lost,
                });
            }
        }
        Self { by_resource }
    }

    /// The cells of a resource.
    #[must_use]
    pub fn cells(&self, resource: &Resource) -> &[Offering] {
        self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// The resources of which there are any; of `profile` alone, if one is named.
    pub fn resources(&self, profile: Option<&ProfileRef>) -> impl Iterator<Item = &Resource> {
        let is_of = move |cells: &[Offering]| {
            profile.is_none_or(|profile| cells.iter().any(|cell| cell.profile == *profile))
        };
        self.by_resource.iter().filter(move |(_, cells)| is_of(cells)).map(|(resource, _)| resource)
    }
}
