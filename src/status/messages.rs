//! Writes messages about faults of a target's informers, with the next step for the user.

use super::{
    condition_update::ConditionUpdate, informer::ObservedInformer, quantities,
    reasons::ConditionReason, sentence,
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{FaultReason, InformerScope, ProfileRef},
    v1alpha1::AccessStatus,
};
use kubewarm_cache::informer::InformerPhase;

/// Context of all messages about one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageContext<'a> {
    /// The profile, for the commands that messages name.
    pub(super) profile: &'a ProfileRef,
    /// `targets[].name`.
    pub(super) target: &'a str,
    /// Who reads upstream.
    pub(super) access: Option<&'a AccessStatus>,
}

impl MessageContext<'_> {
    /// Returns a condition with the message `target "pods": <text>`.
    pub(super) fn verdict(
        &self,
        status: Option<bool>,
        reason: ConditionReason,
        text: &str,
    ) -> ConditionUpdate {
        ConditionUpdate::new(status, reason, format!("target {:?}: {text}", self.target))
    }

    /// Name of the identity that reads upstream.
    pub(super) fn subject(&self) -> &str {
        self.access.and_then(|access| access.subject.as_deref()).unwrap_or("kubewarm")
    }

    /// What grants a missing permission.
    fn grant(&self) -> String {
        format!("what `{}` prints", rbac_command(self.profile))
    }

    /// Why the subject cannot do `what`, and what to do. `revoked`: when it last could.
    pub(super) fn refusal(
        &self,
        reason: FaultReason,
        what: &str,
        revoked: Option<Timestamp>,
    ) -> String {
        let subject = self.subject();
        let next = self.grant();
        match (reason, revoked) {
            (FaultReason::Unauthorized, _) => format!(
                "the API server does not accept the credentials of {subject} to {what}; check that its \
                 token is valid and that the account exists"
            ),
            (FaultReason::TokenRequestDenied, _) => {
                format!("kubewarm may not request tokens of {subject} to {what}; apply {next}")
            }
            (FaultReason::ServiceAccountNotFound, _) => format!(
                "{subject} does not exist, as which to {what}; create it, and the target starts by itself"
            ),
            (_, Some(until)) => format!(
                "no longer allowed to {what} as {subject} (it was at {}); apply {next}",
                quantities::seconds(until).0
            ),
            (_, None) => format!("not allowed to {what} as {subject}; apply {next}"),
        }
    }

    /// Describes the fault of `informers`, which all have the same kind of fault. Returns `None` if
    /// none has a fault.
    pub(super) fn fault(&self, informers: &[&ObservedInformer<'_>]) -> Option<String> {
        let fault = informers.iter().find_map(|informer| informer.fault())?;
        let what = format!("{} {}", kinds(informers), places(informers));
        let subject = self.subject();
        let verb = fault.verb.as_str();
        let words = &fault.message;
        let since = quantities::seconds(fault.since).0;
        Some(match fault.reason {
            FaultReason::Forbidden
            | FaultReason::Unauthorized
            | FaultReason::TokenRequestDenied
            | FaultReason::ServiceAccountNotFound => {
                self.refusal(fault.reason, &format!("{verb} {what}"), None)
            }
            FaultReason::NotServed => format!(
                "{} is not served by this cluster; install its CRD, and the target starts by itself",
                kinds(informers)
            ),
            FaultReason::NamespaceNotFound => {
                let names: Vec<_> = informers.iter().map(|informer| informer.namespace()).collect();
                let does = if names.len() == 1 { "does" } else { "do" };
                format!(
                    "{} {does} not exist; create it and it is warmed, or take it out of the scope",
                    sentence::namespaces(&names)
                )
            }
            FaultReason::NotListable => {
                format!("{what} has no {verb} ({words}); remove the target from the profile")
            }
            FaultReason::Internal => format!(
                "the informer of {what} failed since {since} ({words}); \
                 it is restarted; please report this as a bug"
            ),
            FaultReason::TooLarge | FaultReason::Malformed => format!(
                "the {verb} of {what} makes no sense since {since} ({words}); retrying; \
                 look for a proxy or an oversized object"
            ),
            FaultReason::Unverified => format!(
                "permissions are not confirmed: no check shows whether {subject} may still list and \
                 watch {what} ({words}); reads are rejected until a check succeeds"
            ),
            FaultReason::TimedOut => format!(
                "the {verb} of {what} makes no progress since {since} ({words}); \
                 retrying; check the API server and the network"
            ),
            FaultReason::Throttled
            | FaultReason::ServerError
            | FaultReason::Unreachable
            | FaultReason::Gone
            | FaultReason::Unsupported
            | FaultReason::ClosedAtOnce => format!(
                "the {verb} of {what} fails since {since} ({words}); \
                 retrying; check the API server if this lasts"
            ),
        })
    }
}

/// The command that prints the manifests of `profile`. Safe to copy: both names are DNS names.
pub(super) fn rbac_command(profile: &ProfileRef) -> String {
    format!("kubectl warm rbac {} -n {}", profile.name, profile.namespace)
}

/// How far the first lists have come.
pub(super) fn progress(informers: &[ObservedInformer<'_>]) -> String {
    let done = informers.iter().filter(|informer| informer.is_warm()).count();
    let listing = || {
        let reports = informers.iter().filter_map(ObservedInformer::report);
        reports.filter(|report| report.phase == InformerPhase::Listing)
    };
    let listed = listing().fold(0_u64, |sum, report| sum.saturating_add(report.listed));
    // `None` unless every expected total is known: the API server reports none for lists with a
    // selector.
    let expected =
        listing().try_fold(0_u64, |sum, report| Some(sum.saturating_add(report.expected?)));
    let far = match expected.filter(|expected| *expected > 0) {
        Some(expected) => format!("{listed} of {expected} objects listed"),
        None if listed > 0 => format!("{listed} objects listed"),
        None => "waiting for the API server or for a free list slot".to_owned(),
    };
    let all: Vec<_> = informers.iter().collect();
    format!("syncing {}: {done} of {} informers done, {far}", kinds(&all), informers.len())
}

/// The informers' resource, in the form `resource.group`.
pub(super) fn kinds(informers: &[&ObservedInformer<'_>]) -> String {
    informers
        .first()
        .map_or_else(String::new, |informer| informer.key.resource.group_resource().to_string())
}

/// Returns `in namespaces "a", "b"`, `in all namespaces` or `across the cluster`.
pub(super) fn places(informers: &[&ObservedInformer<'_>]) -> String {
    let names: Vec<_> =
        informers.iter().filter_map(|informer| informer.key.extent.namespace()).collect();
    match (names.is_empty(), informers.first().map(|informer| &informer.key.extent)) {
        (false, _) => format!("in {}", sentence::namespaces(&names)),
        (true, Some(InformerScope::AllNamespaces)) => "in all namespaces".to_owned(),
        (true, _) => "across the cluster".to_owned(),
    }
}
