//! Whom a token is meant for: with `--audience` those for kubewarm count, and the API server's do not.

use serde_json::Value;

use crate::api::Server;
use crate::world::{Failure, Outcome, World};

/// Whom tokens are for that kubewarm takes, if it is told so.
pub(crate) const AUDIENCE: &str = "kubewarm.example.com";

/// A token of an account that is for these; for the API server, if they are none.
pub(crate) fn token(
    world: &World,
    (namespace, account): (&str, &str),
    audiences: &[&str],
) -> Result<String, Failure> {
    let mut command = vec!["create".to_owned(), "token".to_owned(), account.to_owned()];
    command.push(format!("--namespace={namespace}"));
    command.extend(audiences.iter().map(|audience| format!("--audience={audience}")));
    Ok(world.cluster.run(command)?.trim().to_owned())
}

/// Of an account that may read `path`, at kubewarm with `--audience` and at the API server.
pub(crate) fn is_who_takes_it(
    world: &World,
    reads: &Server,
    account: (&str, &str),
    path: &str,
) -> Outcome {
    let api = Server::api(world)?;
    let unauthorized = api.get("bad", path)?;
    for (audiences, ours, theirs) in [
        (&[AUDIENCE] as &[&str], 200, 401),
        (&["other.example.com", AUDIENCE], 200, 401),
        (&["other.example.com"], 401, 401),
        (&[], 401, 200),
    ] {
        let token = token(world, account, audiences)?;
        for (server, code) in [(reads, ours), (&api, theirs)] {
            let reply = server.get(&token, path)?;
            assert_eq!(reply.code, code, "{audiences:?}: {reply:?}");
            let told = (code == 401).then(|| reply.json());
            assert!(told.is_none_or(|told: Value| told == unauthorized.json()), "{reply:?}");
        }
    }
    Ok(())
}
