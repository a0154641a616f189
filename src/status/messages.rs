//! Writes messages about the failed requests of a target's informers, with the next step for the
//! user.

use super::{
    condition_update::ConditionUpdate, informer::ObservedInformer, quantities,
    reasons::ConditionReason, sentence,
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{FaultReason, InformerScope, ProfileRef, with_next_step},
    v1alpha1::AccessStatus,
};
use kubewarm_cache::informer::InformerPhase;

#[derive(Clone, Copy, Debug)]
pub(super) struct MessageContext<'a> {
    /// The profile whose name the commands in messages contain.
    pub(super) profile: &'a ProfileRef,
    pub(super) target: &'a str,
    /// The profile's `status.access`. Its `subject` is the identity with which the profile's
    /// informers read.
    pub(super) access: Option<&'a AccessStatus>,
    /// The operator namespace, which these commands name too.
    pub(super) operator_namespace: &'a str,
}

impl MessageContext<'_> {
    /// Returns a condition whose message is `text` with the target's name as prefix, such as
    /// `target "pods": synced`.
    pub(super) fn verdict(
        &self,
        status: Option<bool>,
        reason: ConditionReason,
        text: &str,
    ) -> ConditionUpdate {
        ConditionUpdate::new(status, reason, format!("target {:?}: {text}", self.target))
    }

    pub(super) fn subject(&self) -> &str {
        self.access.and_then(|access| access.subject.as_deref()).unwrap_or("kubewarm")
    }

    /// Explains why the profile's identity cannot do `what`, such as "list pods", and names the
    /// next step. `revoked` is the time at which the identity last had the permission, or `None` if
    /// the identity never had the permission.
    pub(super) fn refusal(
        &self,
        reason: FaultReason,
        what: &str,
        revoked: Option<Timestamp>,
    ) -> String {
        let subject = self.subject();
        let missing = match (reason, revoked) {
            (FaultReason::Unauthorized, _) => {
                return format!(
                    "the API server does not accept the credentials of {subject} to {what}; check that its \
                     token is valid and that the account exists"
                );
            }
            (FaultReason::ServiceAccountNotFound, _) => {
                return format!(
                    "cannot {what}: {subject} does not exist; create it, and the target starts automatically"
                );
            }
            (FaultReason::TokenRequestDenied, _) => {
                format!("kubewarm may not request tokens of {subject} to {what}")
            }
            (_, Some(until)) => format!(
                "no longer allowed to {what} as {subject} (it was at {})",
                quantities::seconds(until).0
            ),
            (_, None) => format!("not allowed to {what} as {subject}"),
        };
        let command = rbac_command(self.profile, self.operator_namespace);
        with_next_step(&missing, &format!("{command} --diff"))
    }

    /// Describes the failed request of `informers`. If several informers have faults, the faults
    /// must have the same reason, and the message describes the first fault. Returns `None` if no
    /// informer has a fault.
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
                    "{} {does} not exist; create the namespace, or remove it from the scope",
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
                "the {verb} of {what} has returned unusable data since {since} ({words}); retrying; \
                 look for a proxy or an oversized object"
            ),
            FaultReason::Unverified => format!(
                "permissions are not confirmed: no check shows whether {subject} may still list and \
                 watch {what} ({words}); reads are rejected until a check succeeds"
            ),
            FaultReason::TimedOut => format!(
                "the {verb} of {what} has made no progress since {since} ({words}); \
                 retrying; check the API server and the network"
            ),
            FaultReason::Throttled
            | FaultReason::ServerError
            | FaultReason::Unreachable
            | FaultReason::Gone
            | FaultReason::Unsupported
            | FaultReason::ClosedAtOnce => format!(
                "the {verb} of {what} has failed since {since} ({words}); \
                 retrying; check the API server if this lasts"
            ),
        })
    }
}

/// Returns the command that prints the RBAC manifests of `profile`. The command needs no shell
/// quoting, because all names are DNS names.
pub(super) fn rbac_command(profile: &ProfileRef, operator_namespace: &str) -> String {
    let ProfileRef { name, namespace } = profile;
    format!("kubectl warm rbac {name} -n {namespace} --operator-namespace {operator_namespace}")
}

/// Describes the progress of the first lists: the number of informers whose list is complete, and
/// the number of objects received so far.
pub(super) fn progress(informers: &[ObservedInformer<'_>]) -> String {
    let done = informers.iter().filter(|informer| informer.is_warm()).count();
    let listing = || {
        let reports = informers.iter().filter_map(ObservedInformer::report);
        reports.filter(|report| report.phase == InformerPhase::Listing)
    };
    let listed = listing().fold(0_u64, |sum, report| sum.saturating_add(report.listed));
    // The sum is `None` if the API server does not report the number of objects of one of the
    // lists, for instance of a list with a selector.
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

/// Returns the resource of `informers`, in the form `resource.group`. All of them must have the
/// same resource.
pub(super) fn kinds(informers: &[&ObservedInformer<'_>]) -> String {
    informers
        .first()
        .map_or_else(String::new, |informer| informer.key.resource.group_resource().to_string())
}

/// Returns the scope of `informers` as text: `in namespaces "a", "b"`, `in all namespaces` or
/// `across the cluster`.
pub(super) fn places(informers: &[&ObservedInformer<'_>]) -> String {
    let names: Vec<_> =
        informers.iter().filter_map(|informer| informer.key.scope.namespace()).collect();
    match (names.is_empty(), informers.first().map(|informer| &informer.key.scope)) {
        (false, _) => format!("in {}", sentence::namespaces(&names)),
        (true, Some(InformerScope::AllNamespaces)) => "in all namespaces".to_owned(),
        (true, _) => "across the cluster".to_owned(),
    }
}
