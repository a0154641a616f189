//! Compares decisions with the API server's RBAC authorizer, which a Go program runs.

#![expect(clippy::print_stdout, reason = "the test prints its seed")]

mod replica;
mod world;

use self::{replica::WorldReplica, world::RbacWorld};
use kubewarm_rbac::RbacDecision;
use std::{
    env,
    error::Error,
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread,
    time::Instant,
};

const WORLDS: u64 = 100_000;

#[test]
fn the_api_servers_rbac_authorizer_decides_the_same() -> Result<(), Box<dyn Error>> {
    let seed = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut program = Command::new(testbed::rbac_authorizer()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdin = program.stdin.take().ok_or("no standard input")?;
    let stdout = program.stdout.take().ok_or("no standard output")?;
    let started_at = Instant::now();
    // Without a limit: both programs buffer many worlds, so a full channel would stop the writer
    // while this thread waits for the Go program. At most `WORLDS` short texts.
    let (sender, receiver) = channel();
    let writer = thread::spawn(move || decide_worlds(seed, stdin, &sender));
    let (mut allowed, mut decided) = (0, 0);
    for (number, expected) in (0..).zip(BufReader::new(stdout).lines()) {
        let (expected, actual) = (expected?, receiver.recv()?);
        if actual != expected {
            let world = RbacWorld::generate(seed.wrapping_add(number));
            let mut pairs = actual.chars().zip(expected.chars()).zip(&world.requests);
            let request = pairs.find(|((actual, expected), _)| actual != expected);
            let request = serde_json::to_string(&request.map(|(_, request)| request))?;
            let world = serde_json::to_string(&world)?;
            return Err(format!(
                "SEED={seed}, world {number}: {actual}, but the API server decides {expected}; \
                 first different request: {request}; {world}"
            )
            .into());
        }
        decided += actual.len();
        allowed += actual.matches('1').count();
    }
    writer.join().map_err(|_| "the writer panicked")??;
    assert!(program.wait()?.success());
    assert!(receiver.try_recv().is_err(), "the program did not decide all worlds");
    let (share, elapsed) = (allowed * 100 / decided, started_at.elapsed());
    println!("{WORLDS} worlds, {decided} decisions, {share} % allowed, {elapsed:?}");
    assert!((35..=65).contains(&share), "about half should be allowed, but {share} % are");
    Ok(())
}

/// Sends the worlds to the Go program, and the decisions of this crate to the test: for each world
/// one text with a digit for each request, as the Go program prints it.
fn decide_worlds(seed: u64, stdin: ChildStdin, decisions: &Sender<String>) -> io::Result<()> {
    let mut stdin = BufWriter::new(stdin);
    let mut replica = WorldReplica::new(seed);
    for number in 0..WORLDS {
        let world = RbacWorld::generate(seed.wrapping_add(number));
        serde_json::to_writer(&mut stdin, &world)?;
        stdin.write_all(b"\n")?;
        replica.follow(&world);
        let of_world = world.requests.iter().map(|request| {
            match replica.rules.decide(&request.user, &request.groups, &request.access) {
                RbacDecision::Allow => '1',
                RbacDecision::NoOpinion => '0',
            }
        });
        if decisions.send(of_world.collect()).is_err() {
            // The test has failed, and no longer receives decisions.
            break;
        }
    }
    stdin.flush()
}
