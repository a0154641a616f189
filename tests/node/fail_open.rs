//! What an injected program sees while no replica of kubewarm is ready: by the Service
//! `kubewarm-api-failopen` the API server answers, by `kubewarm-api` nobody does.
//! `docs/failure-modes.md` has the table of these tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::eventually;

use crate::account::service_account;
use crate::injected::restart_apiserver;
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

const PATH: &str = "/api/v1/namespaces/shop/configmaps";
/// The permissions of the client.
const RULES: &str = "[{apiGroups: [''], resources: [configmaps], verbs: [list, create]}]";
/// The pause between two requests, each with a new connection.
const PAUSE: Duration = Duration::from_millis(200);
/// The renew deadline of client-go's leader election.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Who answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answerer {
    Kubewarm,
    ApiServer,
    Nobody,
}

/// A client with the files and the host name of an injected pod, on the node's network.
struct InjectedClient<'a> {
    world: &'a NodeWorld,
    address: String,
    bundle: PathBuf,
    headers: PathBuf,
}

impl<'a> InjectedClient<'a> {
    fn new(world: &'a NodeWorld, service: &str) -> Result<Self, Failure> {
        let folder = world.cluster().folder();
        let bundle = folder.join(format!("{service}-ca.crt"));
        let config_map =
            eventually(SOON, || world.get("configmap kubewarm-api-ca --namespace=shop"))?;
        fs::write(&bundle, text(&config_map, "/data/ca.crt"))?;
        let token = world.run("create token fallback --namespace=shop --duration=1h")?;
        let headers = folder.join(format!("{service}-headers"));
        fs::write(&headers, format!("Authorization: Bearer {}", token.trim()))?;
        let service = world.get(&format!("service {service} --namespace={NAMESPACE}"))?;
        let address = text(&service, "/spec/clusterIP").to_owned();
        Ok(Self { world, address, bundle, headers })
    }

    /// A request for [`PATH`] with this query. It prints the chain of certificates.
    fn curl(&self, query: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "2", "--noproxy", "*", "--fail"]);
        curl.args(["--output", "/dev/null", "--write-out", "%{certs}"]);
        curl.args(["--resolve", &format!("kubernetes.default.svc:443:{}", self.address)]);
        curl.arg("--header").arg(format!("@{}", self.headers.display()));
        curl.arg("--cacert").arg(&self.bundle);
        curl.arg(format!("https://kubernetes.default.svc{PATH}{query}"));
        curl
    }

    /// Sends a request, and finds out who answered it with success.
    fn answerer(&self, curl: &Command) -> Answerer {
        match self.world.node.command(curl).output() {
            Ok(output) if output.status.success() => {
                // The certificate shows who answered; kubewarm also forwards.
                let is_ours = String::from_utf8_lossy(&output.stdout).contains("kubewarm");
                if is_ours { Answerer::Kubewarm } else { Answerer::ApiServer }
            }
            Ok(_) | Err(_) => Answerer::Nobody,
        }
    }

    fn ask(&self) -> Answerer {
        self.answerer(&self.curl("?limit=500"))
    }

    /// Sends a write that changes nothing.
    fn write(&self) -> Answerer {
        let mut curl = self.curl("?dryRun=All");
        curl.args(["--json", r#"{"metadata":{"generateName":"fallback-"}}"#]);
        self.answerer(&curl)
    }

    fn await_answer(&self, by: Answerer) -> Outcome {
        eventually(SOON, || {
            let answerer = self.ask();
            if answerer == by { Ok(()) } else { Err(format!("{answerer:?}").into()) }
        })
    }

    /// Sends requests until `ended`. Returns the longest time without an answer, and whether the
    /// API server answered.
    fn observe(&self, ended: &AtomicBool) -> (Duration, bool) {
        let (mut last, mut longest, mut has_fallen_back) = (Instant::now(), Duration::ZERO, false);
        while !ended.load(Ordering::Relaxed) {
            let answerer = self.ask();
            longest = longest.max(last.elapsed());
            if answerer != Answerer::Nobody {
                last = Instant::now();
            }
            has_fallen_back |= answerer == Answerer::ApiServer;
            sleep(PAUSE);
        }
        (longest.max(last.elapsed()), has_fallen_back)
    }
}

/// Lets both clients send requests during `fault`, and reports the row of the table. Returns the
/// times without an answer: with and without the fallback.
fn observed(
    name: &str,
    [open, closed]: [&InjectedClient<'_>; 2],
    fault: impl FnOnce() -> Outcome,
) -> Result<[Duration; 2], Failure> {
    let ended = AtomicBool::new(false);
    let (result, open, closed) = std::thread::scope(|scope| {
        let open = scope.spawn(|| open.observe(&ended));
        let closed = scope.spawn(|| closed.observe(&ended));
        let result = fault();
        ended.store(true, Ordering::Relaxed);
        let joined = [open.join(), closed.join()];
        let [open, closed] =
            joined.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (result, open, closed)
    });
    result?;
    let lease = |gap| if gap < RENEW_DEADLINE { "kept" } else { "lost" };
    report(&format!(
        "{name}: {:.1} s with fail-open (lease {}), {:.1} s without (lease {})",
        open.0.as_secs_f64(),
        lease(open.0),
        closed.0.as_secs_f64(),
        lease(closed.0),
    ))?;
    assert!(!closed.1, "{name}: a client without fail-open reached the API server");
    Ok([open.0, closed.0])
}

/// Withdraws kubewarm's permission for the clients' profile. The replicas stay ready, so no client
/// falls back: reads fail, and kubewarm forwards writes.
fn withdraw_permission(world: &NodeWorld, clients: [&InjectedClient<'_>; 2]) -> Outcome {
    let binding = "rolebinding kubewarm:read --namespace=shop";
    let subjects = world.get(binding)?["subjects"].take();
    let bind = |subjects: &Value| -> Outcome {
        let patch = json!({"subjects": subjects});
        world.run(&format!("patch {binding} --type=merge --patch={patch}"))?;
        Ok(())
    };
    observed("ready, but without permission", clients, || {
        bind(&json!([]))?;
        for client in clients {
            client.await_answer(Answerer::Nobody)?;
            assert_eq!(client.write(), Answerer::Kubewarm);
        }
        bind(&subjects)?;
        let began = Instant::now();
        for client in clients {
            client.await_answer(Answerer::Kubewarm)?;
        }
        Ok(report(&format!("answers {:.1?} after the permission returned", began.elapsed()))?)
    })?;
    Ok(())
}

#[test]
fn injected_clients_fall_back_to_the_api_server_only_if_they_may() -> Outcome {
    let test = "injected_clients_fall_back_to_the_api_server_only_if_they_may";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let values = format!("readApi: {{forward: true}}\ninject: {{enabled: true}}\n{PAIR}");
    let release = NodeRelease::with(&world, &values)?;
    release.await_ready()?;
    world.cluster().apply(&service_account("shop", "fallback", RULES))?;
    world.run("label namespace shop kubewarm.io/inject= --overwrite")?;
    let open = InjectedClient::new(&world, "kubewarm-api-failopen")?;
    let closed = InjectedClient::new(&world, "kubewarm-api")?;
    let clients = [&open, &closed];
    let returned = || -> Outcome {
        open.await_answer(Answerer::Kubewarm)?;
        closed.await_answer(Answerer::Kubewarm)
    };
    returned()?;

    // The leader mirrors the API server's addresses, and undoes edits.
    let slice = format!("endpointslice kubewarm-apiserver-ipv4 --namespace={NAMESPACE}");
    let is_mirrored = || {
        let server = world.get("endpointslice kubernetes --namespace=default")?;
        world.await_that(&slice, SOON, |slice| {
            let address = "/endpoints/0/addresses";
            slice.pointer(address) == server.pointer(address)
                && slice.pointer("/endpoints/0/conditions/terminating") == Some(&true.into())
        })
    };
    is_mirrored()?;
    world.run(&format!("patch {slice} --type=merge --patch={{\"endpoints\":[]}}"))?;
    is_mirrored()?;

    let deployment = format!("deployment/kubewarm --namespace={NAMESPACE}");
    let rolled = || world.run(&format!("rollout status {deployment} --timeout=10m")).map(drop);
    observed("rolling update", clients, || {
        world.run(&format!("rollout restart {deployment}"))?;
        rolled()
    })?;
    returned()?;

    let [gap, _] = observed("both processes killed", clients, || {
        for pod in release.pods()? {
            world.node.kill_container(&pod.container)?;
        }
        sleep(Duration::from_secs(10));
        returned()
    })?;
    assert!(gap < SOON, "{gap:?}");

    let frozen = release.pods()?;
    let [gap, _] = observed("both processes frozen", clients, || {
        for pod in &frozen {
            world.node.freeze_container(&pod.container)?;
        }
        open.await_answer(Answerer::ApiServer)?;
        for pod in &frozen {
            world.node.thaw_container(&pod.container)?;
        }
        returned()
    })?;
    assert!(gap < SOON, "{gap:?}");

    // Packets vanish, as with a broken network: nobody gets a reset.
    let cut = release.pods()?;
    let drop_packets = |action: &str| -> Outcome {
        for (chain, pod) in
            ["FORWARD", "OUTPUT"].iter().flat_map(|chain| cut.iter().map(move |pod| (chain, pod)))
        {
            let mut iptables = Command::new("iptables");
            iptables.args(["-w", action, chain, "-d", &pod.address, "-j", "DROP"]);
            let output = world.node.command(&iptables).output()?;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    };
    let [gap, _] = observed("both pods cut off", clients, || {
        drop_packets("-I")?;
        open.await_answer(Answerer::ApiServer)?;
        drop_packets("-D")?;
        returned()
    })?;
    assert!(gap < SOON, "{gap:?}");

    let [gap, closed_gap] = observed("scaled to 0", clients, || {
        world.run(&format!("scale {deployment} --replicas=0"))?;
        open.await_answer(Answerer::ApiServer)?;
        // Long enough that nobody could miss the outage.
        sleep(Duration::from_secs(15));
        assert_eq!((open.ask(), closed.ask()), (Answerer::ApiServer, Answerer::Nobody));
        world.run(&format!("scale {deployment} --replicas=2"))?;
        returned()
    })?;
    assert!(gap < closed_gap, "{gap:?} {closed_gap:?}");

    let [gap, _] = observed("scaled to 0, and the API server is away for 3 s", clients, || {
        world.run(&format!("scale {deployment} --replicas=0"))?;
        open.await_answer(Answerer::ApiServer)?;
        restart_apiserver(&world)?;
        open.await_answer(Answerer::ApiServer)?;
        world.run(&format!("scale {deployment} --replicas=2"))?;
        returned()
    })?;
    assert!(gap < SOON, "{gap:?}");
    withdraw_permission(&world, clients)?;

    // After an uninstallation, injected pods go on at the API server. A new installation has the
    // old addresses and the old CA, so nothing must be injected again.
    release.uninstall()?;
    open.await_answer(Answerer::ApiServer)?;
    closed.await_answer(Answerer::Nobody)?;
    NodeRelease::with(&world, &values)?.await_ready()?;
    returned()
}
