//! Strict reads of a store that is too large for comparisons with a list, while objects of other
//! kinds change. So only bookmarks can prove that the store is current.

use serde_json::json;

use crate::api::{Served, Server, account, bind};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// More objects than kubewarm compares with a list (1,000).
const OBJECTS: usize = 1_100;
const READS: usize = 5;
const STRICT: &str = "{reads: {consistency: Strict}, targets: [{name: all, resource: configmaps}]}";

struct LargeStore {
    world: World,
    api: Server,
    token: String,
    namespace: String,
}

impl LargeStore {
    fn fill(world: World) -> Result<Self, Failure> {
        let namespace = world.namespace("team")?;
        let token = account(&world, &namespace, "reader")?;
        // The role `edit` would not work, because a controller adds its rules. Some of these
        // control planes run no controller.
        bind(&world, "cluster-admin", (&namespace, "reader"), Some(&namespace))?;
        let large = Self { api: Server::api(&world)?, world, token, namespace };
        eventually(SOON, || match large.create("configmaps", "ConfigMap", "first")? {
            201 | 409 => Ok(()),
            code => Err(format!("code {code}").into()),
        })?;
        for number in 0..OBJECTS {
            assert_eq!(large.create("configmaps", "ConfigMap", &format!("c{number}"))?, 201);
        }
        Ok(large)
    }

    fn create(&self, plural: &str, kind: &str, name: &str) -> Result<u16, Failure> {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/{}/{plural}", self.namespace);
        Ok(self.api.write(&self.token, ("POST", &path), &object)?.code)
    }

    /// Reads after writes to this kind and to another kind. Returns how many responses came from
    /// the cache.
    fn read(&self, flags: &[&str]) -> Result<usize, Failure> {
        let served = Served::start(&self.world, flags)?;
        let profile = Profile::apply(&self.world, &self.namespace, "p", STRICT)?;
        profile.await_manifests()?;
        profile.grant()?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let reads = served.server()?;
        let all = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        // The first read also waits for the TokenReview and the access review.
        eventually(SOON, || match reads.get(&self.token, &format!("{all}/first"))?.code {
            200 => Ok(()),
            code => Err(format!("code {code}").into()),
        })?;
        let mut cached = 0;
        for number in 0..READS {
            let name = format!("n{}-{number}", flags.len());
            assert_eq!(self.create("configmaps", "ConfigMap", &name)?, 201);
            assert_eq!(self.create("secrets", "Secret", &name)?, 201);
            let got = reads.get(&self.token, &format!("{all}/{name}"))?;
            let listed = reads.get(&self.token, &all)?;
            assert_eq!((got.code, listed.code), (200, 200), "{got:?} {}", listed.text);
            assert!(listed.text.contains(&format!("\"{name}\"")), "the list lacks the new object");
            let is_cached =
                |reply: &crate::api::HttpReply| !reply.header("kubewarm-informer").is_empty();
            cached += [&got, &listed].into_iter().filter(|reply| is_cached(reply)).count();
        }
        Ok(cached)
    }
}

#[test]
fn strict_reads_of_a_large_store_never_fail_at_a_healthy_api_server() -> Outcome {
    are_answered(World::lease()?)
}

/// Checks that all `Strict` reads are answered: by the cache, and with `--forward` also by the API
/// server.
pub(crate) fn are_answered(world: World) -> Outcome {
    let large = LargeStore::fill(world)?;
    assert_eq!(large.read(&[])?, 2 * READS, "without --forward, the cache answers all reads");
    let cached = large.read(&["--forward"])?;
    assert!(cached < 2 * READS, "no read was forwarded");
    Ok(())
}
