//! Reads and validates the profiles in the store of the profile informer.

use super::{
    profile_memory::{PART_BYTES, SPEC_FACTOR, profile_memory},
    quota::{NAMESPACE_PROFILES, PROCESS_PROFILES},
};
use crate::status::StoredStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kubewarm_api::{
    model::{
        GroupResource, Identity, InformerKey, InformerScope, InformerSpec, ManagedFieldsPolicy,
        ObjectKey, ProfileRef, Projection, Refusal, RefusalReason, Resource, ResourceVersion,
        ValidatedProfile, ValidationError, WatchedNamespaces,
    },
    v1alpha1::{self, CacheProfile, CacheProfileSpec, CacheProfileStatus},
};
use kubewarm_cache::store::{StoreReader, StoredObject};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const PAGE: usize = 500;
/// Maximum length of a spec as compact JSON, in bytes: 320 for each of 128 targets. etcd accepts
/// objects up to 1.5 MiB, which include the profile's status and its managedFields. Both can be
/// longer than the spec.
const MAX_SPEC: usize = 40 << 10;

/// A profile as the API server stores it, together with its parsed spec.
#[derive(Clone, Debug)]
pub(super) struct ClusterProfile {
    pub(super) profile: ProfileRef,
    pub(super) uid: Arc<str>,
    /// Time of creation by the API server's clock, in whole seconds.
    pub(super) created: Option<Timestamp>,
    pub(super) generation: i64,
    /// Memory of the profile without its status, informers and stores, in bytes.
    pub(super) memory: u64,
    pub(super) parsed: ParsedProfile,
    pub(super) status: StoredStatus,
    pub(super) status_bytes: usize,
}

/// The JSON that the profile informer's store keeps of a profile.
#[derive(Deserialize, Serialize)]
pub(super) struct StoredProfile<'a> {
    #[serde(default)]
    pub(super) metadata: ProfileMetadata,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) spec: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'a RawValue>,
    /// Whether the store omits the spec, because the specs in memory have reached a limit of
    /// [`ProfileQuota`](super::quota::ProfileQuota).
    #[serde(default, rename = "leftOut")]
    pub(super) is_left_out: bool,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProfileMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<i64>,
}

impl StoredProfile<'_> {
    /// The memory that the parsed profile takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        profile_memory(self.spec.map_or("null", RawValue::get).as_bytes())
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // Serialization cannot fail, because the type has no maps and all its values are UTF-8.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The ServiceAccount name in a profile's spec. The parser reads this name even if other fields of
/// the spec are invalid: the last valid spec may stay in effect only if the invalid spec names the
/// same ServiceAccount.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReaderAccount {
    service_account_name: Option<Box<str>>,
}

pub(super) type ParsedProfile = Result<Arc<ValidatedProfile>, InvalidProfile>;

#[derive(Clone, Debug)]
pub(super) struct InvalidProfile {
    pub(super) refusal: Refusal,
    /// The identity that the invalid spec names. `None` if the ServiceAccount's name cannot be read
    /// from the spec. The last valid spec stays in effect only if it names the same identity: no
    /// admission policy has checked the new author's use of another one.
    pub(super) identity: Option<Identity>,
}

/// Caches the parsed form of every existing profile, so that a reconciliation parses only changed
/// profiles.
#[derive(Debug, Default)]
pub(super) struct ProfileParser {
    known: ClusterProfiles,
}

type ClusterProfiles = BTreeMap<ProfileRef, (Option<ResourceVersion>, ClusterProfile)>;

/// Returns the informers that watch CacheProfile objects: one for all namespaces, or one per
/// namespace of `--watch-namespaces`.
///
/// The controller does not use `kube`'s watcher: if the API server answers 410 to the start of a
/// watch, that watcher retries without end.
///
/// # Errors
///
/// Never fails in practice, because the group and the resource name are valid constants.
pub(super) fn profile_informers(
    watched: &WatchedNamespaces,
) -> Result<Vec<InformerSpec>, ValidationError> {
    match watched {
        WatchedNamespaces::Everywhere => Ok(vec![own_informer(InformerScope::AllNamespaces)?]),
        WatchedNamespaces::Namespaces(names) => {
            let informer =
                |name: &Arc<str>| own_informer(InformerScope::Namespace(Arc::clone(name)));
            names.iter().map(informer).collect()
        }
    }
}

fn own_informer(scope: InformerScope) -> Result<InformerSpec, ValidationError> {
    let group_resource = GroupResource::new(v1alpha1::GROUP, "cacheprofiles")?;
    let profile = ProfileRef { namespace: "".into(), name: "".into() };
    let resource = Resource::new(group_resource, v1alpha1::VERSION)?;
    // The informer makes no consistency checks. They compare the store with the API server, so they
    // would report the profiles that the store omits because of its limits.
    let key = InformerKey::all(resource, scope, Projection::Full(ManagedFieldsPolicy::Drop));
    // The informer does not check whether its namespace exists. That check needs a Role in the
    // namespace, and the Role is deleted together with the namespace.
    let mut informer = InformerSpec::new(key, profile);
    informer.settings.list_slot_owner.priority = 1_000;
    Ok(informer)
}

impl ProfileParser {
    /// Returns every profile, sorted by namespace and name. Reads and parses only profiles that
    /// changed since the last call.
    ///
    /// `kept` contains namespaces whose profiles cannot be read now. For these namespaces, the
    /// result contains the profiles of the last call.
    pub(super) fn read(
        &mut self,
        stores: &[StoreReader],
        kept: &BTreeSet<Arc<str>>,
    ) -> Vec<ClusterProfile> {
        let mut profiles = BTreeMap::new();
        for store in stores {
            self.read_store(store, &mut profiles);
        }
        let remembered = std::mem::take(&mut self.known);
        profiles.extend(
            remembered.into_iter().filter(|(profile, _)| kept.contains(&profile.namespace)),
        );
        self.known = profiles;
        self.known.values().map(|(_, profile)| profile.clone()).collect()
    }

    fn read_store(&mut self, store: &StoreReader, profiles: &mut ClusterProfiles) {
        let mut page = store.versions(None, PAGE);
        while let Some((last, _)) = page.last() {
            let next = store.versions(Some(last), PAGE);
            for (key, version) in page {
                let profile = ProfileRef {
                    namespace: key.namespace.as_ref().into(),
                    name: key.name.as_ref().into(),
                };
                let known = self.known.remove(&profile);
                if let Some(known) = known.filter(|known| version.is_some() && known.0 == version) {
                    profiles.insert(profile, known);
                } else if let Some(object) = store.get(&key) {
                    let status = stored_status(store.clone(), key);
                    let parsed = parse(profile.clone(), &object, status);
                    profiles.insert(profile, (object.version, parsed));
                }
            }
            page = next;
        }
    }
}

fn parse(profile: ProfileRef, object: &StoredObject, status: StoredStatus) -> ClusterProfile {
    let uid: Arc<str> = object.uid.to_string().into();
    let (metadata, memory, parsed, status_bytes) =
        match serde_json::from_slice::<StoredProfile<'_>>(&object.bytes) {
            Ok(stored) => {
                let memory = stored.memory();
                let StoredProfile { metadata, spec, status, is_left_out } = stored;
                let spec = spec.map_or("null", RawValue::get);
                let parsed = if is_left_out {
                    Err(InvalidProfile { refusal: left_out_refusal(&profile), identity: None })
                } else {
                    parse_spec(&profile, &uid, &metadata, spec)
                };
                (metadata, memory, parsed, status.map_or(0, |text| text.get().len()))
            }
            Err(error) => {
                let refusal = unreadable_refusal(&error);
                (
                    ProfileMetadata::default(),
                    profile_memory(&object.bytes),
                    Err(InvalidProfile { refusal, identity: None }),
                    0,
                )
            }
        };
    ClusterProfile {
        profile,
        uid,
        created: metadata.creation_timestamp.map(|time| time.0),
        generation: metadata.generation.unwrap_or(0),
        memory,
        parsed,
        status,
        status_bytes,
    }
}

/// Returns a function that reads the status of the profile `key` from `store`. The status is read
/// on demand: a decoded status takes several times the memory of a stored status, and only a new
/// leader needs the decoded status.
fn stored_status(store: StoreReader, key: ObjectKey) -> StoredStatus {
    StoredStatus::new(move || decode_status(&store.get(&key)?))
}

/// Returns the status of the stored profile. Returns `None` for a status that does not parse, for
/// instance from another version of kubewarm. The status writer later replaces such a status.
fn decode_status(object: &StoredObject) -> Option<CacheProfileStatus> {
    let StoredProfile { status, .. } = serde_json::from_slice(&object.bytes).ok()?;
    serde_json::from_str(status?.get()).ok()
}

fn parse_spec(
    profile: &ProfileRef,
    uid: &Arc<str>,
    metadata: &ProfileMetadata,
    spec: &str,
) -> ParsedProfile {
    let parsed: CacheProfileSpec = serde_json::from_str(spec)
        .map_err(|error| unrunnable(profile, spec, unreadable_refusal(&error)))?;
    let metadata = ObjectMeta {
        namespace: Some(profile.namespace.to_string()),
        name: Some(profile.name.to_string()),
        uid: Some(uid.to_string()),
        generation: metadata.generation,
        ..ObjectMeta::default()
    };
    validate(profile, &CacheProfile { metadata, spec: parsed, status: None })
}

pub(super) fn validate(profile: &ProfileRef, resource: &CacheProfile) -> ParsedProfile {
    let unrunnable = |message: String| InvalidProfile {
        refusal: Refusal::new(RefusalReason::InvalidSpec, message),
        identity: Some(identity(profile, resource.spec.service_account_name.as_deref())),
    };
    let bytes = serde_json::to_vec(&resource.spec).map_or(0, |json| json.len());
    if bytes > MAX_SPEC {
        return Err(unrunnable(format!(
            "spec: has {bytes} bytes as JSON, but at most {MAX_SPEC} are allowed; divide it into several profiles"
        )));
    }
    let parsed = ValidatedProfile::parse(resource).map(Arc::new);
    parsed.map_err(|invalid| unrunnable(invalid.to_string()))
}

/// Returns the identity that reads for a profile. `account` is the ServiceAccount name in the spec;
/// `None` means the operator's identity. No ServiceAccount has an invalid name, so an invalid name
/// gives an identity without permissions.
fn identity(profile: &ProfileRef, account: Option<&str>) -> Identity {
    account.map_or(Identity::Operator, |name| Identity::ServiceAccount {
        namespace: Arc::clone(&profile.namespace),
        name: name.into(),
    })
}

fn unrunnable(profile: &ProfileRef, spec: &str, refusal: Refusal) -> InvalidProfile {
    let named = serde_json::from_str::<ReaderAccount>(spec).ok();
    let identity = named.map(|by| identity(profile, by.service_account_name.as_deref()));
    InvalidProfile { refusal, identity }
}

/// Returns the refusal of a spec that does not parse, for instance because it was stored with
/// another version of the CRD.
fn unreadable_refusal(error: &serde_json::Error) -> Refusal {
    let message = format!(
        "this version of kubewarm cannot read the spec ({error}); apply the \
         CustomResourceDefinition that `kubewarm crd` prints, then the profile again"
    );
    Refusal::new(RefusalReason::InvalidSpec, message)
}

/// Returns the refusal of a profile whose spec the store omits, because too many or too large specs
/// are in memory.
fn left_out_refusal(profile: &ProfileRef) -> Refusal {
    let message = format!(
        "left out: a namespace may have {NAMESPACE_PROFILES} profiles, all namespaces {PROCESS_PROFILES}, and \
         profiles may use half of the memory for stores, in their namespace and in total (each profile and target {} KiB, each byte of a \
         spec {SPEC_FACTOR}); delete or combine profiles of namespace {:?}, or ask the administrator of kubewarm to \
         raise --memory-limit; kubewarm tries again some minutes after other profiles are deleted",
        PART_BYTES >> 10,
        profile.namespace,
    );
    Refusal::new(RefusalReason::LimitExceeded, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        DecodedObject, Delta, DeltaSink as _, ObjectEncoding, ObjectKey, Uid,
    };
    use kubewarm_cache::store::StoreCatalog;
    use serde_json::{Value, json};

    fn body(status: &Value) -> String {
        let body = json!({
            "metadata": {"namespace": "a", "name": "p", "uid": "u", "generation": 3},
            "spec": {"targets": [{"name": "pods", "resource": "pods"}]},
            "status": status,
        });
        body.to_string()
    }

    fn object(status: &Value) -> StoredObject {
        StoredObject {
            key: ObjectKey { namespace: "a".into(), name: "p".into() },
            uid: Uid::parse("u"),
            version: None,
            bytes: body(status).into(),
            encoding: ObjectEncoding::Json,
        }
    }

    fn parse_object(object: &StoredObject) -> ClusterProfile {
        let profile = ProfileRef { namespace: "a".into(), name: "p".into() };
        parse(profile, object, StoredStatus::default())
    }

    #[test]
    fn an_unreadable_status_does_not_invalidate_the_spec() {
        let known = decode_status(&object(&json!({"observedGeneration": 2})));
        assert_eq!(known.unwrap().observed_generation, Some(2));
        for status in [json!({"observedGeneration": "two"}), json!({"targets": {}}), json!(7)] {
            let object = object(&status);
            assert_eq!(parse_object(&object).parsed.unwrap().generation, 3, "{status}");
            assert!(decode_status(&object).is_none(), "{status}");
        }
    }

    #[test]
    fn the_service_account_is_read_even_if_the_rest_of_the_spec_is_invalid() {
        let account =
            |name: &str| Identity::ServiceAccount { namespace: "a".into(), name: name.into() };
        for (spec, expected) in [
            (json!({"targets": []}), Some(Identity::Operator)),
            (json!({"targets": [], "serviceAccountName": "x"}), Some(account("x"))),
            (json!({"targets": [], "serviceAccountName": "No Name"}), Some(account("No Name"))),
            (json!({"targets": "none"}), Some(Identity::Operator)),
            (
                json!({
                    "targets": [{"name": "pods", "resource": 7}],
                    "serviceAccountName": "x",
                }),
                Some(account("x")),
            ),
            (json!({"mode": "New", "serviceAccountName": "x"}), Some(account("x"))),
            (json!({"targets": [], "serviceAccountName": {"name": "x"}}), None),
            (json!([]), None),
        ] {
            let body = json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec});
            let object = StoredObject { bytes: body.to_string().into(), ..object(&json!({})) };
            let unrunnable = parse_object(&object).parsed.unwrap_err();
            assert_eq!(unrunnable.identity, expected, "{spec}");
        }
    }

    #[test]
    fn a_spec_above_40_kib_is_refused() {
        let parse = |length: usize| {
            let values = vec!["x".repeat(60); length / 63];
            let labels = json!([{"key": "a", "operator": "In", "values": values}]);
            let target = json!({"name": "a", "resource": "pods", "labelSelector": {"matchExpressions": labels}});
            let body = json!({"metadata": {}, "spec": {"targets": [target]}});
            parse_object(&StoredObject { bytes: body.to_string().into(), ..object(&json!({})) })
                .parsed
        };
        let refusal = parse(MAX_SPEC).unwrap_err().refusal;
        assert_eq!(refusal.reason, RefusalReason::InvalidSpec);
        assert!(refusal.message.contains("divide it into several profiles"), "{refusal}");
        let smaller = parse(MAX_SPEC - 500);
        assert!(!smaller.is_err_and(|error| error.refusal.message.starts_with("spec: ")));
    }

    #[test]
    fn a_left_out_profile_reports_the_limit_and_the_next_step() {
        let body = json!({"metadata": {"generation": 4}, "leftOut": true}).to_string();
        let profile = parse_object(&StoredObject { bytes: body.into(), ..object(&json!({})) });
        assert_eq!((profile.generation, &*profile.uid), (4, "u"));
        let InvalidProfile { refusal, identity } = profile.parsed.unwrap_err();
        assert_eq!((identity, refusal.reason), (None, RefusalReason::LimitExceeded));
        for part in
            ["left out: ", "may have 100 profiles", "half of the memory", "of namespace \"a\""]
        {
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
    }

    #[test]
    fn only_changed_profiles_are_read_again() {
        let catalog = StoreCatalog::new();
        let key = profile_informers(&WatchedNamespaces::Everywhere).unwrap().remove(0).key;
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let reader = catalog.reader(&key).unwrap();
        let mut put = |name: &str, version: &str, status: &Value| {
            writer.apply(Delta::Upsert(DecodedObject {
                namespace: "a".into(),
                name: name.to_owned().into(),
                uid: Uid::parse("u"),
                version: ResourceVersion::parse(version),
                body: body(status).as_bytes(),
            }));
        };
        let count = PAGE + 1;
        for n in 0..count {
            put(&format!("p{n:04}"), "5", &json!({}));
        }
        let mut intake = ProfileParser::default();
        let none = BTreeSet::new();
        let before = intake.read(std::slice::from_ref(&reader), &none);
        put("p0500", "6", &json!({"observedGeneration": 2}));
        let after = intake.read(std::slice::from_ref(&reader), &none);
        assert_eq!((before.len(), after.len()), (count, count));
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let (before, after) = (before.parsed.as_ref().unwrap(), after.parsed.as_ref().unwrap());
            assert_eq!(Arc::ptr_eq(before, after), at != 500, "{at}");
        }
        // No store is readable, so the result contains only profiles of the namespaces `kept`.
        assert_eq!(intake.read(&[], &["a".into()].into()).len(), count);
        assert!(intake.read(&[], &["b".into()].into()).is_empty());
    }
}
