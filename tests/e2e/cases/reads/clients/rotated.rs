//! Clients that read kubewarm's CAs once go on when kubewarm renews its certificate, and when the
//! next CA takes over.

use std::path::Path;
use std::process::Command;

use super::troubles::Clients;
use super::{PROFILE, SOON, create_reader, write_kubeconfig};
use crate::cases::process::issued_certificates::{
    CertifiedReplica, LIFETIME, has_next_ca, prepare, write_authority,
};
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World, eventually};

/// A name that only the next CA permits.
const NEW: &str = "warm.example.com";

#[test]
fn clients_that_know_the_next_ca_go_on_when_it_takes_over() -> Outcome {
    let world = World::alone()?;
    prepare(&world)?;
    let (team, reader) = create_reader(&world)?;
    for number in 0..25 {
        world.cluster.run(["create", "configmap", &format!("kept-{number}"), "-n", &team])?;
    }

    // The first CA signs. Another name makes kubewarm publish the next one.
    let first = CertifiedReplica::start(&world, "first", &[])?;
    first.await_ready()?;
    let old = write_authority(&world, "old-ca.crt")?;
    first.operator.process.term()?;
    drop(first);
    let names = format!("--certificate-names={NEW}");
    let replica = CertifiedReplica::start(&world, "second", &[&names])?;
    replica.await_ready()?;
    Profile::apply(&world, NAMESPACE, "clients", PROFILE)?
        .await_condition("Ready", "True", None, SOON)?;
    eventually(SOON, || has_next_ca(&world))?;
    let both = eventually(SOON, || {
        let both = write_authority(&world, "both-cas.crt")?;
        let is_published = std::fs::read(&both)? != std::fs::read(&old)?;
        if is_published { Ok(both) } else { Err("the next CA is not published".into()) }
    })?;
    let through = world.cluster.folder().join("both-cas.kubeconfig");
    write_kubeconfig(&replica.url(), &both, &reader, &through)?;
    let mut clients = Clients::start(&world, &through, &team)?;
    clients.agree("synced under the first CA")?;

    eventually(LIFETIME * 3 + SOON, || {
        clients.write(20)?;
        let is_new = replica.is_accepted(&both, NEW)?;
        if is_new { Ok(()) } else { Err("the next CA does not sign yet".into()) }
    })?;
    // Each client connects again.
    replica.operator.process.term()?;
    replica.operator.process.start()?;
    replica.await_ready()?;
    clients.write(20)?;
    clients.agree("connected again under the next CA")?;
    let settings = |kubeconfig: &Path| -> Result<bool, Failure> {
        let output = Command::new(world.cluster.kubectl_program())
            .args(["get", "configmaps", "-n", &team, "-o", "name", "--request-timeout=10s"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .output()?;
        Ok(output.status.success())
    };
    assert!(settings(&through)?, "kubectl with both CAs");
    let outdated = world.cluster.folder().join("old-ca.kubeconfig");
    write_kubeconfig(&replica.url(), &old, &reader, &outdated)?;
    assert!(!settings(&outdated)?, "kubectl with the first CA only");
    Ok(())
}
