//! Computes the condition `Authorized`, and the fields of `status.access` that depend on access
//! checks.

use super::{
    condition_update::{ConditionUpdate, rollup},
    informer::{ObservedInformer, group_by},
    messages::{MessageContext, kinds, places},
    quantities,
    reasons::ConditionReason,
    sentence,
    target::ObservedTarget,
};
use crate::access::{AccessStates, ExcessPermissions, InformerAccess};
use jiff::Timestamp;
use kubewarm_api::{
    model::{
        FaultReason, GroupResource, Identity, RequestFault, ResolvedProfile, ResolvedTarget, Verb,
    },
    v1alpha1::{AccessStatus, NamespaceRules, PolicyRule, RulesCompleteness},
};
use kubewarm_cache::informer::{PermissionDenial, PermissionState};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Maximum number of namespaces in `status.access.missing` and `status.access.excess` that the
/// CRD's schema allows.
const MAX_NAMESPACES: usize = 128;
/// Maximum number of rules per namespace in `status.access.missing` that the CRD's schema allows.
const MAX_RULES: usize = 128;

/// Permissions that a profile's identity has but does not need, by namespace. An empty namespace
/// name means the whole cluster.
pub type ExcessByNamespace = Vec<(Arc<str>, Arc<ExcessPermissions>)>;

/// The common properties of informers without access, by which the message of the condition
/// `Authorized` groups them. The message has one sentence for each group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DenialGroup<'c> {
    /// Whether the API server never permitted access. `false` sorts first, so groups whose access
    /// was revoked precede the other groups.
    is_new: bool,
    reason: FaultReason,
    verbs: &'c [Verb],
    resource: &'c GroupResource,
}

pub(super) fn authorized(
    informers: &[&ObservedInformer<'_>],
    is_resolved: bool,
    context: MessageContext<'_>,
) -> ConditionUpdate {
    if !is_resolved {
        let text = "it is not resolved; there is nothing to verify yet";
        return context.verdict(None, ConditionReason::Verifying, text);
    }
    let verified = informers.iter().filter(|informer| is_granted(informer)).count();
    // Informers in a deleted namespace do not count as forbidden, because their Roles were deleted
    // together with the namespace, and no user has revoked them.
    let is_absent = |denial: &PermissionDenial| denial.reason == FaultReason::NamespaceNotFound;
    let absent =
        informers.iter().filter(|informer| refused(informer).is_some_and(is_absent)).count();
    let refused = group_by(informers.iter().copied(), |informer| {
        let denial = refused(informer).filter(|denial| !is_absent(denial))?;
        Some(DenialGroup {
            is_new: denial.revoked.is_none(),
            reason: denial.reason,
            verbs: &denial.verbs,
            resource: informer.key.resource.group_resource(),
        })
    });
    let lapsed = group_by(informers.iter().copied(), |informer| match &informer.access()?.state {
        PermissionState::Unverified { message, .. } => {
            Some((informer.key.resource.group_resource(), message))
        }
        PermissionState::Verifying
        | PermissionState::Granted { .. }
        | PermissionState::Refused(_) => None,
    });
    let lapsed = lapsed
        .iter()
        .map(|((_, message), informers)| describe_unverified(message, informers, context));
    let mut remarks: Vec<_> = lapsed.chain(remarks(informers)).collect();
    let verdicts =
        refused.iter().map(|(group, informers)| describe_denial(group, informers, context));
    if let Some(verdict) = rollup("Authorized", verdicts, remarks.clone(), "problems") {
        return context.verdict(verdict.status, verdict.reason, &verdict.message);
    }
    let open = informers.len() - absent;
    let (status, reason, text) = if verified < open {
        (None, ConditionReason::Verifying, format!("{verified} of {open} informers verified"))
    } else if open == 0 && absent > 0 {
        (
            None,
            ConditionReason::Verifying,
            "there is nothing to verify in a namespace that does not exist".into(),
        )
    } else {
        (Some(true), ConditionReason::Verified, format!("all of {open} informers verified"))
    };
    remarks.insert(0, text);
    context.verdict(status, reason, &sentence::join_first(&remarks, "remarks"))
}

fn describe_denial(
    denial: &DenialGroup<'_>,
    informers: &[&ObservedInformer<'_>],
    context: MessageContext<'_>,
) -> ConditionUpdate {
    let DenialGroup { reason, verbs, resource, .. } = denial;
    let words = verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(" and ");
    let group = match resource.group() {
        "" => "the core API group".to_owned(),
        group => format!("API group {group:?}"),
    };
    let revoked = informers.iter().filter_map(|informer| refused(informer)?.revoked).max();
    let what = format!("{words} {} of {group} {}", resource.resource(), places(informers));
    let condition_reason = match (reason, revoked) {
        (FaultReason::TokenRequestDenied, _) => ConditionReason::TokenRequestDenied,
        (_, Some(_)) => ConditionReason::AccessRevoked,
        (_, None) => ConditionReason::PermissionsMissing,
    };
    ConditionUpdate::new(Some(false), condition_reason, context.refusal(*reason, &what, revoked))
}

/// Describes informers that kubewarm blocks because no access check had a result in time.
fn describe_unverified(
    message: &str,
    informers: &[&ObservedInformer<'_>],
    context: MessageContext<'_>,
) -> String {
    let verified_at = informers.iter().filter_map(|informer| match &informer.access()?.state {
        PermissionState::Unverified { verified_at, .. } => Some(*verified_at),
        PermissionState::Verifying
        | PermissionState::Granted { .. }
        | PermissionState::Refused(_) => None,
    });
    let since = verified_at.min().unwrap_or_default();
    format!(
        "no check has shown since {3} whether {0} may list and watch {1} {2}, although the API \
         server answers other requests; access counts as lost until a check is answered ({message})",
        context.subject(),
        kinds(informers),
        places(informers),
        quantities::seconds(since).0
    )
}

/// Returns sentences for the message of `Authorized`: about access reviews whose result differs
/// from real list and watch requests, and about access checks that are late or fail.
pub(super) fn remarks(informers: &[&ObservedInformer<'_>]) -> Vec<String> {
    let with = |is: &dyn Fn(&InformerAccess) -> bool| -> Vec<_> {
        informers.iter().copied().filter(|informer| informer.access().is_some_and(is)).collect()
    };
    let mut remarks = Vec::new();
    for (is_allowed, verdict) in [(true, "would be allowed"), (false, "would be refused")] {
        let differing = with(&|access: &InformerAccess| access.overruled == Some(is_allowed));
        if !differing.is_empty() {
            remarks.push(format!(
                "according to reviews, reading {} {} {verdict}; the real requests decide, look for an \
                 authorizer that answers reviews differently",
                kinds(&differing),
                places(&differing)
            ));
        }
    }
    if !with(&|access| access.is_late).is_empty() {
        remarks.push(
            "checks run less often than every 20 s, because too many of them are queued".to_owned(),
        );
    }
    remarks.extend(describe_failing_checks(informers));
    remarks
}

/// Describes failing access checks of informers that kubewarm does not block yet.
/// [`describe_unverified`] describes the blocked informers.
fn describe_failing_checks(informers: &[&ObservedInformer<'_>]) -> Option<String> {
    let failing: Vec<_> = informers
        .iter()
        .copied()
        .filter_map(|informer| Some((informer, check_error(informer)?)))
        .collect();
    let (_, fault) = failing.first()?;
    let informers: Vec<_> = failing.iter().map(|(informer, _)| *informer).collect();
    let verified_at = informers.iter().filter_map(|informer| last_verified(informer)).min();
    let since = verified_at.map(|at| format!(" since {}", quantities::seconds(at).0));
    Some(format!(
        "checks of {} {} have had no result{} ({fault})",
        kinds(&informers),
        places(&informers),
        since.unwrap_or_default()
    ))
}

/// Returns the error of the informer's last access check if the API server has answered no access
/// check or review for about 30 seconds. Returns `None` if the informer is already blocked for this
/// reason (`Unverified`), because [`describe_unverified`] then describes the error.
fn check_error<'c>(informer: &'c ObservedInformer<'_>) -> Option<&'c RequestFault> {
    let InformerAccess { state, failed, .. } = informer.access()?;
    failed.as_ref().filter(|_| !matches!(state, PermissionState::Unverified { .. }))
}

/// Returns `base` with the fields of `status.access` that depend on access checks.
pub(super) fn access(
    base: &AccessStatus,
    targets: &[ObservedTarget<'_>],
    excess: Option<&ExcessByNamespace>,
) -> AccessStatus {
    let informers: Vec<_> = targets.iter().flat_map(ObservedTarget::all_informers).collect();
    let known: Option<Vec<_>> = informers.iter().map(|informer| last_verified(informer)).collect();
    let oldest = known.and_then(|known| known.into_iter().min());
    let (excess, excess_completeness) = excess.map_or_else(Default::default, excess_rules);
    AccessStatus {
        last_verified_time: oldest.map(quantities::seconds),
        missing: missing_permissions(&informers),
        excess,
        excess_completeness,
        ..base.clone()
    }
}

fn last_verified(informer: &ObservedInformer<'_>) -> Option<Timestamp> {
    match &informer.access()?.state {
        PermissionState::Granted { verified_at, .. }
        | PermissionState::Unverified { verified_at, .. }
        | PermissionState::Refused(PermissionDenial { verified_at, .. }) => Some(*verified_at),
        PermissionState::Verifying => None,
    }
}

/// Returns the permissions that the profile's identity has and does not need, in the namespaces of
/// the profile's informers.
///
/// Returns `None` until the identity's rules are known. Also returns `None` for a tenant's profile
/// that reads with the operator's identity, because tenants must not see the operator's
/// permissions.
pub fn excess(
    access: &AccessStates,
    operator_namespace: &str,
    profile: &ResolvedProfile,
) -> Option<ExcessByNamespace> {
    let informers = profile.targets.iter().flat_map(ResolvedTarget::all_informers);
    let informers: Vec<_> = informers.map(|informer| &informer.key).collect();
    let identity = &informers.first()?.identity;
    if *identity == Identity::Operator && *profile.profile.namespace != *operator_namespace {
        return None;
    }
    let namespaces: BTreeSet<_> = informers.iter().map(|key| key.scope.namespace()).collect();
    let excess = |namespace: Option<&str>| {
        let namespace: Option<Arc<str>> = namespace.map(Into::into);
        let permissions = access.excess(identity, namespace.as_ref())?;
        Some((namespace.unwrap_or_default(), permissions))
    };
    namespaces.into_iter().map(excess).collect()
}

/// Resources by their verbs and API group. Each map entry becomes one RBAC rule.
type RuleGroups<'a> = BTreeMap<(&'a [Verb], &'a str), BTreeSet<&'a str>>;

/// Returns the missing permissions as RBAC rules, one entry per namespace.
fn missing_permissions(informers: &[&ObservedInformer<'_>]) -> Vec<NamespaceRules> {
    let mut all = BTreeMap::<&str, RuleGroups<'_>>::new();
    for informer in informers {
        let Some(PermissionDenial { verbs, reason: FaultReason::Forbidden, .. }) =
            refused(informer)
        else {
            continue;
        };
        let resource = informer.key.resource.group_resource();
        let rules = all.entry(informer.namespace()).or_default();
        rules.entry((verbs, resource.group())).or_default().insert(resource.resource());
    }
    let rule = |((verbs, group), resources): ((&[Verb], &str), BTreeSet<&str>)| PolicyRule {
        api_groups: vec![group.to_owned()],
        resources: resources.into_iter().map(str::to_owned).collect(),
        resource_names: Vec::new(),
        verbs: verbs.iter().map(|verb| verb.as_str().to_owned()).collect(),
    };
    let of_namespace = |(namespace, rules): (&str, RuleGroups<'_>)| NamespaceRules {
        namespace: namespace.to_owned(),
        rules: rules.into_iter().map(rule).take(MAX_RULES).collect(),
    };
    all.into_iter().map(of_namespace).take(MAX_NAMESPACES).collect()
}

fn is_granted(informer: &ObservedInformer<'_>) -> bool {
    informer.access().is_some_and(|access| matches!(access.state, PermissionState::Granted { .. }))
}

fn refused<'c>(informer: &'c ObservedInformer<'_>) -> Option<&'c PermissionDenial> {
    match &informer.access()?.state {
        PermissionState::Refused(refused) => Some(refused),
        PermissionState::Verifying
        | PermissionState::Granted { .. }
        | PermissionState::Unverified { .. } => None,
    }
}

fn excess_rules(excesses: &ExcessByNamespace) -> (Vec<NamespaceRules>, Option<RulesCompleteness>) {
    let with_some = excesses.iter().filter(|(_, excess)| !excess.rules.is_empty());
    let all: Vec<_> = with_some
        .map(|(namespace, excess)| NamespaceRules {
            namespace: namespace.to_string(),
            rules: excess.rules.clone(),
        })
        .collect();
    let is_all = all.len() <= MAX_NAMESPACES
        && excesses.iter().all(|(_, excess)| excess.completeness == RulesCompleteness::Complete);
    let completeness =
        if is_all { RulesCompleteness::Complete } else { RulesCompleteness::Incomplete };
    (all.into_iter().take(MAX_NAMESPACES).collect(), Some(completeness))
}
