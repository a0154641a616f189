//! Whether every cell may be read, proven by its own requests, and what its identity may too much.
//!
//! Each cell's `list` and `watch` are tried as the identity that will use them; reviews are asked
//! beside that, often, because they are cheap, and never decide.

mod book;
mod excess;
mod reports;
mod rule;
mod rules;
mod standing;
mod verifier;

pub use self::{
    book::{Check, Wanted},
    excess::Excess,
    reports::AccessReports,
    rule::PATIENCE,
    rules::attributes,
    standing::{CellAccess, Refused, Standing},
    verifier::{Surroundings, Verifier},
};
