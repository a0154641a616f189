//! Writes objects for `SOAK_MINUTES` minutes, while the API server restarts and freezes and
//! profiles are edited. In the end, every store must equal a list, and the operator must not use
//! more resources than before.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

#[path = "../e2e/support/authorizer.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod authorizer;
#[path = "../e2e/support/client.rs"]
mod client;
#[path = "../e2e/support/contents.rs"]
mod contents;
mod engine;
#[path = "../e2e/support/figures.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod figures;
#[path = "../e2e/support/operator.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod operator;
#[path = "../e2e/support/pool.rs"]
mod pool;
mod scene;
#[path = "../e2e/support/world.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod world;
#[path = "../e2e/support/writers.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod writers;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::contents::look;
use crate::engine::SoakEngine;
use crate::scene::{Figures, NAMESPACES, SoakFixture};
use crate::world::{Failure, Outcome};
use crate::writers::write;

/// The number of concurrent writers. With more writers, the test would only measure the API server.
const WRITERS: usize = 4;
const MINUTE: Duration = Duration::from_mins(1);
/// The time in each round of a minute in which writers write objects.
const WRITING: Duration = Duration::from_secs(40);

#[tokio::main]
async fn main() -> ExitCode {
    match soak().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The value of `SOAK_MINUTES`; the default is 10.
fn minutes() -> Result<u32, Failure> {
    let Some(text) = std::env::var_os("SOAK_MINUTES") else { return Ok(10) };
    let text = text.to_string_lossy();
    let number = text.parse().ok().filter(|minutes| *minutes > 0);
    number.ok_or_else(|| format!("SOAK_MINUTES is {text:?}; give a number from 1 on").into())
}

async fn soak() -> Outcome {
    let minutes = minutes()?;
    println!("soak: {minutes} minutes; the API server is being started");
    let scene = SoakFixture::set()?;
    let connection = ApiServerConnection::load(&ConnectionOptions::of_file(scene.kubeconfig()))?;
    let client = connection.client();
    let engine = SoakEngine::start(&connection)?;
    engine.compare(&client, SoakFixture::expected_informers(None)).await?;

    let stop = CancellationToken::new();
    let tables = engine.informers().into_iter().map(|(_, table)| table).collect();
    let reader = tokio::spawn(look(tables, stop.clone()));
    let ended = rounds(&scene, &engine, &client, minutes).await;
    stop.cancel();
    let looks = reader.await?.map_err(|what| format!("a table went back: {what}"));
    engine.end().await;
    if ended.is_err() {
        eprintln!("{}", scene.end_of_log());
    }
    let (figures, looks) = (ended?, looks?);
    println!("soak: {looks} looks at the tables");
    Figures::judge(&figures)
}

/// Runs one round per minute. Returns the operator's resource use at the end of each round.
async fn rounds(
    scene: &SoakFixture,
    engine: &SoakEngine,
    client: &Client,
    minutes: u32,
) -> Result<Vec<Figures>, Failure> {
    let began = Instant::now();
    let written = Arc::new(AtomicUsize::new(0));
    let mut figures = Vec::new();
    for round in 0.. {
        if began.elapsed() >= MINUTE * minutes {
            break;
        }
        let next = Instant::now() + MINUTE;
        let writing = CancellationToken::new();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (counted, until) = ((Arc::clone(&written), writer), writing.clone());
            let goes_on = move |_| !until.is_cancelled();
            writers.spawn(write(client.clone(), &NAMESPACES, counted, goes_on));
        }
        let began_writing = Instant::now();
        let done = scene.disturb(round).await?;
        tokio::time::sleep_until(began_writing + WRITING).await;
        writing.cancel();
        writers.join_all().await;

        let compared = Instant::now();
        let objects = engine.compare(client, SoakFixture::expected_informers(Some(round))).await?;
        let took = compared.elapsed();
        scene.rest()?;
        let now = scene.figures()?;
        println!(
            "soak: minute {}: {} writes, {objects} objects in {} tables equal after {took:.1?}; \
             {now}; {done}",
            began.elapsed().as_secs().div_ceil(60),
            written.load(Ordering::Relaxed),
            SoakFixture::expected_informers(Some(round)),
        );
        figures.push(now);
        tokio::time::sleep_until(next).await;
    }
    Ok(figures)
}
