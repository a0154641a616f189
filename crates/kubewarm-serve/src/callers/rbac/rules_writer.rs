//! Writes the RBAC objects of one informer to the cluster's rules.

use super::cluster_rules::{ClusterRules, RulesEffect};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaOutcome, DeltaSink, ObjectEncoding, ReplacePolicy, Tombstone,
};
use kubewarm_cache::store::StoreWriter;
use kubewarm_rbac::{RbacKind, RbacResource};
use kubewarm_wire::{JsonBuffer, ObjectBody};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The body of each object in the store. The store only decides which events are in order, so it
/// needs no content.
const NO_CONTENT: &[u8] = b"{}";

/// Receives the events of an informer of one RBAC kind, and writes the objects to the rules.
///
/// The informer's own store decides whether an event is newer than the known state, and proves that
/// the state is current. It contains the names and versions of the objects only.
#[derive(Debug)]
pub struct ClusterRulesWriter {
    kind: RbacKind,
    rules: Arc<ClusterRules>,
    store: StoreWriter,
    encoding: ObjectEncoding,
    /// Which objects of the last list can have changed.
    listed: ReplacePolicy,
    buffer: JsonBuffer,
}

impl ClusterRulesWriter {
    /// Creates the writer of the objects of one kind. `store` is the informer's store.
    pub fn new(kind: RbacKind, rules: Arc<ClusterRules>, store: StoreWriter) -> Self {
        let (encoding, buffer) = (ObjectEncoding::default(), JsonBuffer::default());
        Self { kind, rules, store, encoding, listed: ReplacePolicy::Changed, buffer }
    }

    fn upsert<'a>(
        &mut self,
        item: DecodedObject<'a>,
        delta: fn(DecodedObject<'a>) -> Delta<'a>,
    ) -> DeltaOutcome {
        let (namespace, name) = (item.namespace.clone(), item.name.clone());
        let (version, body) = (item.version.clone(), item.body);
        let outcome = self.store.apply(delta(DecodedObject { body: NO_CONTENT, ..item }));
        // After an old event, the store has another version of the object, or lacks the object.
        if version.is_some() && self.store.reader().object_version(&namespace, &name) == version {
            self.write(&namespace, &name, body, outcome);
        }
        outcome
    }

    /// Writes an object to the rules.
    fn write(&mut self, namespace: &str, name: &str, body: &[u8], outcome: DeltaOutcome) {
        let Self { kind, encoding, rules, listed, buffer, .. } = self;
        let json = ObjectBody { encoding: *encoding, bytes: body }.to_json(buffer);
        // Each list contains the unchanged objects, too. After an etcd restore, an object with an
        // unchanged version can have other rules.
        let is_unchanged = outcome == DeltaOutcome::Unchanged && *listed == ReplacePolicy::Changed;
        let effect = if is_unchanged { RulesEffect::None } else { RulesEffect::Changed };
        let is_written = json.is_some_and(|json| match kind {
            RbacKind::Role => upsert::<Role>(rules, json, effect),
            RbacKind::RoleBinding => upsert::<RoleBinding>(rules, json, effect),
            RbacKind::ClusterRole => upsert::<ClusterRole>(rules, json, effect),
            RbacKind::ClusterRoleBinding => upsert::<ClusterRoleBinding>(rules, json, effect),
        });
        if !is_written {
            tracing::warn!(?kind, %namespace, %name, "an RBAC object is unreadable; access reviews decide in its place");
            // An unknown rule allows nothing. An old one could allow too much.
            self.remove(namespace, name);
        }
    }

    fn remove(&self, namespace: &str, name: &str) {
        self.rules.update(|rules| {
            rules.remove(self.kind, namespace, name);
            RulesEffect::Changed
        });
    }
}

impl DeltaSink for ClusterRulesWriter {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        let kind = self.kind;
        match delta {
            Delta::Upsert(item) => self.upsert(item, Delta::Upsert),
            Delta::WatchEvent(item) => self.upsert(item, Delta::WatchEvent),
            Delta::Remove(gone) => {
                let Tombstone { namespace, name, .. } = gone.clone();
                let outcome = self.store.apply(Delta::Remove(gone));
                if !self.store.reader().contains(&namespace, &name) {
                    self.remove(&namespace, &name);
                }
                outcome
            }
            Delta::ListStarted(policy) => {
                self.listed = policy;
                self.rules.update(|rules| {
                    rules.start_list(kind);
                    RulesEffect::None
                });
                self.store.apply(delta)
            }
            Delta::ListDone(_) => {
                let outcome = self.store.apply(delta);
                self.rules.update(|rules| {
                    rules.finish_list(kind);
                    let is_unchanged = outcome == DeltaOutcome::Swept { removed: 0 };
                    if is_unchanged { RulesEffect::None } else { RulesEffect::Changed }
                });
                outcome
            }
            Delta::Purge => {
                self.rules.update(|rules| {
                    rules.start_list(kind);
                    rules.finish_list(kind);
                    RulesEffect::Changed
                });
                self.store.apply(delta)
            }
            Delta::Encoding(encoding) => {
                // The store's own content is always JSON.
                self.encoding = encoding;
                DeltaOutcome::Noted
            }
            Delta::Unreadable | Delta::Progress(_) | Delta::Equal(_) | Delta::Arrived(_) => {
                self.store.apply(delta)
            }
        }
    }
}

/// Parses an object and writes it to the rules. Returns whether the object could be parsed.
fn upsert<T>(rules: &ClusterRules, json: &[u8], effect: RulesEffect) -> bool
where
    T: DeserializeOwned,
    for<'a> RbacResource<'a>: From<&'a T>,
{
    let Ok(object) = serde_json::from_slice::<T>(json) else { return false };
    rules.update(|rules| {
        rules.upsert(&object);
        effect
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReviewSpec};
    use kubewarm_api::model::{
        GroupResource, InformerKey, InformerScope, ManagedFieldsPolicy, Projection, ReplacePolicy,
        Resource, ResourceVersion, Uid,
    };
    use kubewarm_cache::store::StoreCatalog;
    use kubewarm_client::CallerInfo;
    use kubewarm_rbac::RbacDecision;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// A writer of roles and one of bindings, and their rules.
    struct RulesWriters {
        rules: Arc<ClusterRules>,
        roles: ClusterRulesWriter,
        bindings: ClusterRulesWriter,
        _catalog: StoreCatalog,
    }

    impl RulesWriters {
        /// Creates the writers, and lists a role for `get nodes` and no binding, at version 10.
        fn new() -> Self {
            let (written, catalog) = (ClusterRules::new(1 << 20), StoreCatalog::new());
            let writer = |kind: RbacKind| {
                let group = "rbac.authorization.k8s.io";
                let resource = GroupResource::new(group, kind.resource()).unwrap();
                let key = InformerKey::all(
                    Resource::new(resource, "v1").unwrap(),
                    InformerScope::Cluster,
                    Projection::Full(ManagedFieldsPolicy::Drop),
                );
                let store = catalog.open(&key, &BTreeSet::new());
                ClusterRulesWriter::new(kind, Arc::clone(&written), store)
            };
            let roles = writer(RbacKind::ClusterRole);
            let bindings = writer(RbacKind::ClusterRoleBinding);
            let mut writers = Self { rules: written, roles, bindings, _catalog: catalog };
            let role = json!({
                "metadata": {"name": "nodes"},
                "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
            });
            let role = role.to_string();
            list(&mut writers.roles, &[object("nodes", "9", &role)], "10");
            list(&mut writers.bindings, &[], "10");
            writers
        }

        /// The decision about `get nodes`, and the number of changes so far.
        fn decide(&self, user: &str) -> (RbacDecision, u64) {
            let attributes = ResourceAttributes {
                verb: Some("get".to_owned()),
                resource: Some("nodes".to_owned()),
                ..ResourceAttributes::default()
            };
            let access = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                non_resource_attributes: None,
            };
            let user = CallerInfo { name: user.to_owned(), ..CallerInfo::default() };
            let decided = self.rules.decide(&user, &access);
            (decided.decision, decided.changes)
        }

        fn bind(&mut self, version: &str, user: &str) -> DeltaOutcome {
            let body = binding(user);
            self.bindings.apply(Delta::WatchEvent(object("b", version, &body)))
        }
    }

    fn binding(user: &str) -> String {
        json!({
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "nodes", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "name": user}],
        })
        .to_string()
    }

    fn object<'a>(name: &'a str, version: &str, body: &'a str) -> DecodedObject<'a> {
        DecodedObject {
            namespace: "".into(),
            name: name.into(),
            uid: Uid::parse("1"),
            version: ResourceVersion::parse(version),
            body: body.as_bytes(),
        }
    }

    fn gone(version: &str) -> Delta<'static> {
        let version = ResourceVersion::parse(version);
        Delta::Remove(Tombstone { namespace: "".into(), name: "b".into(), version })
    }

    fn list(writer: &mut ClusterRulesWriter, objects: &[DecodedObject<'_>], version: &str) {
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        for object in objects {
            writer.apply(Delta::Upsert(object.clone()));
        }
        writer.apply(Delta::ListDone(ResourceVersion::parse(version).unwrap()));
    }

    #[test]
    fn rules_follow_the_events_of_a_watch() {
        let mut writers = RulesWriters::new();
        assert_eq!(writers.decide("jane"), (RbacDecision::NoOpinion, 1));
        assert_eq!(writers.bind("11", "jane"), DeltaOutcome::Added);
        assert_eq!(writers.decide("jane"), (RbacDecision::Allow, 2));
        writers.bind("12", "john");
        assert_eq!(writers.decide("jane"), (RbacDecision::NoOpinion, 3));
        assert_eq!(writers.decide("john"), (RbacDecision::Allow, 3));
        assert_eq!(writers.bindings.apply(gone("13")), DeltaOutcome::Removed);
        assert_eq!(writers.decide("john"), (RbacDecision::NoOpinion, 4));
    }

    #[test]
    fn an_old_event_changes_no_rule() {
        let mut writers = RulesWriters::new();
        writers.bind("11", "jane");
        writers.bind("12", "john");
        assert_eq!(writers.bind("11", "jane"), DeltaOutcome::Replayed);
        assert_eq!(writers.decide("jane").0, RbacDecision::NoOpinion);
        assert_eq!(writers.decide("john").0, RbacDecision::Allow);
        writers.bindings.apply(gone("13"));
        assert_eq!(writers.bind("12", "john"), DeltaOutcome::OutOfOrder);
        assert_eq!(writers.decide("john").0, RbacDecision::NoOpinion);
    }

    #[test]
    fn a_list_removes_what_it_does_not_contain() {
        let mut writers = RulesWriters::new();
        writers.bind("11", "jane");
        let (decision, changes) = writers.decide("jane");
        let body = binding("jane");
        list(&mut writers.bindings, &[object("b", "11", &body)], "20");
        assert_eq!(writers.decide("jane"), (decision, changes), "an equal list changes nothing");
        writers.bindings.apply(Delta::ListStarted(ReplacePolicy::Changed));
        assert_eq!(writers.decide("jane"), (decision, changes), "a list that is incomplete");
        list(&mut writers.bindings, &[], "21");
        assert_eq!(writers.decide("jane"), (RbacDecision::NoOpinion, changes + 1));
    }

    #[test]
    fn a_purge_and_an_unreadable_object_allow_nothing() {
        let mut writers = RulesWriters::new();
        writers.bind("11", "jane");
        writers.bindings.apply(Delta::Purge);
        assert_eq!(writers.decide("jane").0, RbacDecision::NoOpinion);
        let body = binding("jane");
        list(&mut writers.bindings, &[object("b", "11", &body)], "20");
        assert_eq!(writers.decide("jane").0, RbacDecision::Allow);
        let broken = r#"{"subjects": 1}"#;
        writers.bindings.apply(Delta::WatchEvent(object("b", "21", broken)));
        assert_eq!(writers.decide("jane").0, RbacDecision::NoOpinion);
    }

    /// A field of a protobuf message that has fewer than 128 bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    }

    #[test]
    fn after_an_etcd_restore_an_unchanged_version_can_have_other_rules() {
        let mut writers = RulesWriters::new();
        writers.bind("11", "jane");
        let (_, changes) = writers.decide("jane");
        let body = binding("john");
        writers.bindings.apply(Delta::ListStarted(ReplacePolicy::Everything));
        writers.bindings.apply(Delta::Upsert(object("b", "11", &body)));
        assert_eq!(writers.decide("jane"), (RbacDecision::NoOpinion, changes + 1));
        assert_eq!(writers.decide("john").0, RbacDecision::Allow);
    }

    #[test]
    fn rules_in_protobuf_have_the_same_effect() {
        let mut writers = RulesWriters::new();
        let text = |number, text: &str| field(number, text.as_bytes());
        let subject = [text(1, "User"), text(3, "jane")].concat();
        let role = [text(2, "ClusterRole"), text(3, "nodes")].concat();
        let body = [field(1, &text(1, "b")), field(2, &subject), field(3, &role)].concat();
        let version = "rbac.authorization.k8s.io/v1";
        let message =
            kubewarm_wire::protobuf::message_of_kind(version, "ClusterRoleBinding").unwrap();
        writers.bindings.apply(Delta::Encoding(ObjectEncoding::Protobuf(message)));
        let object = DecodedObject { body: &body, ..object("b", "11", "") };
        writers.bindings.apply(Delta::WatchEvent(object));
        assert_eq!(writers.decide("jane").0, RbacDecision::Allow);
    }
}
