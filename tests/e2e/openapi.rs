//! What kinds look like: the API server's own documents, of what is kept warm.

use serde_json::json;

use crate::api::{Served, Server, api_kubectl};
use crate::world::{Failure, Outcome, World};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Compares both servers, of which `reads` keeps warm some kinds alone.
pub(crate) fn is_passed_through(
    world: &World,
    served: &Served,
    (api, reads): (&Server, &Server),
    token: &str,
) -> Outcome {
    let ours = reads.get(token, "/openapi/v3")?;
    let theirs = api.get(token, "/openapi/v3")?.json();
    let index = ours.json();
    let paths: Vec<_> = index["paths"].as_object().into_iter().flatten().collect();
    let names: Vec<_> = paths.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "api/v1",
        "apis/apps/v1",
        "apis/batch/v1",
        "apis/certificates.k8s.io/v1",
        "apis/events.k8s.io/v1",
        "apis/example.com/v1",
        "apis/rbac.authorization.k8s.io/v1",
        "apis/resource.k8s.io/v1",
    ];
    assert_eq!((ours.code, &*names), (200, &expected[..]), "{ours:?}");
    for (name, entry) in paths {
        assert_eq!(*entry, theirs["paths"][name], "{name}");
        let url = entry["serverRelativeURL"].as_str().ok_or("no URL")?;
        for path in [url, &format!("/openapi/v3/{name}")] {
            for accept in [JSON, PROTOBUF, OLD_PROTOBUF] {
                let (ours, theirs) =
                    (reads.get_as(token, path, accept)?, api.get_as(token, path, accept)?);
                assert_eq!((ours.code, theirs.code), (200, 200), "{path} {accept}");
                assert!(ours.text == theirs.text, "{path} {accept}: other bytes");
                for header in ["cache-control", "content-type", "etag", "vary"] {
                    assert_eq!(ours.header(header), theirs.header(header), "{path} {accept}");
                }
                let is_kept = path == url;
                for answer in [&ours, &theirs] {
                    assert_eq!(answer.header("expires").is_empty(), !is_kept, "{path}");
                }
            }
        }
        // Whoever knows an older one is sent to this one.
        let older = format!("/openapi/v3/{name}?hash=ABC");
        let (ours, theirs) = (reads.get(token, &older)?, api.get(token, &older)?);
        assert_eq!((ours.code, ours.text), (301, theirs.text), "{older}");
        for header in ["cache-control", "content-type", "location", "vary"] {
            let (ours, theirs) = (&ours.headers, &theirs.headers);
            assert_eq!(ours.get(header), theirs.get(header), "{older} {header}");
        }
        // The API server does not compress them, whoever asks for it.
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("accept", JSON), ("accept-encoding", "gzip")];
        let (packed, theirs) = (reads.ask("GET", url, &headers)?, api.ask("GET", url, &headers)?);
        assert!(packed.text == theirs.text, "{url}: other bytes");
        for header in ["content-encoding", "vary", "etag", "content-type"] {
            assert_eq!(packed.header(header), theirs.header(header), "{url} {header}");
        }
        // Who has it is told so.
        let tag = reads.get_as(token, url, JSON)?.header("etag").to_owned();
        let headers = [("authorization", &*bearer), ("if-none-match", &tag)];
        assert_eq!(reads.ask("GET", url, &headers)?.code, 304, "{url}");
    }
    let below = format!("/profiles/{}/everything/openapi/v3", crate::operator::NAMESPACE);
    assert_eq!(reads.get(token, &below)?.json(), index);
    let older = reads.get(token, &format!("{below}/api/v1?hash=ABC"))?;
    assert!(older.header("location").starts_with(&format!("{below}/api/v1?hash=")), "{older:?}");
    for (path, accept, code) in [
        ("/openapi/v3/apis/policy/v1", JSON, 404),
        ("/openapi/v3/apis/example.com/v2", JSON, 404),
        ("/openapi/v2", JSON, 404),
        ("/openapi/v3/api/v1", "text/html", 406),
        ("/openapi/v3", PROTOBUF, 406),
    ] {
        let reply = reads.get_as(token, path, accept)?;
        assert_eq!((reply.code, &reply.json()["kind"]), (code, &json!("Status")), "{path}");
    }
    assert_eq!(reads.ask("GET", "/openapi/v3", &[])?.code, 401);
    for arguments in [
        &["explain", "configmaps"] as &[&str],
        &["explain", "pods.spec.containers", "--recursive"],
        &["explain", "parts"],
    ] {
        let ours = explained(served.kubectl(world, token)?.args(arguments).output()?)?;
        let theirs = explained(api_kubectl(world, token)?.args(arguments).output()?)?;
        assert_eq!(ours, theirs, "{arguments:?}");
    }
    Ok(())
}

fn explained(output: std::process::Output) -> Result<String, Failure> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
