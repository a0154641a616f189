//! Who gives way where more is held than a limit allows. Pure.

use super::footprint::Footprint;
use kubewarm_api::model::{Bound, Budget, Gauge, Measure, Overrun};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What gives way, by the place of the target among those that run.
#[derive(Debug, Default)]
pub(super) struct Victims {
    /// Targets whose old cells go, which answered until the new ones are synced.
    pub(super) outdated: BTreeSet<usize>,
    /// Targets that stop, and why.
    pub(super) stopped: BTreeMap<usize, Overrun>,
}

/// What of a target gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// The cells that answer for it until its new ones are synced.
    Old,
    /// Its own cells.
    Own,
}

/// A part of a target, and what it holds that counts for the limit in question.
struct Piece<'a> {
    at: usize,
    part: Part,
    of: &'a Footprint,
    gauges: Vec<&'a Arc<Gauge>>,
}

/// A limit that is exceeded.
struct Limit {
    bound: Bound,
    measure: Measure,
    bytes_or_objects: u64,
}

/// How many of the pieces that are left hold each gauge, by its address.
#[derive(Default)]
struct Holders(BTreeMap<usize, usize>);

/// Decides what gives way until the rest fits: of each profile first, then of each namespace, then of the
/// process.
///
/// Old cells go before new ones. Then a target that is still being listed stops before those that are
/// complete, in a profile the lowest priority first, and of equals the largest. A target that fits after all,
/// once others have stopped, goes on. In the process everything of a tenant gives way before anything of the
/// operator's namespace.
pub(super) fn fit(running: &[Footprint]) -> Victims {
    // In the order of `Bound`.
    let mut budgets: BTreeMap<_, (&Arc<Budget>, Vec<usize>)> = BTreeMap::new();
    for (at, footprint) in running.iter().enumerate() {
        for budget in footprint.budget.chain() {
            let name = (budget.bound(), Arc::as_ptr(budget).addr());
            budgets.entry(name).or_insert((budget, Vec::new())).1.push(at);
        }
    }
    let mut victims = Victims::default();
    for (budget, members) in budgets.values() {
        for measure in [Measure::Objects, Measure::Memory] {
            let used = budget.used(measure);
            let Some(limit) = budget.limit(measure).filter(|&limit| used > limit) else { continue };
            let limit = Limit { bound: budget.bound(), measure, bytes_or_objects: limit };
            let members = members.iter().filter_map(|&at| Some((at, running.get(at)?)));
            let pieces = members.flat_map(|(at, of)| Piece::both(at, of, limit.bound)).collect();
            limit.squeeze(pieces, used, &mut victims);
        }
    }
    victims
}

impl<'a> Piece<'a> {
    fn both(at: usize, of: &'a Footprint, bound: Bound) -> [Self; 2] {
        let piece = |part, gauges| Self { at, part, of, gauges };
        [piece(Part::Old, of.old.iter().collect()), piece(Part::Own, of.own(bound).collect())]
    }
}

impl Holders {
    fn add(&mut self, piece: &Piece<'_>) {
        for gauge in &piece.gauges {
            *self.0.entry(Arc::as_ptr(gauge).addr()).or_default() += 1;
        }
    }

    fn remove(&mut self, piece: &Piece<'_>) {
        for gauge in &piece.gauges {
            if let Some(count) = self.0.get_mut(&Arc::as_ptr(gauge).addr()) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// What `pieces` hold and nobody who is left does.
    fn alone(&self, pieces: &[Piece<'_>], limit: &Limit) -> u64 {
        let gauges = pieces.iter().flat_map(|piece| &piece.gauges);
        let named = gauges.map(|gauge| (Arc::as_ptr(gauge).addr(), *gauge));
        let held = |name: &usize| self.0.get(name).is_some_and(|&count| count > 0);
        let alone: BTreeMap<_, &Arc<Gauge>> = named.filter(|(name, _)| !held(name)).collect();
        alone.values().map(|gauge| limit.size(gauge)).sum()
    }
}

impl Limit {
    fn size(&self, gauge: &Gauge) -> u64 {
        gauge.size(self.bound, self.measure)
    }

    /// Takes pieces out until what is left of `used` fits.
    fn squeeze(&self, pieces: Vec<Piece<'_>>, used: u64, victims: &mut Victims) {
        let (gone, mut left): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|piece| victims.have(piece));
        let mut holders = Holders::default();
        for piece in &left {
            holders.add(piece);
        }
        let mut used = used.saturating_sub(holders.alone(&gone, self));
        left.sort_by_cached_key(|piece| self.order(piece));
        let mut given: Vec<Piece<'_>> = Vec::new();
        for piece in left {
            if used <= self.bytes_or_objects {
                break;
            }
            if piece.gauges.iter().any(|gauge| self.size(gauge) > 0) {
                holders.remove(&piece);
                used = used.saturating_sub(holders.alone(std::slice::from_ref(&piece), self));
                given.push(piece);
            }
        }
        let mut out: Vec<_> = given.pop().into_iter().collect();
        for piece in given.into_iter().rev() {
            let cost = holders.alone(std::slice::from_ref(&piece), self);
            // Old cells go with their target.
            let stops = out.iter().any(|other: &Piece<'_>| other.at == piece.at);
            if !stops && used.saturating_add(cost) <= self.bytes_or_objects {
                used += cost;
                holders.add(&piece);
            } else {
                out.push(piece);
            }
        }
        for piece in out {
            victims.add(&piece, self.overrun(&piece, used));
        }
    }

    /// What comes first gives way first.
    fn order(&self, piece: &Piece<'_>) -> impl Ord + use<> {
        let Piece { at, part, of, gauges } = piece;
        let is_operators = self.bound == Bound::Process && !of.is_tenants;
        // Priorities of different profiles are not compared: everybody would choose the highest.
        let priority = if self.bound == Bound::Profile { of.priority } else { 0 };
        let size: u64 = gauges.iter().map(|gauge| self.size(gauge)).sum();
        (is_operators, *part, of.is_synced, priority, Reverse(size), Reverse(*at))
    }

    fn overrun(&self, piece: &Piece<'_>, others: u64) -> Overrun {
        let distinct: BTreeMap<_, _> =
            piece.gauges.iter().map(|gauge| (Arc::as_ptr(gauge).addr(), *gauge)).collect();
        Overrun {
            bound: self.bound,
            measure: self.measure,
            limit: self.bytes_or_objects,
            reached: distinct.values().map(|gauge| self.size(gauge)).sum(),
            others,
            objects: piece.of.objects(),
            expected: piece.of.expected(self.measure),
        }
    }
}

impl Victims {
    fn have(&self, piece: &Piece<'_>) -> bool {
        self.stopped.contains_key(&piece.at)
            || piece.part == Part::Old && self.outdated.contains(&piece.at)
    }

    fn add(&mut self, piece: &Piece<'_>, overrun: Overrun) {
        match piece.part {
            Part::Old => {
                self.outdated.insert(piece.at);
            }
            Part::Own => {
                self.stopped.insert(piece.at, overrun);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{INFORMER_BYTES, Limits, ProfileRef};

    const MIB: u64 = 1 << 20;

    /// The budgets of a process whose limits are in objects, where one has 1 KiB.
    struct Budgets {
        process: Arc<Budget>,
        namespaces: BTreeMap<String, Arc<Budget>>,
        profiles: BTreeMap<String, Arc<Budget>>,
        of_namespace: Option<u64>,
        of_profile: Limits,
    }

    impl Budgets {
        fn new(process: Option<u64>, of_namespace: Option<u64>, max_objects: Option<u64>) -> Self {
            let bytes = |max_bytes| Limits { max_objects: None, max_bytes };
            Self {
                process: Arc::new(Budget::new(Bound::Process, bytes(process), None)),
                namespaces: BTreeMap::new(),
                profiles: BTreeMap::new(),
                of_namespace,
                of_profile: Limits { max_objects, max_bytes: None },
            }
        }

        /// A synced target of 1 KiB an object in `namespace/profile`.
        fn target(&mut self, profile: &str, target: &str, objects: u64) -> Footprint {
            let (namespace, name) = profile.split_once('/').unwrap();
            let is_tenants = namespace != "kubewarm-system";
            let process = Arc::clone(&self.process);
            let max_bytes = self.of_namespace.filter(|_| is_tenants);
            let limits = Limits { max_objects: None, max_bytes };
            let above = self
                .namespaces
                .entry(namespace.to_owned())
                .or_insert_with(|| Arc::new(Budget::new(Bound::Namespace, limits, Some(process))));
            let (limits, above) = (self.of_profile, Arc::clone(above));
            let budget = self
                .profiles
                .entry(profile.to_owned())
                .or_insert_with(|| Arc::new(Budget::new(Bound::Profile, limits, Some(above))));
            Footprint {
                profile: ProfileRef { namespace: namespace.into(), name: name.into() },
                uid: "u".into(),
                generation: 1,
                target: target.into(),
                budget: Arc::clone(budget),
                is_tenants,
                priority: 500,
                is_synced: true,
                expected: None,
                cells: [].into(),
                gauges: vec![charged(budget, objects)],
                old: Vec::new(),
                namespaces: None,
            }
        }
    }

    fn charged(budget: &Arc<Budget>, objects: u64) -> Arc<Gauge> {
        let gauge = Arc::new(Gauge::of_informer());
        gauge.set(objects, objects << 10);
        gauge.add_payer(budget);
        gauge
    }

    fn of_profile(max_objects: u64) -> Budgets {
        Budgets::new(None, None, Some(max_objects))
    }

    fn names(running: &[Footprint]) -> Vec<String> {
        let name = |at: &usize| format!("{}/{}", running[*at].profile, running[*at].target);
        fit(running).stopped.keys().map(name).collect()
    }

    #[test]
    fn a_target_that_is_still_listed_gives_way_to_those_that_are_complete() {
        let mut budgets = of_profile(10_000);
        let runaway = budgets.target("a/p", "runaway", 9_600);
        let runaway = Footprint { is_synced: false, priority: 900, ..runaway };
        let small = budgets.target("a/p", "small", 500);
        assert_eq!(names(&[small, runaway]), ["a/p/runaway"]);
    }

    #[test]
    fn then_the_lowest_priority_and_the_largest_give_way() {
        for (limit, stopped) in [(10_000, "a/p/low"), (6_000, "a/p/y")] {
            let mut budgets = of_profile(limit);
            let x = budgets.target("a/p", "x", 5_000);
            let low = Footprint { priority: 1, ..budgets.target("a/p", "low", 400) };
            let y = budgets.target("a/p", "y", 5_000);
            assert_eq!(names(&[x, low, y]), [stopped], "whoever fits after all goes on");
        }
        let mut budgets = of_profile(10_000);
        let low = Footprint { priority: 1, ..budgets.target("a/p", "low", 400) };
        assert_eq!(names(&[low, budgets.target("a/p", "x", 11_000)]), ["a/p/x"]);
    }

    #[test]
    fn just_the_limit_fits_and_others_have_no_part_in_it() {
        let mut budgets = of_profile(10_000);
        let (x, y) = (budgets.target("a/p", "x", 10_000), budgets.target("a/q", "x", 10_000));
        assert!(names(&[x, y]).is_empty());
    }

    #[test]
    fn a_cell_of_two_targets_counts_once_and_goes_with_both() {
        for (limit, stopped) in [(10_000, 0), (5_000, 2)] {
            let mut budgets = of_profile(limit);
            let x = budgets.target("a/p", "x", 6_000);
            let y = Footprint { target: "y".into(), ..x.clone() };
            assert_eq!(names(&[x, y]).len(), stopped);
        }
    }

    #[test]
    fn old_cells_go_before_anything_stops() {
        let mut budgets = of_profile(10_000);
        let x = budgets.target("a/p", "x", 6_000);
        let old = vec![charged(&x.budget, 5_000)];
        let running = [Footprint { old, is_synced: false, ..x }];
        let victims = fit(&running);
        assert!(victims.stopped.is_empty() && victims.outdated == BTreeSet::from([0]));
        running[0].gauges[0].set(10_001, 0);
        assert_eq!(fit(&running).stopped[&0].others, 0, "too much by itself");
    }

    #[test]
    fn a_namespace_keeps_to_its_part_and_the_operators_own_has_none() {
        let mut budgets = Budgets::new(None, Some(5 * MIB), None);
        let running = [
            budgets.target("a/p", "x", 3_000),
            budgets.target("a/q", "y", 2_100),
            budgets.target("b/p", "z", 4_000),
            budgets.target("kubewarm-system/p", "all", 90_000),
        ];
        assert_eq!(names(&running), ["a/p/x"]);
        let overrun = fit(&running).stopped[&0];
        assert_eq!(overrun.reached, (3_000 << 10) + INFORMER_BYTES);
        assert_eq!(overrun.others, (2_100 << 10) + INFORMER_BYTES);
    }

    #[test]
    fn a_full_process_stops_tenants_before_anything_of_the_operators_namespace() {
        let mut budgets = Budgets::new(Some(12 * MIB), Some(4 * MIB), None);
        let mut running: Vec<_> = ["a", "b", "c", "d"]
            .map(|namespace| budgets.target(&format!("{namespace}/p"), "x", 2_900))
            .into();
        assert!(names(&running).is_empty(), "four namespaces fill it");
        let own = budgets.target("kubewarm-system/p", "own", 2_000);
        running.push(Footprint { is_synced: false, ..own });
        assert_eq!(names(&running), ["d/p/x"], "though the operator's is what crosses the limit");
        running[4].gauges[0].set(2_000, 13 * MIB);
        assert_eq!(names(&running), ["kubewarm-system/p/own"], "what fits without it goes on");
    }

    #[test]
    fn whoever_crosses_the_limit_of_the_process_stops_and_no_priority_helps() {
        let mut budgets = Budgets::new(Some(10 * MIB), None, None);
        let large = Footprint { priority: 0, ..budgets.target("a/p", "x", 8_000) };
        let late = Footprint { priority: 1_000, ..budgets.target("b/p", "y", 2_200) };
        assert_eq!(names(&[large, Footprint { is_synced: false, ..late }]), ["b/p/y"]);
    }

    #[test]
    fn the_overrun_says_what_would_be_enough() {
        let mut budgets = of_profile(10);
        let x = Footprint { expected: Some(50), ..budgets.target("a/p", "x", 11) };
        let overrun = fit(&[x, budgets.target("a/p", "y", 3)]).stopped[&0];
        assert_eq!((overrun.reached, overrun.others, overrun.limit), (11, 3, 10));
        assert_eq!((overrun.expected, overrun.bound), (Some(50), Bound::Profile));
    }
}
