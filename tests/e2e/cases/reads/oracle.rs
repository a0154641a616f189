//! After concurrent writes, each store contains exactly the objects of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kubewarm_api::model::{
    GroupResource, InformerKey, InformerScope, InformerSpec, ManagedFieldsPolicy, MetricOutcome,
    ProfileRef, Projection, Resource,
};
use kubewarm_cache::informer::{InformerMetrics, InformerRegistry, InformerTiming, RegistryLimits};
use kubewarm_cache::store::StoreCatalog;
use kubewarm_client::{ApiServerConnection, ConnectionOptions, NamespaceBuckets};
use tokio_util::sync::CancellationToken;

use crate::contents::{difference, listed, look, read_store, states};
use crate::world::{Failure, Outcome, PARTS, SOON, World, eventually};
use crate::writers::{KINDS, WatchedKind, write};

const WRITERS: usize = 16;
/// The total number of writes that the API server accepts.
const WRITES: usize = 3_000;
const NAMESPACE: &str = "oracle";
/// The pause between two consistency checks of a store: the minimum that a profile may set.
const COMPARED: Duration = Duration::from_secs(1);

fn spec(kind: WatchedKind) -> Result<InformerSpec, Failure> {
    let resource = GroupResource::new(kind.group, kind.plural)?;
    let profile = ProfileRef { namespace: NAMESPACE.into(), name: "all".into() };
    let of_own = InformerKey::all(
        Resource::new(resource, kind.version)?,
        InformerScope::Namespace(NAMESPACE.into()),
        Projection::Full(ManagedFieldsPolicy::Drop),
    );
    let key = InformerKey { declared_in: Some(NAMESPACE.into()), ..of_own };
    let mut spec = InformerSpec::new(key, profile);
    spec.settings.lists.strategy = kind.strategy;
    spec.settings.lists.page_size = 20;
    spec.settings.consistency_check_period = Some(COMPARED);
    Ok(spec)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_thousands_of_writes_and_a_restart_every_store_matches_a_list() -> Outcome {
    let world = World::alone()?;
    world.cluster.run(["create", "namespace", NAMESPACE])?;
    world.cluster.apply(PARTS)?;
    let connection =
        ApiServerConnection::load(&ConnectionOptions::of_file(world.cluster.kubeconfig()))?;
    let client = connection.client();
    let paths = KINDS.map(|kind| kind.path(NAMESPACE));
    for path in &paths {
        eventually(SOON, || Ok(world.cluster.run(["get", "--raw", path])?))?;
    }
    let catalog = StoreCatalog::new();
    let metrics = Arc::new(InformerMetrics::new()?);
    let mut registry = InformerRegistry::new(
        Arc::new(connection.new_account_clients(NamespaceBuckets::default())),
        catalog.clone(),
        Arc::clone(&metrics),
        RegistryLimits { lists: 8, namespace_quota: 100, buckets: NamespaceBuckets::default() },
        InformerTiming::default(),
    );
    let mut tables = Vec::new();
    for kind in KINDS {
        let spec = spec(kind)?;
        registry.start(&spec);
        tables.push(catalog.reader(&spec.key).ok_or("no table")?);
    }

    let written = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let reader = tokio::spawn(look(tables.clone(), stop.clone()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let counted = (Arc::clone(&written), writer);
            tokio::spawn(write(client.clone(), &[NAMESPACE], counted, |done| done < WRITES))
        })
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
        let expected = listed(&client, &kind.path(NAMESPACE)).await?;
        assert!(!expected.is_empty(), "nothing was written");
        eventually(SOON, || {
            let contents = read_store(table)?;
            if contents == expected { Ok(()) } else { Err(difference(&expected, &contents).into()) }
        })
        .map_err(|error| format!("{}: {error}; {}", kind.plural, states(&registry.reports())))?;
    }
    for kind in KINDS {
        let counted = metrics.for_resource(&spec(kind)?.key.resource);
        let checked = counted.consistency_checks.with_label_values(&[MetricOutcome::Success]);
        let count_equal = || checked.get() - counted.consistency_differences.get();
        let before = count_equal();
        // The next consistency checks run while no one writes. The earlier ones ran during the
        // writes.
        eventually(SOON, || {
            let equal = count_equal();
            if equal > before + 1 { Ok(()) } else { Err(format!("{equal} were equal").into()) }
        })?;
        assert!(before > 0, "no store of {} was equal during the writes", kind.plural);
        assert_eq!(counted.consistency_differences.get(), 0, "{}", kind.plural);
    }
    stop.cancel();
    let looks = reader.await?.map_err(|what| format!("went back: {what}"))?;
    assert!(looks > 100, "only {looks} looks");
    registry.shut_down().await;
    Ok(())
}
