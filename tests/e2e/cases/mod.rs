//! The test cases, grouped by the part of kubewarm that they test.

pub(crate) mod access;
pub(crate) mod cli;
pub(crate) mod process;
pub(crate) mod profiles;
pub(crate) mod reads;
