//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

mod desired;
mod intake;
mod resolve;
mod run;

pub use self::{
    intake::own_cell,
    run::{Controller, Declarations, Sources},
};
