//! What the tables hold in the end is what the API server has, whatever was written meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use kubewarm::app::CatalogTables;
use kubewarm::cluster::{Connection, OperatorOnly};
use kubewarm::informer::{Bounds, Informers as _, Measured, Meter, Registry, Reports, Timing};
use kubewarm::model::{
    CellKey, CellSpec, Extent, FieldSelector, GroupResource, Identity, LabelSelector, ListStrategy,
    ManagedFields, MemberOf, NamespaceCheck, ObjectKey, ProfileRef, Projection, Resource,
    ResourceVersion, SensitiveData, Tuning,
};
use kubewarm::store::{Catalog, Reader};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{Failure, Outcome, PARTS, World, eventually};

const SOON: Duration = Duration::from_mins(1);
const WRITERS: usize = 16;
/// Writes that the server has taken, in the end.
const WRITES: usize = 3_000;
/// Few names, so that each is created, changed, deleted and created again many times.
const NAMES: usize = 60;
const NAMESPACE: &str = "oracle";
/// Objects copied out of a table at a time.
const PAGE: usize = 50;

/// A kind that is written and watched.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    name: &'static str,
    strategy: ListStrategy,
}

const KINDS: [Kind; 3] = [
    Kind {
        group: "",
        version: "v1",
        plural: "configmaps",
        name: "ConfigMap",
        strategy: ListStrategy::Whole,
    },
    Kind {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        name: "Lease",
        strategy: ListStrategy::Streaming,
    },
    Kind {
        group: "example.com",
        version: "v1",
        plural: "parts",
        name: "Part",
        strategy: ListStrategy::Paged,
    },
];

impl Kind {
    fn api_version(self) -> String {
        let separator = if self.group.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", self.group, self.version)
    }

    /// The path of the collection.
    fn path(self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/{NAMESPACE}/{}", self.api_version(), self.plural)
    }

    fn spec(self) -> Result<CellSpec, Failure> {
        let of = GroupResource::new(self.group, self.plural)?;
        let profile = ProfileRef { namespace: NAMESPACE.into(), name: "all".into() };
        Ok(CellSpec {
            key: CellKey {
                resource: Resource::new(of, self.version)?,
                extent: Extent::Namespace(NAMESPACE.into()),
                labels: LabelSelector::default(),
                fields: FieldSelector::default(),
                projection: Projection::Full(ManagedFields::Drop),
                sensitive_data: SensitiveData::Deny,
                identity: Identity::Operator,
            },
            tuning: Tuning {
                member_of: MemberOf { profile, max_concurrent_lists: 4, priority: 100 },
                strategy: self.strategy,
                page_size: 20,
                streaming_deadline: Duration::from_secs(30),
                max_staleness: Duration::from_mins(2),
                namespace_check: NamespaceCheck::Known,
            },
            indexes: BTreeSet::new(),
        })
    }
}

struct Unmetered;

impl Meter for Unmetered {
    fn record(&self, _resource: &Resource, _what: Measured) {}
}

/// Sends one request; `Ok` if the server did it.
async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> kube::Result<Value> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(
            "content-type",
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
        )
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Creates, changes, deletes and replaces objects until enough has been written.
async fn write(client: Client, written: Arc<AtomicUsize>, writer: usize) {
    let mut random = fastrand::Rng::with_seed(writer as u64);
    while written.load(Ordering::Relaxed) < WRITES {
        let Some(kind) = random.choice(KINDS) else { return };
        let name = format!("object-{}", random.usize(..NAMES));
        let size = random.usize(..400);
        let noise: String = (0..size).map(|_| random.alphanumeric()).collect();
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.name,
            "metadata": {"name": name, "labels": {"writer": writer.to_string()},
                "annotations": {"noise": noise, "escaped": "\"\\\n\u{e9}\u{1f600}"}},
        });
        if kind.name == "Part" {
            object["spec"] = json!({"size": 1.50, "large": 12_345_678_901_234_567_u64, "none": []});
        }
        let (path, one) = (kind.path(), format!("{}/{name}", kind.path()));
        let done = match random.u8(..10) {
            0..4 => send(&client, "POST", &path, Some(&object)).await,
            4..7 => send(&client, "PATCH", &one, Some(&object)).await,
            7..9 => send(&client, "DELETE", &one, None).await,
            _ => match send(&client, "DELETE", &one, None).await {
                Ok(_) => send(&client, "POST", &path, Some(&object)).await,
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Reads page by page and names what went back to an older version.
async fn look(tables: Vec<Reader>, stop: CancellationToken) -> Result<u64, String> {
    let mut seen: Vec<(Option<ResourceVersion>, HashMap<ObjectKey, ResourceVersion>)> =
        vec![Default::default(); tables.len()];
    let mut looks = 0;
    while !stop.is_cancelled() {
        for (table, (newest, objects)) in tables.iter().zip(&mut seen) {
            let mut after = None;
            loop {
                let page = table.page(after.as_ref(), PAGE);
                if went_back(newest.as_ref(), page.version.as_ref()) {
                    return Err(format!("the table, from {newest:?} to {:?}", page.version));
                }
                newest.clone_from(&page.version);
                for object in page.objects {
                    let last = objects.get(&object.key);
                    if went_back(last, object.version.as_ref()) {
                        return Err(format!("{:?}: {last:?} to {:?}", object.key, object.version));
                    }
                    if let Some(version) = object.version {
                        objects.insert(object.key, version);
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            looks += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(looks)
}

fn went_back(last: Option<&ResourceVersion>, now: Option<&ResourceVersion>) -> bool {
    match (last, now) {
        (Some(last), Some(now)) => now.is_older_than(last),
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// What an object is: its UID, its version and its body without what is not kept.
type Contents = BTreeMap<String, (String, String, Value)>;

fn contents(mut body: Value) -> Option<(String, (String, String, Value))> {
    let object = body.as_object_mut()?;
    object.remove("apiVersion");
    object.remove("kind");
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields");
    let text = |name: &str| Some(metadata.get(name)?.as_str()?.to_owned());
    Some((text("name")?, (text("uid")?, text("resourceVersion")?, body.clone())))
}

fn held(table: &Reader) -> Result<Contents, Failure> {
    let mut all = Contents::new();
    for object in table.page(None, usize::MAX).objects {
        let (name, entry) =
            contents(serde_json::from_slice(&object.body)?).ok_or("an object without a name")?;
        assert_eq!(&*object.key.name, name, "the key is the body's");
        assert_eq!(object.uid.to_string(), entry.0, "the uid is the body's");
        assert_eq!(object.version.map(|it| it.to_string()).as_ref(), Some(&entry.1));
        all.insert(name, entry);
    }
    Ok(all)
}

async fn listed(client: &Client, kind: Kind) -> Result<Contents, Failure> {
    let list = send(client, "GET", &kind.path(), None).await?;
    let items = list["items"].as_array().ok_or("no items")?;
    Ok(items.iter().cloned().filter_map(contents).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_thousands_of_writes_and_a_restart_every_table_is_what_a_list_says() -> Outcome {
    let world = World::alone()?;
    world.cluster.run(["create", "namespace", NAMESPACE])?;
    world.cluster.apply(PARTS)?;
    let connection = Connection::load(Some(world.cluster.kubeconfig()), None)?;
    let client = connection.client();
    let paths = KINDS.map(Kind::path);
    for path in &paths {
        eventually(SOON, || Ok(world.cluster.run(["get", "--raw", path])?))?;
    }
    let catalog = Catalog::new();
    let mut registry = Registry::new(
        Arc::new(OperatorOnly::new(connection.informer_client())),
        Arc::new(CatalogTables(catalog.clone())),
        Arc::new(Unmetered),
        Bounds { lists: 8, namespace_share: 100 },
        Timing::default(),
    );
    let mut tables = Vec::new();
    for kind in KINDS {
        let spec = kind.spec()?;
        registry.start(&spec);
        tables.push(catalog.reader(&spec.key).ok_or("no table")?);
    }

    let written = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let reader = tokio::spawn(look(tables.clone(), stop.clone()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(client.clone(), Arc::clone(&written), writer)))
        .collect();
    eventually(SOON, || {
        let written = written.load(Ordering::Relaxed);
        if written >= WRITES / 2 { Ok(()) } else { Err(format!("{written} writes").into()) }
    })?;
    world.cluster.apiserver().restart()?;
    for writer in writers {
        writer.await?;
    }

    for (kind, table) in KINDS.into_iter().zip(&tables) {
        let expected = listed(&client, kind).await?;
        assert!(!expected.is_empty(), "nothing was written");
        eventually(SOON, || {
            let held = held(table)?;
            if held == expected { Ok(()) } else { Err(difference(&expected, &held).into()) }
        })
        .map_err(|error| format!("{}: {error}; {}", kind.plural, states(&registry.reports())))?;
    }
    stop.cancel();
    let looks = reader.await?.map_err(|what| format!("went back: {what}"))?;
    assert!(looks > 100, "only {looks} looks");
    registry.shut_down().await;
    Ok(())
}

/// The first thing that differs.
fn difference(expected: &Contents, held: &Contents) -> String {
    let names: BTreeSet<_> = expected.keys().chain(held.keys()).collect();
    let differs = names.into_iter().find(|name| expected.get(*name) != held.get(*name));
    let Some(name) = differs else { return String::new() };
    format!("{name} is {:#?}, held as {:#?}", expected.get(name), held.get(name))
}

fn states(reports: &Reports) -> String {
    let all = reports.all().into_iter();
    let all = all.map(|(key, report)| format!("{key} is {:?}: {:?}", report.phase, report.fault));
    all.collect::<Vec<_>>().join("; ")
}
