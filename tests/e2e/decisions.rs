//! What was decided about readers counts for its 10 s, whatever tenants do meanwhile.

use std::time::{Duration, Instant};

use crate::api::{Served, Server};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

/// For how long the tenant edits its profile.
const EDITING: Duration = Duration::from_secs(8);
/// Between two edits: faster than access checks follow them.
const PAUSE: Duration = Duration::from_millis(500);

/// A tenant edits a profile whose targets kubewarm may not read, in a namespace with an account of no rights.
/// The decisions about a reader, who reads the same object again and again, are not dropped for that.
pub(crate) fn outlast_refused_cells(
    world: &World,
    served: &Served,
    (reads, token): (&Server, &str),
    namespace: &str,
) -> Outcome {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/red");
    assert_eq!(reads.get(token, &path)?.code, 200);
    let before = reviewed(served)?;
    let began = Instant::now();
    let mut edits = 0;
    while began.elapsed() < EDITING {
        edits += 1;
        let spec = format!(
            "{{serviceAccountName: default, targets: [{{name: all, resource: configmaps, \
             scope: {{type: AllNamespaces}}, labelSelector: {{matchLabels: {{edit: '{edits}'}}}}}}]}}"
        );
        Profile::apply(world, namespace, "refused", &spec)?;
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            assert_eq!(reads.get(token, &path)?.code, 200);
        }
    }
    let asked = reviewed(served)? - before;
    world.cluster.run(["delete", "cprof", "refused", "-n", namespace])?;
    assert!(edits > 4, "{edits} edits in {:?}", began.elapsed());
    // The decision ends once in that time, twice if the machine is slow.
    assert!(asked <= 2, "the API server decided {asked} times while a tenant edited {edits} times");
    Ok(())
}

/// How many requests the API server itself decided about so far.
fn reviewed(served: &Served) -> Result<u64, Failure> {
    let (_, metrics) = served.operator.ask("/metrics")?;
    let name = r#"kubewarm_read_authorizations_total{outcome="success",source="api_server"} "#;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.ok_or_else(|| format!("no {name} in {metrics}"))?.parse()?)
}
