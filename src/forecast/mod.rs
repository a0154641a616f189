//! What warming a profile would cost, found out from a sample before anything is warmed.

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

/// The targets of a profile that could be warmed, in the order of the spec. The others cost nothing.
pub fn accepted(declared: &Declared) -> impl Iterator<Item = &DeclaredTarget> {
    declared.targets.iter().filter(|target| is_accepted(target))
}

fn is_accepted(target: &DeclaredTarget) -> bool {
    matches!(target.resolved, Some(Ok(_)))
}
