//! Estimates the cost of a planned profile from a sample, before any informer runs.

mod figures;
mod run;
#[cfg(test)]
pub(crate) mod samples;
mod survey;

pub use self::{
    figures::{Figures, Forecast},
    run::{Forecasts, REST, run},
    survey::Surveyor,
};

use kubewarm_api::model::{Declared, DeclaredTarget};

/// Returns the accepted targets of a profile, in the order of the spec. Refused targets cost
/// nothing.
pub fn accepted(declared: &Declared) -> impl Iterator<Item = &DeclaredTarget> {
    declared.targets.iter().filter(|target| is_accepted(target))
}

fn is_accepted(target: &DeclaredTarget) -> bool {
    matches!(target.resolved, Some(Ok(_)))
}
