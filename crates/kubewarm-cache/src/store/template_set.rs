//! The templates that the objects of one store share. A template contains the part of managedFields
//! that is equal in many objects, so that the store keeps this part once.

use super::allocation::taken;
use kubewarm_wire::ManagedFieldsTemplate;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{Arc, Weak},
};

/// Number of objects with equal managedFields that a store keeps whole, before the next such object
/// gets a template.
///
/// A template pays only for about five pods or more: it takes 1.5 KB uncompressed, and it replaces
/// managedFields that take 300 bytes in each compressed pod.
const WHOLE_OBJECTS: usize = 3;

/// Maximum number of templates of one store. A template that the store has not created yet, because
/// few objects have it, also counts.
const MAX_TEMPLATES: usize = 4_096;

/// Maximum memory of the templates of one store, in bytes. Above this limit, further objects get no
/// template, and each of them takes about 300 bytes more.
const MAX_TEMPLATE_BYTES: usize = 4 << 20;

/// The templates that the objects of one store use. Each packed object points to its template, so a
/// template is freed with its last object, even if only a reader still has that object.
#[derive(Debug, Default)]
pub(super) struct TemplateSet {
    hasher: RandomState,
    known: Mutex<KnownTemplates>,
}

/// A template with its users: all objects that point to it.
pub(super) struct SharedTemplate {
    pub(super) template: ManagedFieldsTemplate,
    hash: u64,
    /// Empty if the store no longer exists.
    set: Weak<TemplateSet>,
}

#[derive(Debug, Default)]
struct KnownTemplates {
    /// By the hash of the template's content. Of two different templates with the same hash, the
    /// set has only one. The objects of the other are stored whole.
    by_hash: HashMap<u64, KnownTemplate>,
    /// Memory of all templates, without `by_hash`.
    bytes: usize,
}

#[derive(Debug)]
enum KnownTemplate {
    /// The store has packed so few objects with this template that it has not created the template.
    /// Contains hashes of these objects' keys, so that several changes of one object count once,
    /// and 0 for an unused element.
    Rare([u64; WHOLE_OBJECTS]),
    Shared(Weak<SharedTemplate>),
}

impl TemplateSet {
    /// Returns the template with the content `template` for the object with the key `object`, so
    /// that equal objects share one template. Returns `None` if the object must be stored whole: if
    /// fewer than [`WHOLE_OBJECTS`] other objects had this template, or if the set is full.
    pub(super) fn share(
        self: &Arc<Self>,
        object: impl Hash,
        template: ManagedFieldsTemplate,
    ) -> Option<Arc<SharedTemplate>> {
        let (hash, object) = (self.hasher.hash_one(&template), self.hasher.hash_one(object));
        let mut known = self.known.lock();
        let KnownTemplates { by_hash, bytes } = &mut *known;
        if by_hash.len() >= MAX_TEMPLATES && !by_hash.contains_key(&hash) {
            by_hash.retain(|_, known| known.is_used());
            if by_hash.len() >= MAX_TEMPLATES {
                return None;
            }
        }
        let entry = by_hash.entry(hash).or_insert(KnownTemplate::Rare([0; WHOLE_OBJECTS]));
        match entry {
            KnownTemplate::Rare(objects) => {
                if let Some(free) = objects.iter_mut().find(|slot| **slot == 0 || **slot == object)
                {
                    *free = object;
                    return None;
                }
            }
            KnownTemplate::Shared(shared) => {
                if let Some(shared) = shared.upgrade() {
                    // Release the lock first. If `shared` is dropped here as the template's last
                    // user, its `drop` locks the set.
                    drop(known);
                    return Some(shared).filter(|shared| shared.template == template);
                }
            }
        }
        let added = memory_of(&template);
        if *bytes + added > MAX_TEMPLATE_BYTES {
            return None;
        }
        *bytes += added;
        let shared = Arc::new(SharedTemplate { template, hash, set: Arc::downgrade(self) });
        *entry = KnownTemplate::Shared(Arc::downgrade(&shared));
        Some(shared)
    }

    /// Forgets the templates that no object uses. The caller calls this method when the store has
    /// no objects, so that an empty store takes no memory.
    pub(super) fn forget_unused(&self) {
        let mut known = self.known.lock();
        known.by_hash.retain(|_, known| known.is_used());
        known.by_hash.shrink_to_fit();
    }

    /// Returns the memory of the templates and of the set, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let known = self.known.lock();
        // The standard library's hash map has one byte for each entry besides the entry.
        known.bytes + known.by_hash.capacity() * (size_of::<(u64, KnownTemplate)>() + 1)
    }
}

impl KnownTemplate {
    fn is_used(&self) -> bool {
        matches!(self, Self::Shared(shared) if shared.strong_count() > 0)
    }
}

/// Returns the memory of a [`SharedTemplate`] with its allocations, in bytes.
fn memory_of(template: &ManagedFieldsTemplate) -> usize {
    taken(size_of::<SharedTemplate>() + 2 * size_of::<usize>()) + template.bytes()
}

impl Drop for SharedTemplate {
    fn drop(&mut self) {
        let Some(set) = self.set.upgrade() else { return };
        let mut known = set.known.lock();
        known.bytes -= memory_of(&self.template);
        // Since the last object was dropped, `share` can have created the same template again. So
        // remove the entry only if its template is unused.
        if known.by_hash.get(&self.hash).is_some_and(|known| !known.is_used()) {
            known.by_hash.remove(&self.hash);
        }
        if known.by_hash.is_empty() {
            known.by_hash = HashMap::new();
        }
    }
}

impl PartialEq for SharedTemplate {
    /// A set has only one template with this content, so equal templates have one address.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SharedTemplate {}

impl fmt::Debug for SharedTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a template of {} bytes", memory_of(&self.template))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_wire::ObjectBody;

    /// Returns the template of managedFields with this manager and at least `length` bytes.
    fn template(manager: usize, length: usize) -> ManagedFieldsTemplate {
        let fields = "x".repeat(length);
        let body = format!(
            r#"{{"metadata":{{"managedFields":[{{"manager":"m{manager}","fields":"{fields}"}}]}}}}"#
        );
        ManagedFieldsTemplate::split(ObjectBody::json(body.as_bytes()), &mut Vec::new()).unwrap()
    }

    /// Stores four objects with a template of this content. Returns the template of the fourth
    /// object.
    fn share(set: &Arc<TemplateSet>, manager: usize, length: usize) -> Option<Arc<SharedTemplate>> {
        let shared = ["a", "b", "c", "d"].map(|key| set.share(key, template(manager, length)));
        shared.into_iter().last().flatten()
    }

    #[test]
    fn the_fourth_object_with_equal_managed_fields_gets_a_template() {
        let set = Arc::new(TemplateSet::default());
        // Changes of one object do not count as objects.
        for key in ["a", "a", "a", "a", "a", "b", "c", "b"] {
            assert_eq!(set.share(key, template(1, 100)), None);
        }
        let first = set.share("d", template(1, 100)).unwrap();
        assert_eq!(set.share("e", template(1, 100)), Some(Arc::clone(&first)));
        assert_eq!(set.share("e", template(2, 100)), None);
        assert_eq!(first.template, template(1, 100));
    }

    #[test]
    fn a_template_is_freed_with_its_last_object() {
        let set = Arc::new(TemplateSet::default());
        assert_eq!(set.bytes(), 0);
        let first = share(&set, 1, 1_000).unwrap();
        let other = share(&set, 2, 1_000).unwrap();
        let both = set.bytes();
        assert!((2_000..4_000).contains(&both), "{both}");
        let copy = Arc::clone(&first);
        drop(first);
        assert_eq!(set.bytes(), both);
        drop(copy);
        assert!(set.bytes() < both - 1_000);
        drop(other);
        assert_eq!(set.bytes(), 0);
        // Objects that a reader keeps can outlive the store.
        let last = share(&set, 3, 1_000).unwrap();
        drop(set);
        drop(last);
    }

    #[test]
    fn a_set_has_a_limit_of_templates_and_forgets_unused_ones() {
        let set = Arc::new(TemplateSet::default());
        let used: Vec<_> = (0..10).map(|number| share(&set, number, 100).unwrap()).collect();
        for number in 10..3 * MAX_TEMPLATES {
            assert_eq!(set.share("a", template(number, 100)), None);
        }
        assert!(set.known.lock().by_hash.len() <= MAX_TEMPLATES);
        assert_eq!(share(&set, 0, 100).as_ref(), used.first());
        set.forget_unused();
        assert_eq!(set.known.lock().by_hash.len(), 10);
        let more: Vec<_> = (10..2 * MAX_TEMPLATES).filter_map(|at| share(&set, at, 100)).collect();
        assert_eq!(used.len() + more.len(), MAX_TEMPLATES);
    }

    #[test]
    fn a_set_has_a_limit_of_bytes() {
        let set = Arc::new(TemplateSet::default());
        let large = MAX_TEMPLATE_BYTES / 4;
        let used: Vec<_> = (0..8).filter_map(|number| share(&set, number, large)).collect();
        assert_eq!(used.len(), 3);
        assert!((3 * large..MAX_TEMPLATE_BYTES).contains(&set.bytes()), "{}", set.bytes());
        drop(used);
        assert!(share(&set, 9, large).is_some());
    }
}
