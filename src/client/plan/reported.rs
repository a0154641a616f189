//! What kubewarm itself has found of a profile in mode Plan.

use super::{
    super::{error::Error, specs::title},
    Permissions,
    costs::{Amount, Costs, Outlook},
};
use crate::api::{CacheProfile, PlanCertainty, PlanStatus};

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
    let PlanStatus { cells, objects, memory, requests, seconds, missing, certainty } = plan;
    let sure = match certainty {
        Some(PlanCertainty::Estimate) => Amount::Likely,
        // An older version has not said.
        Some(PlanCertainty::LowerBound) | None => Amount::AtLeast,
    };
    let count =
        |number: i64, of: fn(u64) -> Amount| u64::try_from(number).map_or(Amount::Unknown, of);
    let mebibytes = memory.strip_suffix("Mi").unwrap_or(memory).parse::<u64>();
    Costs {
        cells: count((*cells).into(), Amount::Likely),
        objects: count(*objects, sure),
        bytes: mebibytes
            .map_or(Amount::Unknown, |mebibytes| sure(mebibytes.saturating_mul(1 << 20))),
        requests: count((*requests).into(), sure),
        millis: count(i64::from(*seconds) * 1_000, sure),
        missing: count((*missing).into(), Amount::Likely),
    }
}

impl Outlook {
    /// Whether what is known is enough.
    pub(super) fn permissions(&self) -> Permissions {
        let some = matches!(self.total.missing, Amount::Likely(1..) | Amount::AtLeast(1..));
        if some || !self.faults.is_empty() { Permissions::Missing } else { Permissions::Enough }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_a_lower_bound_is_marked_as_one() {
        let plan =
            PlanStatus { cells: 1, objects: 7, memory: "3Mi".to_owned(), ..PlanStatus::default() };
        let of = |certainty| costs(&PlanStatus { certainty, ..plan.clone() });
        let bound = of(Some(PlanCertainty::LowerBound));
        assert_eq!((bound.objects, bound.bytes), (Amount::AtLeast(7), Amount::AtLeast(3 << 20)));
        assert_eq!((bound.cells, bound.missing), (Amount::Likely(1), Amount::Likely(0)));
        assert_eq!(of(Some(PlanCertainty::Estimate)).objects, Amount::Likely(7));
        assert_eq!(of(None).objects, Amount::AtLeast(7), "an older version has not said");
    }
}
