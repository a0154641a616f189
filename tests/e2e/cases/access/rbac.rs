//! Tests `--authorization=rbac`: RBAC rules authorize readers without access reviews, and access
//! reviews decide the rest. An authorizer that denies what RBAC allows ends decisions by rules.

use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Served, Server, Watch, account, let_read};
use crate::authorizer::WebhookAuthorizer;
use crate::figures::{Exposition, informers};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

/// The time in which the reviews of a reader at rest are counted.
const REST: Duration = Duration::from_secs(10);
/// Timeout for the end of a revoked permission. kubewarm promises a second, after which the reader
/// sends its next request.
const REVOKED: Duration = Duration::from_secs(5);

/// An operator that authorizes by RBAC rules, and a namespace with a warm profile of `ConfigMaps`.
struct RuledReads<'a> {
    world: &'a World,
    served: Served,
    reads: Server,
    team: &'a str,
    path: String,
}

impl<'a> RuledReads<'a> {
    fn start(world: &'a World, team: &'a str) -> Result<Self, Failure> {
        let served = Served::start(world, &["--authorization=rbac"])?;
        let rights = file("deploy/rbac-authorization.yaml");
        world.cluster.run(["apply", "-f", &rights.to_string_lossy()])?;
        Operator::grant_reading(world)?;
        let spec = "{targets: [{name: settings, resource: configmaps}]}";
        Profile::apply(world, team, "mine", spec)?.await_condition("Ready", "True", None, SOON)?;
        let (reads, path) = (served.server()?, format!("/api/v1/namespaces/{team}/configmaps"));
        Ok(Self { world, served, reads, team, path })
    }

    /// The number of successful decisions from `source`.
    fn decisions(&self, source: &str) -> Result<f64, Failure> {
        let labels = [format!("source=\"{source}\""), "outcome=\"success\"".to_owned()];
        let labels = labels.each_ref().map(String::as_str);
        let exposition = Exposition::read(&self.served.operator)?;
        Ok(exposition.sum("kubewarm_read_authorizations_total", &labels))
    }

    /// Sends requests until RBAC rules authorize one.
    fn await_rules(&self, token: &str) -> Outcome {
        // The operator answers for a second with the same metrics.
        let before = self.decisions("rules")?;
        eventually(SOON, || {
            let code = self.reads.get(token, &self.path)?.code;
            if code == 200 && self.decisions("rules")? > before {
                return Ok(());
            }
            Err(format!("{code}").into())
        })
    }

    fn watch(&self, token: &str) -> Result<Watch, Failure> {
        let watch = self.reads.watch(token, &format!("{}?watch=1", self.path), "*/*")?;
        assert_eq!(watch.code, 200);
        Ok(watch)
    }

    /// Creates a `ConfigMap` and returns whether `watch` receives it within `most`.
    fn delivers(&self, watch: &Watch, name: &str, most: Duration) -> Result<bool, Failure> {
        self.world.cluster.run(["create", "configmap", name, "-n", self.team])?;
        let began = Instant::now();
        while began.elapsed() < most {
            if watch.events().iter().any(|event| event["object"]["metadata"]["name"] == name) {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }
}

#[test]
fn rules_authorize_without_reviews_and_a_revocation_ends_watches_and_pages() -> Outcome {
    let world = World::lease()?;
    let team = world.namespace("team")?;
    let scene = RuledReads::start(&world, &team)?;
    let token = account(&world, &team, "reader")?;
    assert_eq!(scene.reads.get(&token, &scene.path)?.code, 403);
    let_read(&world, (&team, "reader"), Some(&team))?;
    scene.await_rules(&token)?;
    for name in ["amber", "blue"] {
        world.cluster.run(["create", "configmap", name, "-n", &team])?;
    }
    let watch = scene.watch(&token)?;
    assert!(scene.delivers(&watch, "cyan", SOON)?);

    // Informers of RBAC rules are no informers of profiles.
    let all = informers(&scene.served.operator)?;
    assert!(all.iter().all(|one| !one.to_string().contains("clusterrolebindings")), "{all:?}");

    let (began, before) = (Instant::now(), scene.decisions("api_server")?);
    let mut requests = 0.0;
    while began.elapsed() < REST {
        assert_eq!(scene.reads.get(&token, &format!("{}/blue", scene.path))?.code, 200);
        requests += 1.0;
        thread::sleep(Duration::from_millis(20));
    }
    // The token's review expires each 10 s, and the first `get` is verified.
    let reviews = scene.decisions("api_server")? - before;
    assert!(requests > 50.0 && reviews <= 5.0, "{reviews} reviews for {requests} requests");

    let page = scene.reads.get(&token, &format!("{}?limit=1", scene.path))?;
    let next = page.json()["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let next = format!("{}?limit=1&continue={next}", scene.path);
    assert_eq!(scene.reads.get(&token, &next)?.code, 200);
    let binding = format!("read-{team}-reader");
    world.cluster.run(["delete", "rolebinding", &binding, "-n", &team])?;
    eventually(REVOKED, || match scene.reads.get(&token, &next)?.code {
        403 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    assert!(!scene.delivers(&watch, "green", Duration::from_secs(3))?, "the watch is silent");
    eventually(SOON, || if watch.is_over() { Ok(()) } else { Err("open".into()) })
}

#[test]
fn other_authorizers_allow_by_reviews_and_their_denials_end_decisions_by_rules() -> Outcome {
    let authorizer = WebhookAuthorizer::start()?;
    let world = World::with_authorizer(&authorizer)?;
    let team = "modest";
    world.cluster.run(["create", "namespace", team])?;
    let scene = RuledReads::start(&world, team)?;
    // No rule allows this, but the webhook does.
    let token = account(&world, team, "guest")?;
    eventually(SOON, || match scene.reads.get(&token, &scene.path)?.code {
        200 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    let fallbacks = || {
        let exposition = Exposition::read(&scene.served.operator)?;
        Ok::<_, Failure>(exposition.sum("kubewarm_rbac_fallbacks_total", &[]))
    };
    assert!(fallbacks()?.abs() < 0.5);

    // A rule allows this, but the webhook denies it.
    let token = account(&world, team, "outcast")?;
    let_read(&world, (team, "outcast"), Some(team))?;
    eventually(SOON, || {
        assert_eq!(scene.reads.get(&token, &scene.path)?.code, 403);
        if fallbacks()? > 0.5 { Ok(()) } else { Err("no fallback".into()) }
    })?;
    assert_eq!(scene.reads.get(&token, &scene.path)?.code, 403);
    eventually(SOON, || {
        let events = world.cluster.run(["get", "events", "-n", NAMESPACE, "--output=json"])?;
        let names_request = "user system:serviceaccount:modest:outcast may list configmaps";
        if events.contains("RbacFallback") && events.contains(names_request) {
            return Ok(());
        }
        Err(events.into())
    })
}
