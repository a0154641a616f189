//! Many random reads at kubewarm and at the API server.

use crate::reads::random_reads_match_the_api_servers_answers;
use crate::world::Outcome;

const REQUESTS: usize = 20_000;

#[test]
fn many_random_reads_match_the_api_servers_answers() -> Outcome {
    random_reads_match_the_api_servers_answers(REQUESTS)
}
