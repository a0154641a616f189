//! Who may list now: bounded over the process, for each namespace and for each profile.

use kubewarm_api::model::{MemberOf, ProfileRef};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// A bounded number of permits to list. Cheap to clone.
///
/// A namespace holds no more than its share, and a profile no more than its own `maxConcurrentLists`: the slow lists
/// of one tenant do not delay others. Within a profile, the target with the highest priority comes first. Otherwise
/// the longest wait decides.
#[derive(Clone, Debug)]
pub(super) struct Slots(Arc<Mutex<Inner>>);

/// A permit; dropping it lets the next one in.
#[derive(Debug)]
#[must_use = "a slot that is dropped at once bounds nothing"]
pub(super) struct Slot {
    slots: Slots,
    profile: ProfileRef,
}

#[derive(Debug)]
struct Inner {
    free: usize,
    /// Most that one namespace holds.
    share: usize,
    /// By namespace.
    held: HashMap<Arc<str>, usize>,
    /// Those that hold a permit or wait for one: each cell waits at most once.
    profiles: BTreeMap<ProfileRef, Profile>,
    sequence: u64,
}

#[derive(Debug, Default)]
struct Profile {
    held: usize,
    /// Highest priority first, then first come.
    waiting: BTreeMap<(Reverse<u16>, u64), Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Permits that the profile set itself.
    most: usize,
    wake: oneshot::Sender<Slot>,
}

impl Slots {
    /// There are `total` permits. One namespace holds at most `share` of them. A 0 counts as 1.
    pub(super) fn new(total: usize, share: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            free: total.max(1),
            share: share.max(1),
            held: HashMap::new(),
            profiles: BTreeMap::new(),
            sequence: 0,
        })))
    }

    /// Waits for a permit on behalf of `member`. Cancel safe: a dropped wait takes nothing.
    pub(super) async fn acquire(&self, member: &MemberOf) -> Slot {
        loop {
            let (wake, woken) = oneshot::channel();
            {
                let mut inner = self.0.lock();
                inner.sequence += 1;
                let place = (Reverse(member.priority), inner.sequence);
                let waiter = Waiter { most: member.max_concurrent_lists.max(1), wake };
                let profile = inner.profiles.entry(member.profile.clone()).or_default();
                // Those who gave up waiting would have their turn else, and pass it on.
                profile.waiting.retain(|_, waiter| !waiter.wake.is_closed());
                profile.waiting.insert(place, waiter);
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
            let Some((profile, waiter)) = granted else { return };
            let slot = Slot { slots: self.clone(), profile };
            // The waiter may have been dropped meanwhile; then the slot comes back by itself.
            drop(waiter.wake.send(slot));
        }
    }
}

impl Inner {
    /// Takes the next waiter off its queue and counts its permit.
    ///
    /// # Cost
    ///
    /// Nothing while no permit is free; else one step for each profile that waits or lists.
    fn next(&mut self) -> Option<(ProfileRef, Waiter)> {
        if self.free == 0 {
            return None;
        }
        let (held, share) = (&self.held, self.share);
        let has_share = |name: &ProfileRef| held.get(&name.namespace).is_none_or(|&it| it < share);
        let first = |profile: &Profile| {
            let ((_, sequence), waiter) = profile.waiting.first_key_value()?;
            (profile.held < waiter.most).then_some(*sequence)
        };
        let waiting = self.profiles.iter().filter(|(name, _)| has_share(name));
        let next = waiting.filter_map(|(name, profile)| Some((first(profile)?, name))).min();
        let name = next?.1.clone();
        let profile = self.profiles.get_mut(&name)?;
        let (_, waiter) = profile.waiting.pop_first()?;
        profile.held += 1;
        self.free -= 1;
        *self.held.entry(Arc::clone(&name.namespace)).or_default() += 1;
        Some((name, waiter))
    }

    fn release(&mut self, name: &ProfileRef) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&name.namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&name.namespace);
            }
        }
        if let Some(profile) = self.profiles.get_mut(name) {
            profile.held -= 1;
            if profile.held == 0 && profile.waiting.is_empty() {
                self.profiles.remove(name);
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
        let slots = Slots::new(8, 2);
        let a = member("a", "p", 64, 0);
        let _held = (slots.acquire(&a).await, slots.acquire(&a).await);
        assert!(slots.acquire(&a).now_or_never().is_none());
        assert!(slots.acquire(&member("b", "p", 64, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_profile_holds_no_more_than_it_set_itself() {
        let slots = Slots::new(8, 8);
        let _held = slots.acquire(&member("a", "p", 1, 0)).await;
        assert!(slots.acquire(&member("a", "p", 1, 1_000)).now_or_never().is_none());
        assert!(slots.acquire(&member("a", "q", 1, 0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn higher_priority_comes_first_within_a_profile_else_whoever_came_first() {
        let slots = Slots::new(1, 1);
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
    async fn a_wait_that_is_dropped_takes_nothing() {
        let slots = Slots::new(1, 1);
        let a = member("a", "p", 9, 0);
        let held = slots.acquire(&a).await;
        assert!(slots.acquire(&a).now_or_never().is_none());
        drop(held);
        assert!(slots.acquire(&a).now_or_never().is_some());
        let inner = slots.0.lock();
        assert!(inner.held.is_empty() && inner.profiles.is_empty());
    }
}
