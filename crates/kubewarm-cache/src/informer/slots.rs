//! Who may list (or probe) now: bounded over the process, fair between namespaces.

use kubewarm_api::model::{MemberOf, ProfileRef};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// A bounded number of permits. Cheap to clone.
///
/// Namespaces take turns; within a namespace the highest priority comes first, then who waited
/// longest. No namespace holds more than its share, and no profile more than it set itself, so that
/// one tenant's slow lists keep nobody else waiting.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Mutex<Inner>>);

/// A permit; dropping it lets the next one in.
#[derive(Debug)]
#[must_use = "a slot that is dropped at once bounds nothing"]
pub struct Slot {
    slots: Slots,
    profile: ProfileRef,
}

#[derive(Debug)]
struct Inner {
    free: usize,
    /// Most that one namespace holds.
    share: usize,
    held: HashMap<Arc<str>, usize>,
    held_by_profile: HashMap<ProfileRef, usize>,
    /// Bounded by the number of cells: each waits at most once. By namespace, then by profile.
    waiting: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Queue>>,
    /// The namespace that was served last; the next one after it comes next.
    last: Option<Arc<str>>,
    sequence: u64,
}

/// Highest priority first, then first come.
type Queue = BTreeMap<(Reverse<u16>, u64), Waiter>;

#[derive(Debug)]
struct Waiter {
    profile: ProfileRef,
    most: usize,
    wake: oneshot::Sender<Slot>,
}

impl Slots {
    /// `total` permits (at least 1), of which one namespace holds at most `share_percent` (at least
    /// one permit).
    #[must_use]
    pub fn new(total: usize, share_percent: usize) -> Self {
        let total = total.max(1);
        Self(Arc::new(Mutex::new(Inner {
            free: total,
            share: (total * share_percent / 100).max(1),
            held: HashMap::new(),
            held_by_profile: HashMap::new(),
            waiting: BTreeMap::new(),
            last: None,
            sequence: 0,
        })))
    }

    /// Waits for a permit on behalf of `member`. Cancel safe: a dropped wait takes nothing.
    pub async fn acquire(&self, member: &MemberOf) -> Slot {
        loop {
            let (wake, woken) = oneshot::channel();
            {
                let mut inner = self.0.lock();
                inner.sequence += 1;
                let place = (Reverse(member.priority), inner.sequence);
                let waiter = Waiter {
                    profile: member.profile.clone(),
                    most: member.max_concurrent_lists.max(1),
                    wake,
                };
                let namespace = Arc::clone(&member.profile.namespace);
                let name = Arc::clone(&member.profile.name);
                let queues = inner.waiting.entry(namespace).or_default();
                queues.entry(name).or_default().insert(place, waiter);
            }
            self.admit();
            if let Ok(slot) = woken.await {
                return slot;
            }
        }
    }

    /// Lets in whoever may come in.
    fn admit(&self) {
        loop {
            // A slot that nobody took is dropped outside the lock: its drop locks.
            let granted = self.0.lock().next();
            let Some(waiter) = granted else { return };
            let slot = Slot { slots: self.clone(), profile: waiter.profile };
            // The waiter may have been dropped meanwhile; then the slot comes back by itself.
            drop(waiter.wake.send(slot));
        }
    }
}

impl Inner {
    /// Takes the next waiter off the queues and counts its permit.
    ///
    /// # Cost
    ///
    /// Nothing while no permit is free; else one step for each profile that waits.
    fn next(&mut self) -> Option<Waiter> {
        if self.free == 0 {
            return None;
        }
        let last = self.last.clone();
        let is_after = |namespace: &&Arc<str>| last.as_ref().is_none_or(|last| *namespace > last);
        let names = || self.waiting.keys();
        let turns = names().filter(is_after).chain(names().filter(|name| !is_after(name)));
        let turns: Vec<_> = turns.cloned().collect();
        turns.into_iter().find_map(|namespace| self.next_of(namespace))
    }

    fn next_of(&mut self, namespace: Arc<str>) -> Option<Waiter> {
        if self.held.get(&namespace).copied().unwrap_or(0) >= self.share {
            return None;
        }
        let queues = self.waiting.get_mut(&namespace)?;
        // Those who gave up waiting are dropped when it would be their turn.
        queues.retain(|_, queue| {
            while queue.first_entry().is_some_and(|first| first.get().wake.is_closed()) {
                queue.pop_first();
            }
            !queue.is_empty()
        });
        let held = &self.held_by_profile;
        let has_room =
            |waiter: &Waiter| held.get(&waiter.profile).copied().unwrap_or(0) < waiter.most;
        let best = queues
            .iter()
            .filter_map(|(name, queue)| queue.first_key_value().map(|first| (name, first)))
            .filter(|(_, (_, waiter))| has_room(waiter))
            .min_by_key(|(_, (place, _))| **place)
            .map(|(name, _)| Arc::clone(name));
        let waiter = best.and_then(|name| Some(queues.get_mut(&name)?.pop_first()?.1));
        if queues.is_empty() {
            self.waiting.remove(&namespace);
        }
        let waiter = waiter?;
        self.free -= 1;
        *self.held.entry(Arc::clone(&namespace)).or_default() += 1;
        *self.held_by_profile.entry(waiter.profile.clone()).or_default() += 1;
        self.last = Some(namespace);
        Some(waiter)
    }

    fn release(&mut self, profile: &ProfileRef) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&profile.namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&profile.namespace);
            }
        }
        if let Some(held) = self.held_by_profile.get_mut(profile) {
            *held -= 1;
            if *held == 0 {
                self.held_by_profile.remove(profile);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.0.lock().release(&self.profile);
        self.slots.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn member(namespace: &str, name: &str, most: usize, priority: u16) -> MemberOf {
        MemberOf {
            profile: ProfileRef { namespace: namespace.into(), name: name.into() },
            max_concurrent_lists: most,
            priority,
        }
    }

    #[tokio::test]
    async fn a_namespace_holds_no_more_than_its_share() {
        let slots = Slots::new(8, 25);
        let a = member("a", "p", 64, 0);
        let _held = (slots.acquire(&a).await, slots.acquire(&a).await);
        assert!(slots.acquire(&a).now_or_never().is_none());
        assert!(slots.acquire(&member("b", "p", 64, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_profile_holds_no_more_than_it_set_itself() {
        let slots = Slots::new(8, 100);
        let _held = slots.acquire(&member("a", "p", 1, 0)).await;
        assert!(slots.acquire(&member("a", "p", 1, 1_000)).now_or_never().is_none());
        assert!(slots.acquire(&member("a", "q", 1, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn higher_priority_comes_first_and_namespaces_take_turns() {
        let slots = Slots::new(1, 100);
        let first = slots.acquire(&member("a", "p", 9, 0)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (namespace, priority) in [("a", 1), ("a", 9), ("b", 0), ("b", 5)] {
            let (slots, order) = (slots.clone(), Arc::clone(&order));
            tasks.spawn(async move {
                let _slot = slots.acquire(&member(namespace, "p", 9, priority)).await;
                order.lock().push(format!("{namespace}{priority}"));
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock(), ["b5", "a9", "b0", "a1"]);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_takes_nothing() {
        let slots = Slots::new(1, 100);
        let a = member("a", "p", 9, 0);
        let held = slots.acquire(&a).await;
        assert!(slots.acquire(&a).now_or_never().is_none());
        drop(held);
        assert!(slots.acquire(&a).now_or_never().is_some());
        let inner = slots.0.lock();
        assert!(inner.held.is_empty() && inner.held_by_profile.is_empty());
    }
}
