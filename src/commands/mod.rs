//! The commands of people and scripts: they read profiles from a cluster or a file, and say what
//! they found.

mod advice;
mod cache;
mod check;
mod cluster;
mod documents;
mod error;
mod get;
mod kubeconfig;
mod overview;
mod plan;
mod print;
mod profiles;
mod rbac;
mod report;
mod specs;
mod status;
mod target;
mod text;
mod verdict;
mod wait;

#[cfg(test)]
mod sample;

pub use self::{
    check::check,
    error::Error,
    get::get,
    kubeconfig::kubeconfig,
    overview::overview,
    plan::plan,
    print::print,
    rbac::rbac,
    report::{Colour, Format, Report, Verdict, render},
    status::status,
    text::escape,
    wait::wait,
};
