//! The engine against an API server that does what a script says: every fault that a real one cannot
//! be made to show.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod engine;
mod lists;
mod reply;
mod server;
mod watches;
