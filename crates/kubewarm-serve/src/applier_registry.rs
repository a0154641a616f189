//! Records users who read objects without managedFields and apply such objects, or may patch them.
//! client-go's `Extract` functions find a client's own fields by managedFields. Without
//! managedFields they find no field, so the client's next apply removes its fields. So statuses and
//! metrics report the number of these users, see docs/adr/0082-keep-managed-fields-by-default.md.

use crate::{
    callers::{AuthenticatedCaller, CallerGate, CallerRejection},
    review,
};
use jiff::Timestamp;
use kubewarm_api::model::{FieldSelector, InformerKey, LabelSelector};
use kubewarm_wire::{AccessAttributes, WriteTarget};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};
use tokio::{task::spawn_local, time::Instant};

/// The maximum number of users who can apply the objects that they read. A user counts once for
/// each informer. kubewarm ignores further users.
const MAX_APPLIERS: usize = 256;
/// The maximum number of readers, about 200 bytes each. A user counts once for each informer.
/// kubewarm ignores further readers.
const MAX_READERS: usize = 4_096;
/// The maximum length of a user's name in bytes. kubewarm ignores users with longer names.
const MAX_NAME: usize = 512;
/// The minimum time between two access reviews for one user and informer.
const REVIEW_PERIOD: Duration = Duration::from_hours(1);
/// kubewarm forgets a reader this long after the reader's last access review. A reader that still
/// reads causes an access review after `REVIEW_PERIOD`, so this reader no longer reads.
const LIFE: Duration = Duration::from_hours(2);
/// The minimum time between two searches for readers to forget.
const PURGE_PERIOD: Duration = Duration::from_mins(1);

/// Why kubewarm assumes that a reader can apply the objects that the informer provides without
/// managedFields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum ApplySign {
    /// kubewarm forwarded a server-side apply of the user for the resource.
    Applied,
    /// An access review permits the user to patch the objects, and so also to apply them.
    MayPatch,
}

/// One user who reads the objects of one informer.
struct DroppedFieldsReader {
    reviewed_at: Instant,
    /// The namespace of the last access review for `patch`; empty for all namespaces.
    /// [`ApplySign::MayPatch`] means that the user may patch objects in this namespace.
    namespace: Box<str>,
    sign: Option<(ApplySign, Timestamp)>,
}

#[derive(Default)]
struct RegistryContent {
    /// The readers of each informer, by the user's name.
    readers: HashMap<InformerKey, HashMap<String, DroppedFieldsReader>>,
    purged_at: Option<Instant>,
}

/// The users who read from informers that drop managedFields, and whether they can apply the
/// objects. Clones share the content. Each replica knows only the reads that it answered itself.
#[derive(Clone, Default)]
pub struct ApplierRegistry {
    content: Arc<Mutex<RegistryContent>>,
    hasher: RandomState,
}

impl ApplierRegistry {
    /// Records that `caller` read objects of `namespace` from `informer`. If the informer drops
    /// managedFields, a later server-side apply by the caller can remove fields. So the first read
    /// and then one read an hour start an access review in the background, which shows whether the
    /// caller may patch the objects.
    pub(crate) fn note_read(
        &self,
        callers: &Arc<CallerGate>,
        caller: &AuthenticatedCaller,
        informer: &InformerKey,
        namespace: Option<&str>,
    ) {
        if !informer.drops_managed_fields() {
            return;
        }
        let read = namespace.unwrap_or_default();
        let Some(namespace) = self.record_read(informer, &caller.user.name, read, Instant::now())
        else {
            return;
        };
        let patch = AccessAttributes {
            verb: "patch",
            group: informer.resource.group(),
            version: informer.resource.version(),
            resource: informer.resource.resource(),
            namespace: &namespace,
            name: "",
        };
        let patch = review::resource(&patch, &LabelSelector::default(), &FieldSelector::default());
        let (registry, callers) = (self.clone(), Arc::clone(callers));
        let (caller, informer) = (caller.clone(), informer.clone());
        spawn_local(async move {
            let is_permitted = match callers.authorize(&caller, &patch).await {
                Ok(_) => true,
                Err(CallerRejection::Forbidden { .. }) => false,
                // Without a decision, kubewarm learns nothing. A read after an hour starts the next
                // access review.
                Err(_) => return,
            };
            registry.record_review(&informer, &caller.user.name, is_permitted, Timestamp::now());
        });
    }

    /// Records a read of objects of `namespace`. If an access review for `patch` is due, returns
    /// the namespace for this access review. If an earlier access review permitted the user to
    /// patch, the next one is for the same namespace, so that a denial ends the permission.
    /// Otherwise, the result is `namespace`.
    fn record_read(
        &self,
        informer: &InformerKey,
        user: &str,
        namespace: &str,
        now: Instant,
    ) -> Option<Box<str>> {
        let mut content = self.content.lock();
        let known = content.readers.get_mut(informer).and_then(|users| users.get_mut(user));
        if let Some(reader) = known {
            if now.duration_since(reader.reviewed_at) < REVIEW_PERIOD {
                return None;
            }
            reader.reviewed_at = now;
            if !matches!(reader.sign, Some((ApplySign::MayPatch, _))) {
                reader.namespace = namespace.into();
            }
            return Some(reader.namespace.clone());
        }
        content.purge(now);
        if user.len() > MAX_NAME || content.count_readers() >= MAX_READERS {
            return None;
        }
        let reader =
            DroppedFieldsReader { reviewed_at: now, namespace: namespace.into(), sign: None };
        content.readers.entry(informer.clone()).or_default().insert(user.to_owned(), reader);
        Some(namespace.into())
    }

    fn record_review(&self, informer: &InformerKey, user: &str, is_permitted: bool, at: Timestamp) {
        let mut content = self.content.lock();
        let has_room = content.count_signs() < MAX_APPLIERS;
        let Some(reader) = content.readers.get_mut(informer).and_then(|users| users.get_mut(user))
        else {
            return;
        };
        match (reader.sign, is_permitted) {
            (None, true) if has_room => reader.sign = Some((ApplySign::MayPatch, at)),
            (Some((ApplySign::MayPatch, _)), false) => reader.sign = None,
            (Some(_) | None, _) => {}
        }
    }

    /// Records a forwarded server-side apply of `user`. The apply counts for each informer of the
    /// resource from which the user has read, if the informer contains the namespace of the apply.
    pub(crate) fn record_apply(&self, user: &str, written: &WriteTarget, at: Timestamp) {
        let mut content = self.content.lock();
        let mut free = MAX_APPLIERS.saturating_sub(content.count_signs());
        for (informer, users) in &mut content.readers {
            let is_covered = informer.resource.group_resource() == &written.resource
                && informer
                    .scope
                    .namespace()
                    .is_none_or(|namespace| written.namespace.as_deref() == Some(namespace));
            let Some(reader) = users.get_mut(user).filter(|_| is_covered) else { continue };
            if reader.sign.is_none() {
                if free == 0 {
                    return;
                }
                free -= 1;
            }
            reader.sign = Some((ApplySign::Applied, at));
        }
    }

    /// A number for each user who reads from `informer` and can apply the objects. One user has the
    /// same number for all informers, so a target with several informers counts each user once. The
    /// numbers hide the users' names.
    pub fn user_tags(&self, informer: &InformerKey) -> Vec<u64> {
        if !informer.drops_managed_fields() {
            return Vec::new();
        }
        let content = self.content.lock();
        let users = content.readers.get(informer).into_iter().flatten();
        users
            .filter(|(_, reader)| reader.is_applier())
            .map(|(user, _)| self.hasher.hash_one(user))
            .collect()
    }

    /// The number of users who read from an informer and can apply the objects.
    pub fn count_users(&self) -> usize {
        let content = self.content.lock();
        content.appliers().map(|(_, user, _)| user).collect::<BTreeSet<_>>().len()
    }

    /// Returns `{"appliers":[…]}`, sorted by user, for the path `/debug/appliers` of the admin
    /// server.
    pub fn to_json(&self) -> String {
        let content = self.content.lock();
        let mut appliers: Vec<_> = content
            .appliers()
            .map(|(informer, user, (sign, since))| {
                json!({
                    "user": user,
                    "sign": sign,
                    "since": since,
                    "group": informer.resource.group(),
                    "version": informer.resource.version(),
                    "resource": informer.resource.resource(),
                    "namespace": informer.scope.namespace(),
                    "profileNamespace": informer.declared_in.as_deref(),
                })
            })
            .collect();
        drop(content);
        appliers.sort_by_cached_key(ToString::to_string);
        format!("{}\n", json!({ "appliers": appliers }))
    }
}

impl DroppedFieldsReader {
    fn is_applier(&self) -> bool {
        self.sign.is_some() && self.reviewed_at.elapsed() < LIFE
    }
}

impl RegistryContent {
    fn count_readers(&self) -> usize {
        self.readers.values().map(HashMap::len).sum()
    }

    fn count_signs(&self) -> usize {
        let readers = self.readers.values().flat_map(HashMap::values);
        readers.filter(|reader| reader.sign.is_some()).count()
    }

    fn appliers(&self) -> impl Iterator<Item = (&InformerKey, &str, (ApplySign, Timestamp))> {
        let users = |(informer, users)| std::iter::repeat(informer).zip(users);
        let all = self.readers.iter().flat_map(users);
        let all =
            all.filter(|(_, (_, reader)): &(&InformerKey, (&String, &DroppedFieldsReader))| {
                reader.is_applier()
            });
        all.filter_map(|(informer, (user, reader))| Some((informer, user.as_str(), reader.sign?)))
    }

    fn purge(&mut self, now: Instant) {
        if self.purged_at.is_some_and(|at| now.duration_since(at) < PURGE_PERIOD) {
            return;
        }
        self.purged_at = Some(now);
        self.readers.retain(|_, users| {
            users.retain(|_, reader| now.duration_since(reader.reviewed_at) < LIFE);
            !users.is_empty()
        });
    }
}

impl fmt::Debug for ApplierRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApplierRegistry").field(&self.content.lock().readers.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        GroupResource, InformerScope, ManagedFieldsPolicy, Projection, Resource,
    };
    use tokio::time::advance;

    fn informer(scope: InformerScope, fields: ManagedFieldsPolicy) -> InformerKey {
        let resource = GroupResource::new("", "configmaps").unwrap();
        InformerKey::all(Resource::new(resource, "v1").unwrap(), scope, Projection::Full(fields))
    }

    fn dropping(namespace: &str) -> InformerKey {
        informer(InformerScope::Namespace(namespace.into()), ManagedFieldsPolicy::Drop)
    }

    fn written(resource: &str, namespace: &str) -> WriteTarget {
        let resource = GroupResource::new("", resource).unwrap();
        WriteTarget { resource, namespace: Some(namespace.into()) }
    }

    fn at() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_reviewed_at_most_once_an_hour() {
        let (registry, key) = (ApplierRegistry::default(), dropping("a"));
        let due = |user: &str, namespace: &str| {
            registry.record_read(&key, user, namespace, Instant::now()).map(String::from)
        };
        assert_eq!(due("ada", "a").as_deref(), Some("a"));
        assert_eq!(due("ada", "b"), None);
        assert_eq!(due("bob", "a").as_deref(), Some("a"));
        advance(REVIEW_PERIOD).await;
        assert_eq!(due("ada", "b").as_deref(), Some("b"));
        assert_eq!(due("ada", "b"), None);
        // The next access review decides whether the user may still patch, so it has the same
        // namespace as the last one.
        registry.record_review(&key, "ada", true, at());
        advance(REVIEW_PERIOD).await;
        assert_eq!(due("ada", "a").as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_readers_who_apply_or_may_patch_are_appliers() {
        let registry = ApplierRegistry::default();
        let all = informer(InformerScope::AllNamespaces, ManagedFieldsPolicy::Drop);
        let (a, b) = (dropping("a"), dropping("b"));
        for key in [&all, &a, &b] {
            registry.record_read(key, "ada", "a", Instant::now());
        }
        registry.record_read(&a, "bob", "a", Instant::now());
        let counts = || [&all, &a, &b].map(|key| registry.user_tags(key).len());
        registry.record_apply("eve", &written("configmaps", "a"), at());
        registry.record_apply("ada", &written("secrets", "a"), at());
        assert_eq!(counts(), [0, 0, 0]);
        registry.record_apply("ada", &written("configmaps", "a"), at());
        assert_eq!(counts(), [1, 1, 0]);
        assert_eq!(registry.user_tags(&all), registry.user_tags(&a), "one user, one number");
        registry.record_review(&a, "bob", true, at());
        assert_eq!(counts(), [1, 2, 0]);
        assert_eq!(registry.count_users(), 2);
        let json = registry.to_json();
        assert!(
            json.contains(r#""sign":"MayPatch""#) && json.contains(r#""user":"bob""#),
            "{json}"
        );
        // A denied access review withdraws what an earlier one permitted, but an observed apply
        // still counts.
        registry.record_review(&a, "bob", false, at());
        registry.record_review(&a, "ada", false, at());
        assert_eq!(counts(), [1, 1, 0]);
        advance(LIFE).await;
        assert_eq!(counts(), [0, 0, 0], "the user no longer reads");
    }

    #[tokio::test(start_paused = true)]
    async fn the_numbers_of_readers_and_appliers_are_bounded() {
        let (registry, key) = (ApplierRegistry::default(), dropping("a"));
        let is_new = |user: &str| registry.record_read(&key, user, "a", Instant::now()).is_some();
        assert!(!is_new(&"x".repeat(MAX_NAME + 1)));
        for number in 0..MAX_READERS + 9 {
            let user = format!("user-{number}");
            is_new(&user);
            registry.record_review(&key, &user, true, at());
            registry.record_apply(&user, &written("configmaps", "a"), at());
        }
        assert_eq!(registry.content.lock().count_readers(), MAX_READERS);
        assert_eq!(registry.user_tags(&key).len(), MAX_APPLIERS);
        // Space becomes free when the first readers no longer read.
        advance(LIFE).await;
        assert!(is_new("ada"));
    }
}
