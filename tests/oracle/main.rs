//! Injects faults that a seed decides, while writers write and readers read. Then compares each
//! response with what etcd stored.
//!
//! `ORACLE_SEEDS` is the number of seeds, `ORACLE_FIRST` the first one, and `ORACLE_SECONDS` the
//! length of each run. `ORACLE_JUDGE=1` judges the records of earlier runs of these seeds again.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

#[path = "../e2e/support/api.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod api;
#[path = "../e2e/support/authorizer.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod authorizer;
#[path = "../e2e/support/client.rs"]
mod client;
mod collection;
mod history;
mod judge;
mod link;
mod observation;
#[path = "../e2e/support/operator.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod operator;
mod plan;
mod plant;
#[path = "../e2e/support/pool.rs"]
mod pool;
#[path = "../e2e/support/profile.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod profile;
mod readers;
mod recorder;
mod request;
mod run;
mod scene;
mod watchers;
#[path = "../e2e/support/world.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod world;
mod writers;

use std::process::ExitCode;

use crate::judge::{JudgedCounts, Verdict, judge};
use crate::plan::FaultPlan;
use crate::plant::PLANTED_FAULTS;
use crate::run::{RunRecord, run};
use crate::world::Failure;

/// The maximum number of findings that the test prints for each seed.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    match oracle() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            eprintln!("oracle: {faults} faults");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A number in the environment.
fn number(name: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    let number = text.parse().map_err(|_| format!("{name} is {text:?}; give a number"))?;
    Ok(Some(number))
}

/// Runs and judges all seeds. Returns the number of faults.
fn oracle() -> Result<usize, Failure> {
    let first = number("ORACLE_FIRST")?.unwrap_or(1);
    let seeds = number("ORACLE_SEEDS")?.unwrap_or(5);
    let seconds = number("ORACLE_SECONDS")?;
    let judges_again = number("ORACLE_JUDGE")?.is_some();
    let (mut faults, mut counts, mut injected) = (0, JudgedCounts::default(), 0);
    for seed in first..first + seeds {
        let folder = RunRecord::folder(seed);
        let plan = FaultPlan::of(seed, seconds);
        let record = if judges_again { RunRecord::load(&folder) } else { run(seed, &plan) };
        let record = match record {
            Ok(record) => record,
            // The test reports this error at the end, because the next seeds may still find
            // something.
            Err(error) => {
                println!("oracle: seed {seed}, {:?}: {error}", plan.theme);
                faults += 1;
                continue;
            }
        };
        if !judges_again {
            record.save(&folder)?;
        }
        let verdict = judge(&record.history, &record.observations, &record.times);
        injected += record.faults.len();
        counts += verdict.counts;
        faults += report(seed, &plan, &record, &verdict);
    }
    println!(
        "oracle: {seeds} seeds, {injected} faults injected, judged {counts:?}, {faults} faults found"
    );
    Ok(faults)
}

/// Prints the verdict about a seed. Then plants faults into copies of its record, which the judge
/// must find. Returns the number of faults: findings, and planted faults that the judge did not
/// find.
fn report(seed: u64, plan: &FaultPlan, record: &RunRecord, verdict: &Verdict) -> usize {
    println!("oracle: seed {seed}, {:?}, {} faults injected", plan.theme, record.faults.len());
    record.faults.iter().for_each(|fault| println!("  {fault}"));
    println!("  judged {:?}; oldest answer {} ms", verdict.counts, verdict.oldest);
    if !verdict.findings.is_empty() {
        println!("  found {:?}", verdict.kinds());
    }
    verdict.findings.iter().take(SHOWN).for_each(|finding| println!("  {finding}"));
    let missed = PLANTED_FAULTS.into_iter().filter(|fault| {
        let Some(planted) = fault.plant(&record.observations) else {
            println!("  no place for {fault:?}");
            return true;
        };
        let kinds = judge(&record.history, &planted, &record.times).kinds();
        let honest = verdict.kinds();
        let is_shown = fault.shown_by().iter().any(|kind| kinds.get(kind) > honest.get(kind));
        if !is_shown {
            println!("  {fault:?} was planted and not found: {kinds:?}");
        }
        !is_shown
    });
    verdict.findings.len() + missed.count()
}
