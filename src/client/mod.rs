//! The commands of people and scripts: they read profiles from a cluster or a file, and say what
//! they found.

mod error;
mod lines;
mod paint;
mod print;
mod profiles;
mod status;
mod text;
mod tree;
mod verdict;
mod wait;

#[cfg(test)]
mod sample;

pub use self::{
    error::Error,
    lines::lines,
    paint::Colour,
    print::print,
    status::status,
    text::escape,
    tree::{Look, tree},
    verdict::{Verdict, verdict, worst},
    wait::wait,
};
