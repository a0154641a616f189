//! The API server's answers to invalid profiles and to the shipped examples.

use crate::world::{Failure, Outcome, World, file, yaml_files};

/// The expected message of a file, and its documents.
struct ManifestCase {
    expected: String,
    documents: Vec<String>,
}

impl ManifestCase {
    fn parse(text: &str) -> Result<Self, Failure> {
        let expected = text.lines().find_map(|line| line.strip_prefix("# server: "));
        let expected = expected.ok_or("no line begins with `# server: `")?.to_owned();
        Ok(Self { expected, documents: text.split("\n---\n").map(str::to_owned).collect() })
    }

    /// Applies the documents and returns the API server's answer to the last one.
    fn answer(&self, world: &World) -> Result<String, Failure> {
        let Some((last, before)) = self.documents.split_last() else {
            return Err("no document".into());
        };
        for document in before {
            world.cluster.apply(document)?;
        }
        let answer = world.cluster.apply(last);
        if !before.is_empty() || answer.is_ok() {
            world.cluster.run(["delete", "cprof", "--all", "-n", "default"])?;
        }
        Ok(answer.map_or_else(|error| error.to_string(), |_| "accepted".to_owned()))
    }
}

#[test]
fn invalid_profiles_are_refused_with_the_message_that_their_file_names() -> Outcome {
    let world = World::shared()?;
    let mut surprises = Vec::new();
    for path in yaml_files("tests/data/invalid")? {
        let case = ManifestCase::parse(&std::fs::read_to_string(&path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let answer = case.answer(world)?;
        let as_expected = match case.expected.as_str() {
            "accepted" => answer == "accepted",
            message => answer.contains(message),
        };
        if !as_expected {
            let ManifestCase { expected, .. } = case;
            surprises.push(format!("{}: not {expected:?}, but\n{answer}", path.display()));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n\n"));
    Ok(())
}

#[test]
fn the_shipped_manifests_apply_cleanly() -> Outcome {
    let world = World::shared()?;
    let operator = file("deploy/operator-rbac.yaml");
    let policy = file("deploy/account-policy.yaml");
    for path in [operator, policy].into_iter().chain(yaml_files("deploy/examples")?) {
        let path = path.to_string_lossy();
        world.cluster.run(["apply", "-f", &path])?;
        // kubectl prints `configured` also for unchanged objects, because it does not know the API
        // server's defaults. So the test compares generations.
        let before = generations(world)?;
        world.cluster.run(["apply", "-f", &path])?;
        assert_eq!(before, generations(world)?, "applying {path} again changed a profile");
    }
    Ok(())
}

/// The generations of the shipped profiles.
fn generations(world: &World) -> Result<String, Failure> {
    let columns = "custom-columns=:.metadata.namespace,:.metadata.name,:.metadata.generation";
    let profiles = world.cluster.run(["get", "cprof", "--all-namespaces", "-o", columns])?;
    // Other tests use this control plane too, in their own namespaces.
    let shipped = |line: &&str| line.starts_with("kubewarm-system ") || line.starts_with("shop ");
    Ok(profiles.lines().filter(shipped).collect::<Vec<_>>().join("\n"))
}
