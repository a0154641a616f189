//! Tests `--authorization=shared-reviews`: for a caller that may get all names, kubewarm needs one
//! access review, also with another token. For a caller that may get some names, kubewarm needs one
//! access review for each name.

use std::time::{Duration, Instant};

use crate::api::{Served, Server, account};
use crate::operator::Operator;
use crate::profile::Profile;
use crate::requests::requests;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Timeout for the end of a revoked permission: kubewarm uses an access decision for 10 s.
const REVOKED: Duration = Duration::from_secs(15);
/// The time for which kubewarm uses an access decision.
const DECISION: Duration = Duration::from_secs(10);
const NAMES: [&str; 8] = ["amber", "blue", "cyan", "green", "ochre", "pink", "red", "white"];

/// Both servers, and the path of a namespace's `ConfigMaps`, which the tests get one by one.
struct NamedObjects {
    world: World,
    api: Server,
    reads: Server,
    team: String,
    path: String,
}

impl NamedObjects {
    /// Creates an account that may get these names, or all names, and waits for its permission.
    fn reader(&self, name: &str, names: &[&str]) -> Result<String, Failure> {
        let Self { world, team, .. } = self;
        let token = account(world, team, name)?;
        let mut role = vec!["create", "role", name, "-n", team, "--verb=get"];
        role.push("--resource=configmaps");
        let names: Vec<_> = names.iter().map(|name| format!("--resource-name={name}")).collect();
        world.cluster.run(role.into_iter().chain(names.iter().map(String::as_str)))?;
        let (role, owner) = (format!("--role={name}"), format!("--serviceaccount={team}:{name}"));
        world.cluster.run(["create", "rolebinding", name, "-n", team, &role, &owner])?;
        eventually(SOON, || match self.api.get(&token, &format!("{}/red", self.path))?.code {
            200 => Ok(()),
            code => Err(format!("{code}").into()),
        })?;
        Ok(token)
    }

    /// Gets each name twice. kubewarm's answers must equal the API server's answers, and kubewarm
    /// must have sent `expected` access reviews, or one for each expired one.
    fn check(&self, token: &str, expected: usize) -> Outcome {
        let before = self.reviews()?;
        let began = Instant::now();
        for name in NAMES.iter().chain(&NAMES) {
            let path = format!("{}/{name}", self.path);
            let (ours, theirs) = (self.reads.get(token, &path)?, self.api.get(token, &path)?);
            assert_eq!((ours.code, ours.json()), (theirs.code, theirs.json()), "{name}");
        }
        // On a slow machine, access decisions expire during these requests, and kubewarm sends the
        // access reviews again.
        let rounds = 1 + usize::try_from(began.elapsed().as_secs() / DECISION.as_secs())?;
        // The API server writes the audit log after its answers.
        let count = eventually(SOON, || match self.reviews()? - before {
            count if count >= expected => Ok(count),
            count => Err(format!("{count} of {expected} reviews").into()),
        })?;
        let most = expected.max(1) * rounds;
        assert!(count <= most, "{count} reviews, expected {expected}");
        Ok(())
    }

    /// The number of access reviews in the audit log.
    fn reviews(&self) -> Result<usize, Failure> {
        let requests = requests(&std::fs::read_to_string(self.world.cluster.audit_log())?);
        Ok(requests.iter().filter(|request| request.resource == "subjectaccessreviews").count())
    }
}

#[test]
fn a_reader_of_all_names_needs_one_review_and_others_get_only_their_names() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &["--authorization=shared-reviews"])?;
    Operator::grant_reading(&world)?;
    let team = world.namespace("team")?;
    for name in NAMES {
        world.cluster.run(["create", "configmap", name, "-n", &team])?;
    }
    let spec =
        "{targets: [{name: settings, resource: configmaps, projection: {managedFields: Keep}}]}";
    let profile = Profile::apply(&world, &team, "mine", spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let (api, reads) = (Server::api(&world)?, served.server()?);
    let path = format!("/api/v1/namespaces/{team}/configmaps");
    let scene = NamedObjects { world, api, reads, team, path };
    let of_all = scene.reader("of-all", &[])?;
    let of_some = scene.reader("of-some", &["red", "blue"])?;

    scene.check(&of_all, 1)?;
    // The API server writes another `extra` for each token. The shared review has no `extra`, so
    // it usually is still cached.
    let token = scene.world.cluster.run(["create", "token", "of-all", "-n", &scene.team])?;
    scene.check(token.trim(), 0)?;
    scene.check(&of_some, 1 + NAMES.len())?;

    let NamedObjects { world, reads, team, path, .. } = &scene;
    world.cluster.run(["delete", "rolebinding", "of-all", "-n", team])?;
    eventually(REVOKED, || match reads.get(&of_all, &format!("{path}/red"))?.code {
        403 => Ok(()),
        code => Err(format!("{code}").into()),
    })
}
