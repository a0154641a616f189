//! Many random requests to kubewarm and to the API server.

use crate::cases::reads::answers::random_requests_match_the_api_servers_answers;
use crate::world::Outcome;

const REQUESTS: usize = 20_000;
/// The number of requests with `--forward`. It is lower, because each forwarded request is one more
/// request to the API server.
const FORWARDED: usize = 5_000;

#[test]
fn many_random_requests_match_the_api_servers_answers() -> Outcome {
    random_requests_match_the_api_servers_answers(REQUESTS, &[])
}

#[test]
fn random_requests_match_with_forwarding() -> Outcome {
    random_requests_match_the_api_servers_answers(FORWARDED, &["--forward"])
}
