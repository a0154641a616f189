//! Checks the committed field tables of Kubernetes protobuf against Go's types of the built-in
//! kinds.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use testbed::GoClients;

use crate::world::Outcome;

const TABLES: &str = "crates/kubewarm-wire/src/protobuf/tables.txt";

#[test]
fn field_tables_match_the_go_types() -> Outcome {
    let program = GoClients::locate_or_build()?.program("protobuf");
    let output = Command::new(program).arg("tables").output()?;
    let faults = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a Go type cannot be expressed in the tables: {faults}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLES);
    if env::var_os("BLESS").is_some() {
        fs::write(&file, &output.stdout)?;
    }
    let is_current = fs::read(&file)? == output.stdout;
    assert!(is_current, "{TABLES} is stale; run `make generate` and commit the result");
    Ok(())
}
