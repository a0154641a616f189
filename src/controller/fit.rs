//! Which targets fit into which limits. Pure.

use super::share::{Share, held};
use crate::model::{Bound, Measure, Overrun, ProfileRef};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// What the tables may take, in bytes; `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBounds {
    /// All together.
    pub process: Option<u64>,
    /// Those that the profiles of one namespace declare, other than the operator's own.
    pub namespace: Option<u64>,
}

/// What is held by what is no target, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// By all of that.
    pub(super) process: u64,
    /// By the statuses of the profiles of each namespace, other than the operator's own.
    pub(super) statuses: BTreeMap<Arc<str>, u64>,
}

/// A limit, and what it is for.
struct Cap {
    bound: Bound,
    measure: Measure,
    limit: u64,
    /// Held by what is no target.
    beside: u64,
}

/// The targets that give way, by their place among `shares`, and what they exceed.
///
/// Every profile is held to its own limits first, then every namespace to its part, then all of them
/// to what the process may hold. `beside` them there is what is held by what is no target.
///
/// Of a profile's targets, one that is still being listed gives way before those that are complete,
/// then that of the lowest priority, then the largest; of those, where there are any, without which
/// the rest fits. Where several profiles are held together the one that holds most gives way, and of
/// several namespaces likewise; priorities of different profiles are not compared, since everybody
/// would choose the highest.
///
/// Tables that answer for an edited target until it is synced count with it, and go with it.
pub(super) fn fit(
    shares: &[Share],
    bounds: MemoryBounds,
    beside: &Beside,
) -> BTreeMap<usize, Overrun> {
    let mut out = BTreeMap::new();
    let mut profiles: BTreeMap<ProfileRef, Vec<usize>> = BTreeMap::new();
    let mut namespaces: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    for (at, share) in shares.iter().enumerate() {
        profiles.entry(share.profile.clone()).or_default().push(at);
        if share.is_tenants {
            namespaces.entry(Arc::clone(&share.profile.namespace)).or_default().push(at);
        }
    }
    for members in profiles.values() {
        let limits = members.first().and_then(|&at| shares.get(at)).map(|share| share.limits);
        let limits = limits.unwrap_or_default();
        for (measure, limit) in
            [(Measure::Objects, limits.max_objects), (Measure::Memory, limits.max_bytes)]
        {
            let Some(limit) = limit else { continue };
            let cap = Cap { bound: Bound::Profile, measure, limit, beside: 0 };
            squeeze(shares, members, &cap, &mut out);
        }
    }
    if let Some(limit) = bounds.namespace {
        for (namespace, members) in &namespaces {
            let beside = beside.statuses.get(namespace).copied().unwrap_or(0);
            let cap = Cap { bound: Bound::Namespace, measure: Measure::Memory, limit, beside };
            squeeze(shares, members, &cap, &mut out);
        }
    }
    if let Some(limit) = bounds.process {
        let all: Vec<_> = (0..shares.len()).collect();
        let cap =
            Cap { bound: Bound::Process, measure: Measure::Memory, limit, beside: beside.process };
        squeeze(shares, &all, &cap, &mut out);
    }
    out
}

/// Takes targets out until the rest fits.
fn squeeze(shares: &[Share], members: &[usize], cap: &Cap, out: &mut BTreeMap<usize, Overrun>) {
    while let Some((victim, overrun)) = victim(shares, members, cap, out) {
        out.insert(victim, overrun);
    }
}

/// The target that gives way; `None` if all fit.
fn victim(
    shares: &[Share],
    members: &[usize],
    cap: &Cap,
    out: &BTreeMap<usize, Overrun>,
) -> Option<(usize, Overrun)> {
    let Cap { bound, measure, .. } = *cap;
    let kept: Vec<_> = members
        .iter()
        .filter(|at| !out.contains_key(at))
        .filter_map(|&at| Some((at, shares.get(at)?)))
        .collect();
    let without = |victim: Option<usize>| {
        let left = kept.iter().filter(|(at, _)| Some(*at) != victim);
        held(left.flat_map(|(_, share)| share.counted(bound, measure)), measure)
            .saturating_add(cap.beside)
    };
    if without(None) <= cap.limit {
        return None;
    }
    // Tenants before the operator's own namespace: who may write there is trusted.
    let group =
        largest(&kept, cap, |share| (share.is_tenants, Arc::clone(&share.profile.namespace)));
    let candidates =
        largest(&group, cap, |share| (share.is_tenants, Arc::clone(&share.profile.name)));
    let (at, share) = pick(&candidates, cap, |at| without(Some(at)) <= cap.limit)?;
    // What all its objects will take does not follow from bytes that are not only theirs.
    let has_more = measure == Measure::Memory && share.namespaces.is_some();
    let overrun = Overrun {
        bound,
        measure,
        limit: cap.limit,
        reached: held(share.own(bound, measure), measure),
        others: without(Some(at)),
        objects: held(&share.gauges, Measure::Objects),
        expected: share.expected.filter(|_| share.is_synced || !has_more),
    };
    Some((at, overrun))
}

/// Those of the group that holds most, of the groups that `by` makes; any that begins with `true`
/// comes before all others that hold something.
fn largest<'a>(
    kept: &[(usize, &'a Share)],
    &Cap { bound, measure, .. }: &Cap,
    by: impl Fn(&Share) -> (bool, Arc<str>),
) -> Vec<(usize, &'a Share)> {
    let mut groups: BTreeMap<_, Vec<(usize, &Share)>> = BTreeMap::new();
    for &(at, share) in kept {
        groups.entry(by(share)).or_default().push((at, share));
    }
    let weigh = |group: &Vec<(usize, &Share)>| {
        held(group.iter().flat_map(|(_, share)| share.counted(bound, measure)), measure)
    };
    groups
        .into_iter()
        .map(|((first, _), group)| ((first && weigh(&group) > 0, weigh(&group)), group))
        .max_by_key(|(weight, _)| *weight)
        .map(|(_, group)| group)
        .unwrap_or_default()
}

/// Which of a profile's targets gives way; `None` if none of them holds anything.
fn pick<'a>(
    candidates: &[(usize, &'a Share)],
    &Cap { bound, measure, .. }: &Cap,
    suffices: impl Fn(usize) -> bool,
) -> Option<(usize, &'a Share)> {
    let size = |share: &Share| held(share.counted(bound, measure), measure);
    let holding = || candidates.iter().filter(|(_, share)| size(share) > 0);
    let enough = holding().filter(|(at, _)| suffices(*at)).min_by_key(|(at, share)| {
        (share.is_synced, share.priority, Reverse(size(share)), Reverse(*at))
    });
    enough
        .or_else(|| holding().max_by_key(|(_, share)| (size(share), Reverse(share.priority))))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gauge, Limits};

    const MIB: u64 = 1 << 20;

    fn gauge(objects: u64, bytes: u64) -> Arc<Gauge> {
        let gauge = Gauge::default();
        gauge.set(objects, bytes);
        Arc::new(gauge)
    }

    /// A synced target of 1 KiB an object in `namespace/profile`.
    fn share(profile: &str, target: &str, objects: u64) -> Share {
        let (namespace, name) = profile.split_once('/').unwrap();
        Share {
            profile: ProfileRef { namespace: namespace.into(), name: name.into() },
            uid: "u".into(),
            generation: 1,
            target: target.into(),
            is_tenants: namespace != "kubewarm-system",
            limits: Limits::default(),
            priority: 500,
            is_synced: true,
            expected: None,
            cells: [].into(),
            gauges: vec![gauge(objects, objects << 10)],
            old: Vec::new(),
            namespaces: None,
        }
    }

    fn limited(shares: Vec<Share>, max_objects: u64) -> Vec<String> {
        let limits = Limits { max_objects: Some(max_objects), ..Limits::default() };
        let shares: Vec<_> = shares.into_iter().map(|s| Share { limits, ..s }).collect();
        names(&shares, MemoryBounds::default())
    }

    fn names(shares: &[Share], bounds: MemoryBounds) -> Vec<String> {
        let out = fit(shares, bounds, &Beside::default());
        out.keys().map(|&at| format!("{}/{}", shares[at].profile, shares[at].target)).collect()
    }

    #[test]
    fn a_target_that_is_still_listed_gives_way_to_those_that_are_complete() {
        let runaway = Share { is_synced: false, priority: 900, ..share("a/p", "runaway", 9_600) };
        let out = limited(vec![share("a/p", "small", 500), runaway], 10_000);
        assert_eq!(out, ["a/p/runaway"]);
    }

    #[test]
    fn then_the_lowest_priority_and_the_largest_give_way() {
        let low = Share { priority: 1, ..share("a/p", "low", 400) };
        let shares = [share("a/p", "x", 5_000), low.clone(), share("a/p", "y", 5_000)];
        assert_eq!(limited(shares.to_vec(), 10_000), ["a/p/low"]);
        assert_eq!(
            limited(shares.to_vec(), 6_000),
            ["a/p/y"],
            "one that suffices, where there is one"
        );
        // Without a target that is too small to matter nothing is won.
        assert_eq!(limited(vec![low, share("a/p", "x", 11_000)], 10_000), ["a/p/x"]);
    }

    #[test]
    fn just_the_limit_fits_and_others_have_no_part_in_it() {
        assert!(limited(vec![share("a/p", "x", 10_000)], 10_000).is_empty());
        assert!(
            limited(vec![share("a/p", "x", 9_000), share("a/q", "x", 9_000)], 10_000).is_empty()
        );
    }

    #[test]
    fn a_cell_of_two_targets_counts_once() {
        let gauges = vec![gauge(6_000, 0)];
        let (x, y) = (share("a/p", "x", 0), share("a/p", "y", 0));
        let shares = vec![Share { gauges: gauges.clone(), ..x }, Share { gauges, ..y }];
        assert!(limited(shares, 10_000).is_empty());
    }

    #[test]
    fn a_namespace_keeps_to_its_part_and_the_operators_own_has_none() {
        let bounds = MemoryBounds { process: None, namespace: Some(4 * MIB) };
        let shares = [
            share("a/p", "x", 3_000),
            share("a/q", "y", 2_000),
            share("b/p", "z", 4_000),
            share("kubewarm-system/p", "all", 90_000),
        ];
        assert_eq!(names(&shares, bounds), ["a/p/x"]);
    }

    #[test]
    fn the_statuses_of_a_namespace_take_their_part_of_what_it_has() {
        let bounds = MemoryBounds { process: None, namespace: Some(4 * MIB) };
        let shares = [share("a/p", "x", 3_000), share("b/p", "y", 3_000)];
        let beside = Beside { process: 0, statuses: [("a".into(), 2 * MIB)].into() };
        let out = fit(&shares, bounds, &beside);
        assert_eq!(out.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!((out[&0].reached, out[&0].others), (3_000 << 10, 2 * MIB));
    }

    #[test]
    fn beyond_the_process_limit_the_namespace_that_holds_most_gives_way_whatever_its_priority() {
        let bounds = MemoryBounds { process: Some(10 * MIB), namespace: None };
        let greedy = Share { priority: 1_000, ..share("a/p", "x", 6_000) };
        let humble = Share { priority: 0, ..share("b/p", "y", 3_000) };
        let own = share("kubewarm-system/p", "all", 5_000);
        assert_eq!(names(&[greedy.clone(), humble.clone(), own.clone()], bounds), ["a/p/x"]);
        let mut all = vec![greedy, humble, own];
        all[2].gauges = vec![gauge(11_000, 11 * MIB)];
        assert_eq!(names(&all, bounds).len(), 3, "even the operator's own, in the end");
    }

    #[test]
    fn the_overrun_says_what_would_be_enough() {
        let limits = Limits { max_objects: Some(10), ..Limits::default() };
        let x = Share { limits, expected: Some(50), ..share("a/p", "x", 11) };
        let shares = [x, Share { limits, ..share("a/p", "y", 3) }];
        let overrun = fit(&shares, MemoryBounds::default(), &Beside::default())[&0];
        assert_eq!((overrun.reached, overrun.others, overrun.limit), (11, 3, 10));
        assert_eq!((overrun.expected, overrun.bound), (Some(50), Bound::Profile));
    }
}
