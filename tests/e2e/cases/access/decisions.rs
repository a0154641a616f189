//! Access decisions about readers count for 10 s, even if tenants edit their profiles meanwhile.

use std::time::{Duration, Instant};

use crate::api::{Served, Server};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

/// The time in which the tenant edits its profile.
const EDITING: Duration = Duration::from_secs(8);
/// The pause between two edits. It is shorter than the access checks after an edit take.
const PAUSE: Duration = Duration::from_millis(500);

/// A tenant edits a profile whose targets kubewarm may not read, with an account without
/// permissions. kubewarm must keep its access decisions about another reader, who reads the same
/// object repeatedly.
pub(crate) fn decisions_outlast_refused_informers(
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
    let count = reviewed(served)? - before;
    world.cluster.run(["delete", "cprof", "refused", "-n", namespace])?;
    assert!(edits > 4, "{edits} edits in {:?}", began.elapsed());
    // The reader's access decision expires once in this time, or twice on a slow machine.
    assert!(count <= 2, "the API server decided {count} times while a tenant edited {edits} times");
    Ok(())
}

/// Returns how many access decisions kubewarm has requested from the API server.
fn reviewed(served: &Served) -> Result<u64, Failure> {
    let (_, metrics) = served.operator.ask("/metrics")?;
    let name = r#"kubewarm_read_authorizations_total{outcome="success",source="api_server"} "#;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.ok_or_else(|| format!("no {name} in {metrics}"))?.parse()?)
}
