//! Forecasts the costs of a profile from a sample of the cluster's objects.

use super::{
    super::{
        CommandError,
        cluster::{ConnectionArgs, served},
        rbac::namespaces,
        text::place,
    },
    costs::{CostAmount, ForecastCosts, ForecastReport},
};
use crate::{
    access::attributes,
    controller,
    forecast::{ForecastSampler, accepted},
};
use kube::Client;
use kubewarm_api::{
    manifests::NamespacesBySelector,
    model::{
        FieldSelector, GroupResource, Identity, InformerKey, InformerScope, LabelSelector,
        ListPolicy, OperatorScope, ResolvedProfile, ResolvedTarget, Subject, TargetScope,
        ValidatedProfile, Verb,
    },
    v1alpha1::PlanCertainty,
};
use kubewarm_client::{ClientProvider, NamespaceBuckets, ServedResources, is_permitted};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Pause between two requests that read the sample of the cluster's objects. It limits the sample
/// to 20 requests per second.
const REQUEST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of access reviews per profile, so that a large profile does not load the API
/// server.
const REVIEWS: usize = 512;
/// Maximum number of output rows that name missing permissions.
const MAX_NAMED: usize = 16;

/// Returns the client of the user who runs the command for every identity with which a profile
/// reads. A sample of the cluster therefore contains only objects that this user can read.
struct SingleClientProvider(Arc<Client>);

impl ClientProvider for SingleClientProvider {
    fn client_for(&self, _: &Identity) -> Arc<Client> {
        Arc::clone(&self.0)
    }
}

/// A permission that an informer needs: resource, scope, selectors and verb.
type RequiredAccess = (GroupResource, InformerScope, LabelSelector, FieldSelector, Verb);

pub(super) struct LiveCluster {
    client: Client,
    served: Arc<ServedResources>,
    sampler: ForecastSampler,
}

impl LiveCluster {
    pub(super) async fn connect(args: &ConnectionArgs) -> Result<Self, CommandError> {
        let connection = args.connect()?;
        let client = connection.client();
        let served = served(client.clone()).await.map_err(CommandError::of_discovery)?;
        let caller = Arc::new(SingleClientProvider(Arc::new(connection.informer_client())));
        let sampler = ForecastSampler::new(caller, REQUEST_PAUSE, NamespaceBuckets::default())
            .without_access_checks();
        Ok(Self { client, served, sampler })
    }

    /// Forecasts the costs of `profile` from a sample of the objects that the operator would store.
    /// Also finds the permissions that `reader` lacks, by access reviews.
    pub(super) async fn forecast(
        &self,
        profile: &ValidatedProfile,
        operator: &OperatorScope,
        lists: ListPolicy,
        reader: &Subject,
    ) -> Result<ForecastReport, CommandError> {
        let mut report = ForecastReport::of(&profile.profile);
        let namespaces = match namespaces(&self.client, profile).await {
            Ok(namespaces) => namespaces,
            Err(CommandError::Refused { message, code: 403, .. }) => {
                report.notes.push(format!("you may not list namespaces: {message}"));
                NamespacesBySelector::new()
            }
            Err(error) => return Err(error),
        };
        let resolved =
            controller::resolve_for_forecast(profile, operator, &self.served, &namespaces, lists);
        let refusals =
            resolved.targets.iter().filter_map(|target| target.resolved.as_ref()?.as_ref().err());
        report.faults.extend(refusals.map(|refusal| refusal.message.clone()));
        let forecast = self.sampler.forecast(&resolved).await;
        report.notes.extend(forecast.caveats);
        let reviewed = self.review(&resolved, reader, &mut report).await;

        let open = |name: &str| {
            profile.targets.iter().any(|target| {
                let TargetScope::NamespaceSelector(labels) = &target.scope else { return false };
                *target.name == *name && !namespaces.contains_key(labels)
            })
        };
        for (target, (name, figures)) in accepted(&resolved).zip(&forecast.targets) {
            let keys = target.all_informers().map(|informer| &informer.key);
            let costs = ForecastCosts::of(figures, reviewed.missing(keys));
            let costs = if open(name) { ForecastCosts::default() } else { costs };
            report.targets.push((Arc::clone(name), costs));
        }
        let mut total = forecast.total;
        if accepted(&resolved).any(|target| open(&target.name)) {
            total.certainty = PlanCertainty::LowerBound;
        }
        report.total = ForecastCosts::of(&total, reviewed.missing(keys(&resolved)));
        Ok(report)
    }

    /// Checks the permissions of `reader` with access reviews, and adds the missing permissions to
    /// the faults of `report`.
    async fn review(
        &self,
        profile: &ResolvedProfile,
        reader: &Subject,
        report: &mut ForecastReport,
    ) -> AccessReviewResults {
        let mut reviewed = AccessReviewResults::default();
        for key in keys(profile) {
            for verb in [Verb::List, Verb::Watch] {
                let need = need(key, verb);
                if reviewed.answers.contains_key(&need) {
                    continue;
                }
                if reviewed.answers.len() == REVIEWS {
                    report
                        .notes
                        .push(format!("only the first {REVIEWS} permissions were reviewed"));
                    return reviewed;
                }
                match is_permitted(&self.client, reader, attributes(key, verb)).await {
                    Ok(is_allowed) => {
                        reviewed.answers.insert(need, is_allowed);
                    }
                    Err(fault) => {
                        report.notes.push(format!(
                            "cannot review the permissions of {reader}: {fault}; apply the profile \
                             with mode: Plan, and kubewarm reviews them"
                        ));
                        return AccessReviewResults::default();
                    }
                }
            }
        }
        report.faults.extend(reviewed.lines(reader));
        reviewed
    }
}

/// Returns the keys of the informers of all targets, including the informers that watch Namespaces
/// for a namespace selector.
fn keys(profile: &ResolvedProfile) -> impl Iterator<Item = &InformerKey> {
    accepted(profile).flat_map(ResolvedTarget::all_informers).map(|informer| &informer.key)
}

fn need(key: &InformerKey, verb: Verb) -> RequiredAccess {
    let resource = key.resource.group_resource().clone();
    (resource, key.scope.clone(), key.labels.clone(), key.fields.clone(), verb)
}

/// Results of the access reviews of one profile's permissions, at most [`REVIEWS`].
#[derive(Debug, Default)]
struct AccessReviewResults {
    answers: BTreeMap<RequiredAccess, bool>,
}

impl AccessReviewResults {
    /// Returns the number of permissions that the informers `keys` lack, counted per verb, resource
    /// and namespace. If access reviews are missing for some informers, the number is a lower bound
    /// or unknown.
    fn missing<'a>(&self, keys: impl Iterator<Item = &'a InformerKey>) -> CostAmount {
        let mut missing = BTreeSet::new();
        let mut is_all = true;
        for key in keys {
            for verb in [Verb::List, Verb::Watch] {
                match self.answers.get(&need(key, verb)) {
                    Some(true) => {}
                    Some(false) => {
                        let resource = key.resource.group_resource();
                        missing.insert((resource, key.scope.namespace(), verb));
                    }
                    None => is_all = false,
                }
            }
        }
        let count = u64::try_from(missing.len()).unwrap_or(u64::MAX);
        match (is_all, self.answers.is_empty()) {
            (true, _) => Some((count, PlanCertainty::Estimate)),
            (false, true) => None,
            (false, false) => Some((count, PlanCertainty::LowerBound)),
        }
    }

    /// Returns a line for each resource and namespace on which `reader` lacks permissions, at most
    /// 16 lines.
    fn lines(&self, reader: &Subject) -> Vec<String> {
        let mut verbs = BTreeMap::<_, BTreeSet<&str>>::new();
        for ((resource, scope, _, _, verb), _) in
            self.answers.iter().filter(|(_, is_allowed)| !**is_allowed)
        {
            verbs.entry((resource, scope.namespace())).or_default().insert(verb.as_str());
        }
        let rest = verbs.len().saturating_sub(MAX_NAMED);
        let line =
            |((resource, namespace), verbs): (&(&GroupResource, Option<&str>), &BTreeSet<&str>)| {
                let verbs: Vec<_> = verbs.iter().copied().collect();
                let (verbs, place) = (verbs.join(", "), place(*namespace));
                format!("{reader} may not {verbs} {resource} in {place}")
            };
        let mut lines: Vec<_> = verbs.iter().take(MAX_NAMED).map(line).collect();
        if rest > 0 {
            lines.push(format!("and {rest} more; kubewarm rbac prints what to grant"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{ManagedFieldsPolicy, Projection, Resource};

    fn pods(namespace: &str) -> InformerKey {
        InformerKey::all(
            Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap(),
            InformerScope::Namespace(namespace.into()),
            Projection::Full(ManagedFieldsPolicy::Drop),
        )
    }

    #[test]
    fn incomplete_reviews_give_a_lower_bound() {
        let (a, b) = (pods("a"), pods("b"));
        let mut reviewed = AccessReviewResults::default();
        assert_eq!(reviewed.missing([&a].into_iter()), None);
        reviewed.answers.insert(need(&a, Verb::List), true);
        reviewed.answers.insert(need(&a, Verb::Watch), false);
        assert_eq!(reviewed.missing([&a].into_iter()), Some((1, PlanCertainty::Estimate)));
        assert_eq!(reviewed.missing([&a, &b].into_iter()), Some((1, PlanCertainty::LowerBound)));
        let reader = Subject::User("jane".into());
        assert_eq!(reviewed.lines(&reader), ["jane may not watch pods in namespace a"]);
    }
}
