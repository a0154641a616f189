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

/// The maximum number of findings that the test describes for each seed.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    let faults = oracle().unwrap_or_else(|error| vec![error.to_string()]);
    // The faults follow all other output, because a log of a failed build often keeps only its end.
    for fault in &faults {
        eprintln!("oracle: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A number in the environment.
fn number(name: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    let number = text.parse().map_err(|_| format!("{name} is {text:?}; give a number"))?;
    Ok(Some(number))
}

/// Runs and judges all seeds. Returns the faults, each with its seed.
fn oracle() -> Result<Vec<String>, Failure> {
    let first = number("ORACLE_FIRST")?.unwrap_or(1);
    let seeds = number("ORACLE_SEEDS")?.unwrap_or(5);
    let seconds = number("ORACLE_SECONDS")?;
    let judges_again = number("ORACLE_JUDGE")?.is_some();
    let (mut faults, mut counts, mut injected) = (Vec::new(), JudgedCounts::default(), 0);
    for seed in first..first + seeds {
        let folder = RunRecord::folder(seed);
        let plan = FaultPlan::of(seed, seconds);
        let record = if judges_again { RunRecord::load(&folder) } else { run(seed, &plan) };
        let record = match record {
            Ok(record) => record,
            // The test reports this error at the end, because the next seeds may still find
            // something.
            Err(error) => {
                faults.push(format!("seed {seed}, {:?}: {error}", plan.theme));
                continue;
            }
        };
        if !judges_again {
            record.save(&folder)?;
        }
        let verdict = judge(&record.history, &record.observations, &record.times);
        injected += record.faults.len();
        counts += verdict.counts;
        println!("oracle: seed {seed}, {:?}, {} faults injected", plan.theme, record.faults.len());
        record.faults.iter().for_each(|fault| println!("  {fault}"));
        println!("  judged {:?}; oldest answer {} ms", verdict.counts, verdict.oldest);
        let found = faults_of(&record, &verdict);
        faults.extend(found.iter().map(|fault| format!("seed {seed}, {:?}: {fault}", plan.theme)));
    }
    println!(
        "oracle: {seeds} seeds, {injected} faults injected, judged {counts:?}, {} faults found",
        faults.len()
    );
    Ok(faults)
}

/// Describes the faults of a run: what the judge found, and which faults it did not find that this
/// function plants into copies of the record.
fn faults_of(record: &RunRecord, verdict: &Verdict) -> Vec<String> {
    let mut faults: Vec<_> = verdict.findings.iter().take(SHOWN).map(ToString::to_string).collect();
    if verdict.findings.len() > SHOWN {
        faults.push(format!("all findings: {:?}", verdict.kinds()));
    }
    faults.extend(PLANTED_FAULTS.into_iter().filter_map(|fault| {
        let Some(planted) = fault.plant(&record.observations) else {
            return Some(format!("no place for {fault:?}"));
        };
        let kinds = judge(&record.history, &planted, &record.times).kinds();
        let honest = verdict.kinds();
        let is_shown = fault.shown_by().iter().any(|kind| kinds.get(kind) > honest.get(kind));
        (!is_shown).then(|| format!("{fault:?} was planted and not found: {kinds:?}"))
    }));
    faults
}
