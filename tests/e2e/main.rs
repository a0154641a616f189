//! End-to-end tests on a real API server. They are never skipped: without Go, which builds the
//! server, they fail.

mod cases;
mod slow;
mod support;

// `make soak` and `make oracle` use the same helpers, as modules of their own.
use support::{
    accept, api, authorizer, client, contents, cutter, figures, filling, kinds, operator, pool,
    profile, requests, world, writers,
};
