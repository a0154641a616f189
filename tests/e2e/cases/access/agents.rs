//! Tests `--agents`: each pod of a ServiceAccount in the list counts as one user, and all these
//! pods together leave a user's quota to others.

use crate::api::{Served, Server, Watch, account, let_read};
use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// So many watches that one user can open two of them, and the pods of an entry six together.
const MAX_WATCHES: &str = "8";
const OF_USER: usize = 2;

/// Creates a pod of the account, and a token that is bound to the pod.
fn pod_token(
    world: &World,
    namespace: &str,
    account: &str,
    number: usize,
) -> Result<String, Failure> {
    let pod = format!("{account}-{number}");
    world.cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, namespace: {namespace}}}, \
         spec: {{serviceAccountName: {account}, containers: [{{name: main, image: example.com/agent}}]}}}}"
    ))?;
    let bound = ["--bound-object-kind=Pod", "--bound-object-name", &pod];
    let token = [&["create", "token", account, "-n", namespace], &bound[..]].concat();
    Ok(world.cluster.run(token)?.trim().to_owned())
}

/// Opens watches with this token until kubewarm returns 429. Also returns the message of the 429.
fn open_all(reads: &Server, token: &str, path: &str) -> Result<(Vec<Watch>, String), Failure> {
    let mut open = Vec::new();
    loop {
        let watch = reads.watch(token, path, "application/json")?;
        match watch.code {
            200 => open.push(watch),
            429 => break,
            code => return Err(format!("{code} after {} watches", open.len()).into()),
        }
        assert!(open.len() <= OF_USER, "{} watches", open.len());
    }
    // If a watch has ended since the 429, this one ends soon.
    let again = reads.get(token, &format!("{path}&timeoutSeconds=1"))?;
    let message = again.json()["message"].clone();
    Ok((open, message.as_str().unwrap_or_default().to_owned()))
}

#[test]
fn each_pod_of_agents_has_a_users_quota_and_all_together_leave_one_to_others() -> Outcome {
    let world = World::lease()?;
    let team = world.namespace("team")?;
    let entry = format!("{team}/agent");
    let flags = ["--max-watches", MAX_WATCHES, "--agents", &entry];
    let served = Served::start(&world, &flags)?;
    Operator::grant_reading(&world)?;
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    Profile::apply(&world, &team, "mine", spec)?.await_condition("Ready", "True", None, SOON)?;
    let reads = served.server()?;
    let list = format!("/api/v1/namespaces/{team}/configmaps");
    let path = format!("{list}?watch=true");
    let unbound = ["agent", "reader"].map(|name| {
        let token = account(&world, &team, name)?;
        let_read(&world, (&team, name), Some(&team))?;
        eventually(SOON, || match reads.get(&token, &list)?.code {
            200 => Ok(()),
            code => Err(Failure::from(format!("{code}"))),
        })?;
        Ok::<_, Failure>(token)
    });
    let [agent, reader] = unbound;
    let (agent, reader) = (agent?, reader?);
    let tokens = |account: &str, count: usize| {
        let numbers = 1..=count;
        numbers
            .map(|number| pod_token(&world, &team, account, number))
            .collect::<Result<Vec<_>, _>>()
    };
    let (agents, readers) = (tokens("agent", 4)?, tokens("reader", 2)?);

    let mut held = Vec::new();
    for token in agents.iter().take(3) {
        let (open, message) = open_all(&reads, token, &path)?;
        assert_eq!((open.len(), message.contains("--agents")), (OF_USER, false), "{message}");
        held.extend(open);
    }
    // The fourth pod, and a token without a pod, count towards the entry too.
    for token in [&agents[3], &agent] {
        let (open, message) = open_all(&reads, token, &path)?;
        assert_eq!(open.len(), 0);
        assert!(message.contains(&format!("ServiceAccount {entry} in --agents")), "{message}");
    }
    // The pods of another account are one user, whatever their tokens are.
    let (open, _) = open_all(&reads, &readers[0], &path)?;
    assert_eq!(open.len(), OF_USER);
    for token in [&readers[1], &reader] {
        assert_eq!(open_all(&reads, token, &path)?.0.len(), 0);
    }
    assert!(held.iter().all(|watch| !watch.is_over()), "a watch ended");
    held.pop();
    eventually(SOON, || match open_all(&reads, &agents[3], &path)?.0.len() {
        1 => Ok(()),
        count => Err(Failure::from(format!("{count} watches"))),
    })
}
