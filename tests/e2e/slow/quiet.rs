//! Tests that a store whose objects do not change stays fresh, whether a client reads it or not.

use std::thread::sleep;
use std::time::Duration;

use crate::api::{HttpReply, Served, Server, account, let_read};
use crate::figures::Exposition;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Longer than three bookmarks, and longer than the default of `maxStalenessSeconds`, 120 s.
pub(super) const QUIET: Duration = Duration::from_secs(200);

/// A store of `ConfigMaps` that no one changes, and its reader.
pub(super) struct QuietStore {
    served: Served,
    reads: Server,
    token: String,
    path: String,
    _world: World,
}

impl QuietStore {
    /// Returns after the first successful read.
    pub(super) fn start(world: World) -> Result<Self, Failure> {
        let namespace = world.namespace("team")?;
        let served = Served::start(&world, &[])?;
        let token = account(&world, &namespace, "reader")?;
        let_read(&world, (&namespace, "reader"), Some(&namespace))?;
        let spec = "{targets: [{name: all, resource: configmaps}]}";
        let profile = Profile::apply(&world, &namespace, "p", spec)?;
        profile.await_manifests()?;
        profile.grant()?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let reads = served.server()?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let store = Self { served, reads, token, path, _world: world };
        eventually(SOON, || match store.read()?.code {
            200 => Ok(()),
            code => Err(format!("code {code}").into()),
        })?;
        Ok(store)
    }

    fn read(&self) -> Result<HttpReply, Failure> {
        self.reads.get(&self.token, &self.path)
    }

    pub(super) fn assert_fresh(&self) -> Outcome {
        let reply = self.read()?;
        assert_eq!((reply.code, reply.header("warning")), (200, ""), "{reply:?}");
        Ok(())
    }

    pub(super) fn assert_no_read_waited(&self) -> Outcome {
        let figures = Exposition::read(&self.served.operator)?;
        let waits =
            figures.sum("kubewarm_read_wait_seconds_count", &["reason=\"freshness_check\""]);
        assert!(waits < 0.5, "{waits} reads of a quiet store waited for a freshness check");
        Ok(())
    }
}

/// With etcd's default, the API server learns the newest version from etcd's own notifications only
/// every 10 minutes. The consistent lists of the informer must make the API server ask etcd.
#[test]
fn with_rare_progress_notifications_the_first_read_after_a_silence_does_not_wait() -> Outcome {
    let store = QuietStore::start(World::with_rare_progress()?)?;
    sleep(QUIET);
    store.assert_fresh()?;
    store.assert_no_read_waited()
}
