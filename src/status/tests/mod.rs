//! Tests of the status modules.

mod access_lost;
mod accounts;
mod conditions;
mod difference;
mod events;
mod faults;
mod figures;
pub(super) mod fixtures;
mod limits;
mod permissions;
mod planned;
mod publish;
mod round;
mod sink;
mod sizes;
