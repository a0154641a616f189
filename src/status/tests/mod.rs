//! What is too long for the files it tests.

mod access_lost;
mod accounts;
mod conditions;
mod events;
mod faults;
mod figures;
pub(super) mod fixtures;
mod limits;
mod pacer;
mod permissions;
mod planned;
mod round;
mod sink;
