//! Many random requests to kubewarm and to the API server.

use crate::reads::random_requests_match_the_api_servers_answers;
use crate::world::Outcome;

const REQUESTS: usize = 20_000;

#[test]
fn many_random_requests_match_the_api_servers_answers() -> Outcome {
    random_requests_match_the_api_servers_answers(REQUESTS)
}
