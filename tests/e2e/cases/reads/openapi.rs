//! Without `--forward` the read address serves no OpenAPI documents.

use serde_json::json;

use crate::api::{Served, Server, api_kubectl};
use crate::world::{Outcome, World};

/// kubewarm answers as for any unknown path.
pub(crate) fn is_not_served(
    world: &World,
    served: &Served,
    (api, reads): (&Server, &Server),
    token: &str,
) -> Outcome {
    let unknown = reads.get(token, "/nothing")?;
    assert_eq!((unknown.code, &unknown.json()["kind"]), (404, &json!("Status")), "{unknown:?}");
    let below = format!("/profiles/{}/everything/openapi/v3", crate::operator::NAMESPACE);
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", &below] {
        let reply = reads.get(token, path)?;
        assert_eq!((reply.code, reply.json()), (404, unknown.json()), "{path}");
    }
    assert_eq!(api.get(token, "/openapi/v3")?.code, 200);
    assert_eq!(reads.ask("GET", "/openapi/v3", &[])?.code, 401);
    // `kubectl explain` needs the documents and fails. Reads of objects do not need them.
    let explain = ["explain", "configmaps"];
    let output = served.kubectl(world, token)?.args(explain).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("could not find the requested"),
        "{stderr}"
    );
    assert!(api_kubectl(world, token)?.args(explain).output()?.status.success());
    let described = ["describe", "clusterrole", "cluster-admin"];
    let waited = ["wait", "--for=jsonpath={.metadata.name}=default", "namespace/default"];
    for arguments in [&waited[..], &described] {
        let output = served.kubectl(world, token)?.args(arguments).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
    }
    Ok(())
}
