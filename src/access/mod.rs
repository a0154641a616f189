//! Whether every cell may be read, proven by its own requests, and what its identity may too much.
//!
//! Each cell's `list` and `watch` are tried as the identity that will use them; reviews are asked
//! beside that, often, because they are cheap, and never decide.

mod book;
mod evidence;
mod excess;
mod identities;
mod limits;
mod reports;
#[cfg(test)]
#[expect(dead_code, unreachable_pub, reason = "only compared; the next commit uses it")]
mod rule;
mod rules;
mod standing;
mod verifier;

pub use self::{
    book::Wanted,
    evidence::PATIENCE,
    excess::{Excess, ExcessRule},
    reports::{AccessReports, Check, CheckOutcome},
    rules::attributes,
    standing::{
        CellAccess, Disagreement, Method, Opinion, Punctuality, Refused, Standing, Unverified,
    },
    verifier::{Declared, Surroundings, Verifier},
};
