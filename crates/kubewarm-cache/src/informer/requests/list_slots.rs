//! List slots limit how many lists run at once: in the process, for each profile, and for all
//! profiles of a namespace.

use kubewarm_api::model::{ListSlotSettings, ProfileRef};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// Limits how many informers list at the same time. An informer needs one list slot ([`ListSlot`])
/// for each list. Cheap to clone.
///
/// The profiles of a namespace cannot use more slots than the namespace's limit, and a profile no
/// more than its `maxConcurrentLists`. So slow lists of one namespace do not delay the lists of
/// other namespaces.
///
/// Within a profile, the target with the highest priority receives a slot first. Targets of equal
/// priority receive slots in the order of their arrival. Among the profiles, the profile comes
/// first whose next informer has waited longest, whatever that informer's priority is. So no
/// profile can delay other profiles by its priorities.
#[derive(Clone, Debug)]
pub(crate) struct ListSlots(Arc<Mutex<ListSlotsState>>);

/// One list slot, with which one informer can run one list. When the informer drops the slot, the
/// next waiting informer receives a slot.
#[derive(Debug)]
#[must_use = "a slot that is dropped at once bounds nothing"]
pub(crate) struct ListSlot {
    slots: ListSlots,
    profile: ProfileRef,
}

#[derive(Debug)]
struct ListSlotsState {
    free: usize,
    /// Maximum number of slots for one namespace.
    namespace_limit: usize,
    /// Slots in use, by namespace.
    in_use: HashMap<Arc<str>, usize>,
    /// Profiles with a slot, or with an informer that waits for a slot. The map needs no size
    /// limit, because each informer waits for at most one slot.
    profiles: BTreeMap<ProfileRef, ProfileListSlots>,
    sequence: u64,
}

#[derive(Debug, Default)]
struct ProfileListSlots {
    in_use: usize,
    /// The profile's informers that wait for a slot, by descending priority and then by arrival.
    waiting: BTreeMap<(Reverse<u16>, u64), ListSlotWaiter>,
}

#[derive(Debug)]
struct ListSlotWaiter {
    /// The profile's `maxConcurrentLists`.
    limit: usize,
    wake: oneshot::Sender<ListSlot>,
}

impl ListSlots {
    /// Lets at most `total` lists run at once, and at most `namespace_limit` lists for the profiles
    /// of one namespace. A 0 counts as 1, because otherwise no informer would ever list.
    pub(crate) fn new(total: usize, namespace_limit: usize) -> Self {
        Self(Arc::new(Mutex::new(ListSlotsState {
            free: total.max(1),
            namespace_limit: namespace_limit.max(1),
            in_use: HashMap::new(),
            profiles: BTreeMap::new(),
            sequence: 0,
        })))
    }

    /// Waits for a slot for the profile of `member`. Cancel safe: dropping the future releases a
    /// slot that the waiting informer has already received.
    pub(crate) async fn acquire(&self, member: &ListSlotSettings) -> ListSlot {
        loop {
            let (wake, woken) = oneshot::channel();
            {
                let mut inner = self.0.lock();
                inner.sequence += 1;
                let position = (Reverse(member.priority), inner.sequence);
                let waiter = ListSlotWaiter { limit: member.max_concurrent_lists.max(1), wake };
                let profile = inner.profiles.entry(member.profile.clone()).or_default();
                // Remove informers that no longer wait. They would otherwise receive a slot and
                // release it at once.
                profile.waiting.retain(|_, waiter| !waiter.wake.is_closed());
                profile.waiting.insert(position, waiter);
            }
            self.admit();
            if let Ok(slot) = woken.await {
                return slot;
            }
        }
    }

    fn admit(&self) {
        loop {
            // Release the lock at the end of this line. If an informer's wait was cancelled,
            // dropping its `ListSlot` below takes the lock again.
            let granted = self.0.lock().next();
            let Some((profile, waiter)) = granted else { return };
            let slot = ListSlot { slots: self.clone(), profile };
            // If the informer's wait was cancelled, `send` returns the `ListSlot`, and `drop`
            // releases the slot.
            drop(waiter.wake.send(slot));
        }
    }
}

impl ListSlotsState {
    /// Removes the next waiting informer from its profile's queue, and counts one more slot as
    /// used. `None` if no waiting informer can receive a slot now.
    ///
    /// # Cost
    ///
    /// O(1) while no slot is free, otherwise O(n) in the number of profiles that wait or list.
    fn next(&mut self) -> Option<(ProfileRef, ListSlotWaiter)> {
        if self.free == 0 {
            return None;
        }
        let (in_use, namespace_limit) = (&self.in_use, self.namespace_limit);
        let has_quota = |name: &ProfileRef| {
            in_use.get(&name.namespace).is_none_or(|&slots| slots < namespace_limit)
        };
        let first = |profile: &ProfileListSlots| {
            let ((_, sequence), waiter) = profile.waiting.first_key_value()?;
            (profile.in_use < waiter.limit).then_some(*sequence)
        };
        let waiting = self.profiles.iter().filter(|(name, _)| has_quota(name));
        let next = waiting.filter_map(|(name, profile)| Some((first(profile)?, name))).min();
        let name = next?.1.clone();
        let profile = self.profiles.get_mut(&name)?;
        let (_, waiter) = profile.waiting.pop_first()?;
        profile.in_use += 1;
        self.free -= 1;
        *self.in_use.entry(Arc::clone(&name.namespace)).or_default() += 1;
        Some((name, waiter))
    }

    fn release(&mut self, name: &ProfileRef) {
        self.free += 1;
        if let Some(in_use) = self.in_use.get_mut(&name.namespace) {
            *in_use -= 1;
            if *in_use == 0 {
                self.in_use.remove(&name.namespace);
            }
        }
        if let Some(profile) = self.profiles.get_mut(name) {
            profile.in_use -= 1;
            if profile.in_use == 0 && profile.waiting.is_empty() {
                self.profiles.remove(name);
            }
        }
    }
}

impl Drop for ListSlot {
    fn drop(&mut self) {
        self.slots.0.lock().release(&self.profile);
        self.slots.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn member(namespace: &str, name: &str, limit: usize, priority: u16) -> ListSlotSettings {
        ListSlotSettings {
            profile: ProfileRef { namespace: namespace.into(), name: name.into() },
            max_concurrent_lists: limit,
            priority,
        }
    }

    #[tokio::test]
    async fn a_namespace_cannot_exceed_its_limit_of_list_slots() {
        let slots = ListSlots::new(8, 2);
        let a = member("a", "p", 64, 0);
        let _held = (slots.acquire(&a).await, slots.acquire(&a).await);
        assert!(slots.acquire(&a).now_or_never().is_none());
        assert!(slots.acquire(&member("b", "p", 64, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_profile_cannot_exceed_its_max_concurrent_lists() {
        let slots = ListSlots::new(8, 8);
        let _held = slots.acquire(&member("a", "p", 1, 0)).await;
        assert!(slots.acquire(&member("a", "p", 1, 1_000)).now_or_never().is_none());
        assert!(slots.acquire(&member("a", "q", 1, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn priority_decides_within_a_profile_and_arrival_between_profiles() {
        let slots = ListSlots::new(1, 1);
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
        assert_eq!(*order.lock(), ["a9", "a1", "b5", "b0"]);
    }

    #[tokio::test]
    async fn a_cancelled_wait_takes_no_slot() {
        let slots = ListSlots::new(1, 1);
        let a = member("a", "p", 9, 0);
        let in_use = slots.acquire(&a).await;
        assert!(slots.acquire(&a).now_or_never().is_none());
        drop(in_use);
        assert!(slots.acquire(&a).now_or_never().is_some());
        let inner = slots.0.lock();
        assert!(inner.in_use.is_empty() && inner.profiles.is_empty());
    }
}
