//! Random RBAC rules, with the generator of the RBAC test: the API server's access reviews must
//! decide as the rules that kubewarm compiles. Unlike the RBAC test, this includes what the API
//! server validates, defaults and caches.

#[path = "../../../crates/kubewarm-rbac/tests/rbac_authorizer/world.rs"]
mod random_world;

use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kubewarm_rbac::{RbacDecision, RbacKind, RbacResource, RbacRules};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::random_world::{AccessRequest, RbacWorld};
use crate::api::{Server, account, bind};
use crate::operator::NAMESPACE;
use crate::world::{Failure, Outcome, World, eventually};

const WORLDS: u64 = 300;
/// The API server's authorizer usually has a change after some milliseconds.
const PAUSE: Duration = Duration::from_millis(50);
/// Timeout until it has a change on a busy machine.
const SETTLED: Duration = Duration::from_mins(1);
const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The API server, and the rules of its objects.
struct RandomRules {
    api: Server,
    token: String,
    rules: RbacRules,
    /// The kind, namespace, name and path of each object of the current world.
    created: Vec<(RbacKind, String, String, String)>,
}

impl RandomRules {
    fn write(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let reply = self.api.write(&self.token, (method, path), body)?;
        Ok((reply.code, reply.json()))
    }

    /// Adds the rules of all objects that the API server has at its start.
    fn list<T: DeserializeOwned>(&mut self, kind: RbacKind) -> Outcome
    where
        for<'a> RbacResource<'a>: From<&'a T>,
    {
        let list = self.api.get(&self.token, &format!("{GROUP}/{}", kind.resource()))?.json();
        let items: Vec<T> = serde_json::from_value(list["items"].clone())?;
        for item in &items {
            self.rules.upsert(item);
        }
        Ok(())
    }

    /// Creates the objects that the API server accepts, and adds their rules.
    fn create<T: Serialize + DeserializeOwned>(&mut self, kind: RbacKind, objects: &[T]) -> Outcome
    where
        for<'a> RbacResource<'a>: From<&'a T>,
    {
        for object in objects {
            let object = serde_json::to_value(object)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let [namespace, name] = ["namespace", "name"].map(|key| text(&object["metadata"][key]));
            let place = match &*namespace {
                "" => String::new(),
                namespace => format!("/namespaces/{namespace}"),
            };
            let collection = format!("{GROUP}{place}/{}", kind.resource());
            let (201, created) = self.write("POST", &collection, &object)? else { continue };
            self.rules.upsert(&serde_json::from_value::<T>(created)?);
            let path = format!("{collection}/{name}");
            self.created.push((kind, namespace, name, path));
        }
        Ok(())
    }

    fn delete_all(&mut self) -> Outcome {
        for (kind, namespace, name, path) in std::mem::take(&mut self.created) {
            let (code, answer) = self.write("DELETE", &path, &json!({}))?;
            assert_eq!(code, 200, "{answer}");
            self.rules.remove(kind, &namespace, &name);
        }
        Ok(())
    }

    /// Compares both decisions about a request. Returns whether it is allowed; `None` if the API
    /// server rejects the review.
    fn compare(&self, seed: u64, request: &AccessRequest) -> Result<Option<bool>, Failure> {
        let AccessRequest { user, groups, access } = request;
        let mut spec = serde_json::to_value(access)?;
        (spec["user"], spec["groups"]) = (json!(user), json!(groups));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let expected = self.rules.decide(user, groups, access) == RbacDecision::Allow;
        eventually(SETTLED, || match self.write("POST", REVIEWS, &review)? {
            (201, answer) if answer["status"]["allowed"] == expected => Ok(Some(expected)),
            (201, answer) => Err(format!("seed {seed}: {expected}, but {answer}").into()),
            (_, _) => Ok(None),
        })
    }
}

#[test]
fn access_reviews_decide_as_the_compiled_rules() -> Outcome {
    let world = World::lease()?;
    for name in ["a", "b"] {
        world.cluster.run(["create", "namespace", name])?;
    }
    world.cluster.run(["create", "namespace", NAMESPACE])?;
    let token = account(&world, NAMESPACE, "administrator")?;
    bind(&world, "cluster-admin", (NAMESPACE, "administrator"), None)?;
    let (api, rules) = (Server::api(&world)?, RbacRules::default());
    let mut reviewed = RandomRules { api, token, rules, created: Vec::new() };
    reviewed.list::<Role>(RbacKind::Role)?;
    reviewed.list::<RoleBinding>(RbacKind::RoleBinding)?;
    reviewed.list::<ClusterRole>(RbacKind::ClusterRole)?;
    reviewed.list::<ClusterRoleBinding>(RbacKind::ClusterRoleBinding)?;
    let first = fastrand::u64(..);
    let (mut compared, mut allowed) = (0, 0);
    for seed in (0..WORLDS).map(|number| first.wrapping_add(number)) {
        let random = RbacWorld::generate(seed);
        reviewed.create(RbacKind::Role, &random.roles)?;
        reviewed.create(RbacKind::ClusterRole, &random.cluster_roles)?;
        reviewed.create(RbacKind::RoleBinding, &random.role_bindings)?;
        reviewed.create(RbacKind::ClusterRoleBinding, &random.cluster_role_bindings)?;
        sleep(PAUSE);
        // The API server allows members of this group everything, without a rule.
        let is_master =
            |request: &&AccessRequest| request.groups.iter().any(|g| g == "system:masters");
        for request in random.requests.iter().filter(|request| !is_master(request)) {
            if let Some(is_allowed) = reviewed.compare(seed, request)? {
                (compared, allowed) = (compared + 1, allowed + usize::from(is_allowed));
            }
        }
        reviewed.delete_all()?;
    }
    assert!(compared > 1_000, "{compared} decisions");
    assert!((2..=90).contains(&(allowed * 100 / compared)), "{allowed} of {compared} allowed");
    Ok(())
}
