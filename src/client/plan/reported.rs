//! What kubewarm itself has found of a profile in mode Plan.

use super::{
    super::{error::Error, specs::title},
    Permissions,
    costs::{Amount, Costs, Outlook},
};
use crate::api::{CacheProfile, PlanStatus};

/// What its status says.
///
/// # Errors
///
/// [`Error::NoForecast`] as long as it says nothing of the newest generation.
pub(super) fn outlook(profile: &CacheProfile) -> Result<Outlook, Error> {
    let found = profile.status.as_ref().and_then(|status| {
        let is_current = status.observed_generation == profile.metadata.generation;
        Some((status.plan.as_ref().filter(|_| is_current)?, &status.conditions))
    });
    let Some((plan, conditions)) = found else { return Err(Error::NoForecast(title(profile))) };
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    Ok(Outlook {
        profile: title(profile),
        targets: Vec::new(),
        total: costs(plan),
        faults: Vec::new(),
        notes: ready.map(|ready| ready.message.clone()).into_iter().collect(),
    })
}

fn costs(plan: &PlanStatus) -> Costs {
    let PlanStatus { cells, objects, memory, requests, seconds, missing } = plan;
    let count = |number: i64| u64::try_from(number).map_or(Amount::Unknown, Amount::Likely);
    let mebibytes = memory.strip_suffix("Mi").unwrap_or(memory).parse::<u64>();
    Costs {
        cells: count((*cells).into()),
        objects: count(*objects),
        bytes: mebibytes.map_or(Amount::Unknown, |mebibytes| Amount::Likely(mebibytes << 20)),
        requests: count((*requests).into()),
        millis: count(i64::from(*seconds) * 1_000),
        missing: count((*missing).into()),
    }
}

impl Outlook {
    /// Whether what is known is enough.
    pub(super) fn permissions(&self) -> Permissions {
        let some = matches!(self.total.missing, Amount::Likely(1..) | Amount::AtLeast(1..));
        if some || !self.faults.is_empty() { Permissions::Missing } else { Permissions::Enough }
    }
}
