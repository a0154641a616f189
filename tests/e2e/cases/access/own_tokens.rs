//! Tests `--auth=caller-token`: kubewarm sends access reviews with each caller's own token, so that
//! kubewarm needs no permission to send reviews about other users.

use std::time::Duration;

use kube::client::Body;
use serde_json::json;

use crate::api::{HttpReply, Served, Server, Watch, account, let_read};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Timeout for the end of a revoked permission. kubewarm promises 30 s.
const REVOKED: Duration = Duration::from_mins(5);
/// Timeout for a deleted ServiceAccount. The API server accepts its token for 10 s, and kubewarm
/// reviews the watch within 30 s.
const GONE: Duration = Duration::from_mins(5);

/// The user that the reader may impersonate at the API server.
const ANOTHER: &str = "john";

/// A reader of a namespace's `ConfigMaps`.
struct OwnTokenFixture<'a> {
    world: &'a World,
    api: Server,
    reads: Server,
    team: String,
    token: String,
    collection: String,
}

/// Checks that the API server decides with the caller's token only.
pub(crate) fn decide(world: &World, served: &Served) -> Outcome {
    let (api, reads) = (Server::api(world)?, served.server()?);
    let team = world.namespace("team")?;
    let token = account(world, &team, "reader")?;
    let collection = format!("/api/v1/namespaces/{team}/configmaps");
    let scene = OwnTokenFixture { world, api, reads, team, token, collection };
    let OwnTokenFixture { api, reads, team, token, collection, .. } = &scene;
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    Profile::apply(world, team, "mine", spec)?.await_condition("Ready", "True", None, SOON)?;
    let (ours, theirs) = (reads.get(token, collection)?, api.get(token, collection)?);
    assert_eq!((ours.code, ours.json()), (403, theirs.json()));
    let_read(world, (team, "reader"), Some(team))?;
    eventually(SOON, || await_code(200, &reads.get(token, collection)?))?;
    assert_eq!(reads.get("bad", collection)?.code, 401);
    check_impersonated_user(&scene)?;
    for_how_long(&scene)
}

fn await_code(code: u16, reply: &HttpReply) -> Outcome {
    if reply.code == code { Ok(()) } else { Err(format!("{reply:?}").into()) }
}

impl OwnTokenFixture<'_> {
    /// Sends a request that impersonates `user`.
    fn acting(&self, server: &Server, user: &str, path: &str) -> Result<HttpReply, Failure> {
        let bearer = format!("Bearer {}", self.token);
        server.ask("GET", path, &[("authorization", &bearer), ("impersonate-user", user)])
    }

    /// Sends the API server a SelfSubjectReview that impersonates `user`. The API server answers
    /// 201 if the caller may impersonate `user` in such reviews.
    fn review_as(&self, user: &str) -> Result<HttpReply, Failure> {
        let bearer = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", &*bearer),
            ("content-type", "application/json"),
            ("impersonate-user", user),
        ];
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        self.api.send(("POST", path), &headers, Body::from(review.to_string().into_bytes()))
    }

    /// Opens a watch and waits until it is permitted.
    fn watch(&self, token: &str) -> Result<Watch, Failure> {
        let path = format!("{}?watch=1", self.collection);
        let watch = eventually(SOON, || {
            let watch = self.reads.watch(token, &path, "*/*")?;
            if watch.code == 200 { Ok(watch) } else { Err(format!("{}", watch.code).into()) }
        })?;
        eventually(
            SOON,
            || {
                if watch.events().is_empty() { Err("nothing".into()) } else { Ok(()) }
            },
        )?;
        Ok(watch)
    }
}

/// Checks that a request with impersonation reads nothing from a store. RBAC constrains the
/// reader's permission (KEP-5284): the reader may send reviews as `ANOTHER`, but no other requests.
fn check_impersonated_user(scene: &OwnTokenFixture<'_>) -> Outcome {
    let OwnTokenFixture { world, api, reads, team, token, collection } = scene;
    for server in [reads, api] {
        assert_eq!(scene.acting(server, "system:admin", collection)?.code, 403);
    }

    world.cluster.run(["create", "configmap", "red", "-n", team])?;
    let red = format!("{collection}/red");
    eventually(SOON, || await_code(200, &reads.get(token, &red)?))?;
    let role = ["create", "role", ANOTHER, "-n", team, "--verb=get,list", "--resource=configmaps"];
    world.cluster.run(role)?;
    let (role, user) = (format!("--role={ANOTHER}"), format!("--user={ANOTHER}"));
    world.cluster.run(["create", "rolebinding", ANOTHER, "-n", team, &role, &user])?;
    let reviews = "{apiGroups: [authentication.k8s.io, authorization.k8s.io], \
                   resources: [selfsubjectreviews, selfsubjectaccessreviews], \
                   verbs: ['impersonate-on:user-info:create']}";
    let user_info = format!(
        "{{apiGroups: [authentication.k8s.io], resources: [users], resourceNames: [{ANOTHER}], \
         verbs: ['impersonate:user-info']}}"
    );
    world.cluster.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {ANOTHER}-of-{team}}}
rules: [{user_info}, {reviews}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {ANOTHER}-of-{team}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {ANOTHER}-of-{team}}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {team}}}]
"
    ))?;
    // The API server permits a review as `ANOTHER`, and `ANOTHER` may read. Nevertheless, it does
    // not permit the reader to read as `ANOTHER`.
    eventually(SOON, || await_code(201, &scene.review_as(ANOTHER)?))?;
    for path in [collection, &red] {
        for server in [api, reads] {
            let reply = scene.acting(server, ANOTHER, path)?;
            assert_eq!(reply.code, 403, "{path}: {reply:?}");
        }
        let reply = scene.acting(reads, ANOTHER, path)?;
        assert!(reply.text.contains("Impersonate-*"), "{reply:?}");
        assert_eq!(reads.get(token, path)?.code, 200, "{path}");
    }
    Ok(())
}

/// Checks that access ends after the loss of a permission, and after the deletion of the
/// ServiceAccount.
fn for_how_long(scene: &OwnTokenFixture<'_>) -> Outcome {
    let OwnTokenFixture { world, api, reads, team, token, collection } = scene;
    let watch = scene.watch(token)?;
    let gone = account(world, team, "gone")?;
    let_read(world, (team, "gone"), Some(team))?;
    let of_gone = scene.watch(&gone)?;
    let staying = account(world, team, "staying")?;
    let_read(world, (team, "staying"), Some(team))?;
    let other = scene.watch(&staying)?;
    world.cluster.run(["delete", "rolebinding", &format!("read-{team}-reader"), "-n", team])?;
    world.cluster.run(["delete", "serviceaccount", "gone", "-n", team])?;
    let over = |token: &str, watch: &Watch, code, most| {
        eventually(most, || {
            let (reply, is_over) = (reads.get(token, collection)?, watch.is_over());
            if (reply.code, is_over) == (code, true) {
                return Ok(reply);
            }
            Err(format!("{} {is_over}", reply.code).into())
        })
    };
    let refused = over(token, &watch, 403, REVOKED)?;
    let unknown = over(&gone, &of_gone, 401, GONE)?;
    assert_eq!(refused.json(), api.get(token, collection)?.json());
    assert_eq!(unknown.json(), api.get(&gone, collection)?.json());
    assert!(!other.is_over());
    Ok(())
}
