//! What a kind is, for the read API: from discovery, and from definitions where there are any.

use crate::{
    api::{self, CacheProfile},
    cluster::{Definition, Served, ask_on, definition, is_builtin_group},
    model::{Fault, GroupResource, Reason, Resource},
    reads::{Kind, LookUp, Origin},
    wire::DocumentResource,
};
use futures::FutureExt as _;
use kube::{Client, CustomResourceExt as _};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{runtime::Handle, sync::watch, time::Instant};

/// What the API server serves, as discovery last said.
pub(super) type ServedNow = watch::Receiver<Option<Arc<Served>>>;

/// How long what a definition says counts: fields may be added to it, which discovery does not tell.
const KNOWN: Duration = Duration::from_mins(5);
/// How long it counts that there is none, or that it may not be seen: an administrator may change that.
const UNKNOWN: Duration = Duration::from_secs(30);

/// Looks kinds up. Nothing is asked twice of the kinds that profiles declare, which bounds what is kept.
pub(super) struct Kinds {
    client: Client,
    served: ServedNow,
    /// `--serve-aggregated-groups`.
    aggregated: BTreeSet<String>,
    held: Mutex<BTreeMap<GroupResource, Held>>,
    /// Our own, once it was asked for: making it takes milliseconds.
    own: OnceLock<Option<Arc<Definition>>>,
}

/// What was found of a definition.
#[derive(Clone)]
struct Held {
    /// In which snapshot of discovery: in another, everything may be otherwise.
    served: Arc<Served>,
    until: Instant,
    definition: Option<Arc<Definition>>,
}

impl Kinds {
    pub(super) fn new(client: Client, served: ServedNow, aggregated: &[String]) -> Self {
        let aggregated = aggregated.iter().cloned().collect();
        Self { client, served, aggregated, held: Mutex::default(), own: OnceLock::new() }
    }

    /// The port of the read API. Requests are sent on `runtime`, whose connections outlive those of the
    /// server.
    pub(super) fn look_up(self, runtime: Handle) -> LookUp {
        let kinds = Arc::new(self);
        Box::new(move |resource| {
            let kinds = Arc::clone(&kinds);
            let Some(served) = kinds.served.borrow().clone() else {
                let fault = Fault::new(Reason::Unreachable, "discovery has not answered yet");
                return std::future::ready(Err(fault)).boxed();
            };
            let Some(document) = document(&served, &resource) else {
                return std::future::ready(Ok(None)).boxed();
            };
            if is_builtin_group(resource.group()) {
                let built_in = Arc::new(kind(document, Origin::BuiltIn));
                return std::future::ready(Ok(Some(built_in))).boxed();
            }
            // Our own definition need not be seen: no Role lets it be.
            if resource.group() == api::GROUP {
                let own =
                    kinds.own.get_or_init(|| own_definition(resource.group_resource())).clone();
                return std::future::ready(Ok(kinds.kind(document, &resource, own.as_deref())))
                    .boxed();
            }
            if let Some(held) = kinds.held(&served, &resource) {
                let known = kinds.kind(document, &resource, held.definition.as_deref());
                return std::future::ready(Ok(known)).boxed();
            }
            let asking = async move {
                let found = kinds.ask(&served, &resource).await?;
                Ok(kinds.kind(document, &resource, found.as_deref()))
            };
            ask_on(&runtime, asking)
        })
    }

    fn held(&self, served: &Arc<Served>, resource: &Resource) -> Option<Held> {
        let held = self.held.lock().get(resource.group_resource()).cloned()?;
        let counts = Arc::ptr_eq(&held.served, served) && Instant::now() < held.until;
        counts.then_some(held)
    }

    /// Asks for the definition; what was known of it counts on where nobody answers.
    async fn ask(
        &self,
        served: &Arc<Served>,
        resource: &Resource,
    ) -> Result<Option<Arc<Definition>>, Fault> {
        let of = resource.group_resource();
        let found = match definition(&self.client, of).await {
            Ok(found) => found.map(Arc::new),
            Err(fault) if fault.reason() == Reason::Forbidden => {
                tracing::warn!(
                    %resource, %fault, "kubewarm may not see whether this is a custom resource, so it counts \
                     as an aggregated API's and is not served"
                );
                None
            }
            Err(fault) => {
                let known = self.held.lock().get(of).cloned();
                let known = known.filter(|held| Arc::ptr_eq(&held.served, served));
                return known.map(|held| held.definition).ok_or(fault);
            }
        };
        let life = if found.is_some() { KNOWN } else { UNKNOWN };
        let (until, definition) = (Instant::now() + life, found.clone());
        let mut held = self.held.lock();
        held.retain(|_, held| Arc::ptr_eq(&held.served, served));
        held.insert(of.clone(), Held { served: Arc::clone(served), until, definition });
        Ok(found)
    }

    fn kind(
        &self,
        document: DocumentResource,
        resource: &Resource,
        definition: Option<&Definition>,
    ) -> Option<Arc<Kind>> {
        served_by(document, resource, definition, &self.aggregated).map(Arc::new)
    }
}

/// What is served of a kind that is not Kubernetes' own; `None`: nothing, as it may be an aggregated API's, and its
/// group is not one of those whose answers are the same for all.
fn served_by(
    document: DocumentResource,
    resource: &Resource,
    definition: Option<&Definition>,
    aggregated: &BTreeSet<String>,
) -> Option<Kind> {
    match definition {
        Some(definition) => {
            let fields = definition.fields.get(resource.version()).cloned().unwrap_or_default();
            let columns = definition.columns.get(resource.version()).cloned();
            let described = kind(document, Origin::Custom(fields));
            Some(Kind {
                list_kind: Arc::clone(&definition.list_kind),
                columns: columns.unwrap_or_default(),
                ..described
            })
        }
        None if aggregated.contains(resource.group()) => Some(kind(document, Origin::Aggregated)),
        None => None,
    }
}

/// There is one kind in our group.
fn own_definition(of: &GroupResource) -> Option<Arc<Definition>> {
    let applied = serde_json::to_value(CacheProfile::crd()).ok()?;
    Definition::of(applied, of).map(Arc::new)
}

fn kind(document: DocumentResource, origin: Origin) -> Kind {
    let api_version = match (&*document.group, &*document.version) {
        ("", version) => version.into(),
        (group, version) => format!("{group}/{version}").into(),
    };
    let list_kind = format!("{}List", document.kind).into();
    Kind { document, api_version, list_kind, origin, columns: Arc::default() }
}

/// What discovery says.
fn document(served: &Served, resource: &Resource) -> Option<DocumentResource> {
    let found = served.described(resource)?;
    Some(DocumentResource {
        group: resource.group().into(),
        version: resource.version().into(),
        plural: resource.resource().into(),
        singular: Arc::clone(&found.singular),
        kind: Arc::clone(&found.name),
        namespaced: found.namespaced,
        short_names: found.short_names.to_vec(),
        categories: found.categories.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, definition: Option<&Definition>, aggregated: &[&str]) -> Option<Kind> {
        let of = GroupResource::new(group, "cacheprofiles").unwrap();
        let resource = Resource::new(of, "v1alpha1").unwrap();
        let document = DocumentResource {
            group: group.into(),
            version: "v1alpha1".into(),
            plural: "cacheprofiles".into(),
            singular: "cacheprofile".into(),
            kind: "CacheProfile".into(),
            namespaced: true,
            short_names: Vec::new(),
            categories: Vec::new(),
        };
        let aggregated = aggregated.iter().map(|&group| group.to_owned()).collect();
        served_by(document, &resource, definition, &aggregated)
    }

    #[test]
    fn what_may_be_an_aggregated_apis_is_served_only_where_its_group_is_named() {
        assert!(served("metrics.x", None, &[]).is_none());
        assert!(served("metrics.x", None, &["x", "other.x", "metrics.x.y"]).is_none());
        let named = served("metrics.x", None, &["other.x", "metrics.x"]).unwrap();
        assert!(matches!(named.origin, Origin::Aggregated));
        let of = GroupResource::new(api::GROUP, "cacheprofiles").unwrap();
        let own = own_definition(&of).unwrap();
        let custom = served(api::GROUP, Some(&own), &[api::GROUP]).unwrap();
        assert!(matches!(custom.origin, Origin::Custom(_)), "what is known counts");
        assert_eq!(&*custom.list_kind, "CacheProfileList");
    }
}
