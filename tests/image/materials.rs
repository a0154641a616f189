//! Tests the software bill of materials: every linked crate, Rust's standard library and glibc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::scripts::{Failure, Outcome, file, printed, script};

fn bill() -> Result<Value, Failure> {
    let binary = file("LICENSE");
    Ok(serde_json::from_str(&printed(script("sbom.sh").arg(binary))?)?)
}

fn list<'a>(value: &'a Value, what: &str) -> Result<&'a Vec<Value>, Failure> {
    value[what].as_array().ok_or_else(|| format!("no {what}").into())
}

fn text<'a>(value: &'a Value, what: &str) -> &'a str {
    value[what].as_str().unwrap_or_default()
}

#[test]
fn every_crate_that_is_linked_stands_there_with_its_sum_and_licence() -> Outcome {
    let bill = bill()?;
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let program = &bill["metadata"]["component"];
    let purl = concat!("pkg:cargo/kubewarm@", env!("CARGO_PKG_VERSION"));
    assert!(text(program, "purl").starts_with(purl), "{program}");
    assert!(program["hashes"][0]["content"].as_str().is_some_and(|sum| sum.len() == 64));

    let lock = fs::read_to_string(file("Cargo.lock"))?;
    let mut listed = BTreeSet::new();
    for component in list(&bill, "components")? {
        let (name, version) = (text(component, "name"), text(component, "version"));
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        if text(component, "bom-ref").starts_with("registry+") {
            let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            let sum = component["hashes"][0]["content"].as_str().ok_or("no sum")?;
            let at = lock.find(&locked).ok_or_else(|| format!("{name} {version} is not locked"))?;
            let end = lock[at..].find("\n[[").unwrap_or(lock.len() - at);
            assert!(lock[at..at + end].contains(sum), "{component}");
        }
        listed.insert(format!("{name} v{version}"));
    }
    let tree = ["tree", "--locked", "--package=kubewarm", "--edges=normal", "--prefix=none"];
    let tree = printed(
        std::process::Command::new(env!("CARGO"))
            .args(tree)
            .args(["--format={p}"])
            .current_dir(file("")),
    )?;
    // The first line of the output is the program itself, which is no dependency.
    let linked: BTreeSet<_> =
        tree.lines().skip(1).map(|line| line.split(" (").next().unwrap_or(line)).collect();
    assert!(linked.len() > 100, "{linked:?}");
    for linked in linked {
        assert!(listed.contains(linked), "{linked} is not listed");
    }
    let names: BTreeSet<_> = listed.iter().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("glibc") && names.contains("rust-std"), "{names:?}");
    // The bill must not contain crates for tests, for builds or for other systems.
    for other in ["proptest", "testbed", "cc", "windows-sys"] {
        assert!(!names.contains(other), "{other}");
    }
    Ok(())
}

#[test]
fn the_dependency_graph_reaches_every_crate_from_the_program() -> Outcome {
    let bill = bill()?;
    let mut needs = BTreeMap::new();
    for dependency in list(&bill, "dependencies")? {
        let others = dependency["dependsOn"].as_array();
        let others: Vec<_> = others.into_iter().flatten().filter_map(Value::as_str).collect();
        let before = needs.insert(text(dependency, "ref"), others);
        assert!(before.is_none(), "{dependency} is there twice");
    }
    let mut reached = BTreeSet::new();
    let mut next = vec![text(&bill["metadata"]["component"], "bom-ref")];
    while let Some(reference) = next.pop() {
        if reached.insert(reference) {
            next.extend(needs.get(reference).ok_or_else(|| format!("no {reference}"))?);
        }
    }
    let components = list(&bill, "components")?;
    let all: BTreeSet<_> = components.iter().map(|component| text(component, "bom-ref")).collect();
    assert_eq!(all.len(), components.len(), "one is there twice");
    assert_eq!(reached.len(), all.len() + 1);
    assert!(all.is_subset(&reached));
    Ok(())
}

#[test]
fn the_bill_is_the_same_each_time_and_names_no_folder() -> Outcome {
    let first = bill()?;
    assert_eq!(first, bill()?);
    let folder = file("");
    let folder = folder.to_str().ok_or("the path is no text")?.trim_end_matches('/');
    assert!(!first.to_string().contains(folder), "it contains {folder}");
    Ok(())
}
