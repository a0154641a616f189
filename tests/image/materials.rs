//! The bill of materials: what is linked, and nothing else.

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
    assert_eq!(text(program, "purl"), concat!("pkg:cargo/kubewarm@", env!("CARGO_PKG_VERSION")));
    assert!(program["hashes"][0]["content"].as_str().is_some_and(|sum| sum.len() == 64));

    let lock = fs::read_to_string(file("Cargo.lock"))?;
    let components = list(&bill, "components")?;
    let mut named = BTreeMap::new();
    for component in components {
        let (name, version) = (text(component, "name"), text(component, "version"));
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        assert!(!component.to_string().contains("(*)"), "{component}");
        if text(component, "purl").starts_with("pkg:cargo/") {
            let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            let sum = component["hashes"][0]["content"].as_str().ok_or("no sum")?;
            let at = lock.find(&locked).ok_or_else(|| format!("{name} {version} is not locked"))?;
            let end = lock[at..].find("\n[[").unwrap_or(lock.len() - at);
            assert!(lock[at..at + end].contains(sum), "{component}");
        }
        named.insert(name, version);
    }
    assert!(components.len() > 100, "{named:?}");
    for linked in ["kube", "aws-lc-sys", "zstd-sys", "rustls", "glibc", "rust-std"] {
        assert!(named.contains_key(linked), "no {linked}");
    }
    // For tests, for building, and for another system.
    for other in ["proptest", "testbed", "serde_derive", "cc", "windows-sys"] {
        assert!(!named.contains_key(other), "{other}");
    }
    Ok(())
}

#[test]
fn who_needs_whom_leads_from_the_program_to_everything() -> Outcome {
    let bill = bill()?;
    let mut needs = BTreeMap::new();
    for dependency in list(&bill, "dependencies")? {
        let others: Vec<_> =
            list(dependency, "dependsOn")?.iter().filter_map(Value::as_str).collect();
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
    let all: BTreeSet<_> = components.iter().map(|it| text(it, "bom-ref")).collect();
    assert_eq!(all.len(), components.len(), "one is there twice");
    assert_eq!(reached.len(), all.len() + 1);
    assert!(all.is_subset(&reached));
    Ok(())
}

#[test]
fn the_bill_is_the_same_each_time() -> Outcome {
    assert_eq!(bill()?, bill()?);
    Ok(())
}
