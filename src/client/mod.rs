//! The commands of people and scripts: they read profiles from a cluster or a file, and say what
//! they found.

mod cache;
mod check;
mod documents;
mod error;
mod finding;
mod get;
mod kubeconfig;
mod lines;
mod paint;
mod plan;
mod print;
mod profiles;
mod rbac;
mod served;
mod specs;
mod status;
mod table;
mod target;
mod text;
mod tree;
mod verdict;
mod wait;

#[cfg(test)]
mod sample;

pub use self::{
    cache::AuthorityError,
    check::check,
    error::{DocumentError, Error},
    finding::Health,
    get::{Likeness, get},
    kubeconfig::kubeconfig,
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
