//! The commands of people and scripts: they read profiles from a cluster or a file, and say what
//! they found.

mod documents;
mod error;
mod lines;
mod paint;
mod plan;
mod print;
mod profiles;
mod rbac;
mod replicas;
mod specs;
mod status;
mod text;
mod tree;
mod verdict;
mod wait;

#[cfg(test)]
mod sample;

pub use self::{
    error::{DocumentError, Error},
    lines::lines,
    paint::Colour,
    plan::{Permissions, Resolve, plan},
    print::print,
    rbac::{Agreement, rbac},
    status::status,
    text::escape,
    tree::{Look, tree},
    verdict::{Verdict, verdict, worst},
    wait::wait,
};
