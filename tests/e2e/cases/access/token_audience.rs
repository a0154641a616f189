//! Token audiences: with `--audience`, kubewarm accepts tokens for that audience only.

use serde_json::Value;

use crate::api::Server;
use crate::world::{Failure, Outcome, World};

/// The audience that kubewarm accepts if it runs with `--audience`.
pub(crate) const AUDIENCE: &str = "kubewarm.example.com";

/// A token of an account for these audiences, or for the API server if there are none.
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

/// Compares kubewarm with `--audience` and the API server. The account may read `path`.
pub(crate) fn check_audience(
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
            let expected = (code == 401).then(|| reply.json());
            assert!(expected.is_none_or(|body: Value| body == unauthorized.json()), "{reply:?}");
        }
    }
    Ok(())
}
