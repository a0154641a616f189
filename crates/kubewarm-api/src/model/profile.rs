//! A profile whose every field has been checked.

use super::{
    Consistency, Identity, Invalid, Limits, ListStrategy, Mode, OnAccessLost, ProfileRef,
    ReadTerms, Target,
    invalid::{counted, in_range},
    resource::{is_dns_label, is_dns_subdomain},
};
use crate::v1alpha1;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A `CacheProfile` whose every field has been checked.
///
/// The only way to get one is [`ValidatedProfile::parse`]; code past that point never looks at the
/// raw spec again and has no validation errors to report. What depends on the cluster (whether a
/// kind is served, its scope, which fields it selects by) or on the operator (its namespace) is not
/// known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedProfile {
    /// Which profile.
    pub profile: ProfileRef,
    /// `metadata.uid`; empty when read from a file.
    pub uid: Arc<str>,
    /// `metadata.generation`; 0 when read from a file.
    pub generation: i64,
    /// `spec.serviceAccountName`: a ServiceAccount in the profile's namespace.
    pub service_account: Option<Arc<str>>,
    /// `spec.mode`.
    pub mode: Mode,
    /// `spec.targets`, 1 to 32, in the order of the spec.
    pub targets: Vec<Target>,
    /// `spec.warmup`.
    pub warmup: Warmup,
    /// `spec.freshness.maxStalenessSeconds`; 10 s to an hour.
    pub max_staleness: Duration,
    /// `spec.freshness.verifyIntervalSeconds`, up to a day; `None` where it is 0.
    pub verify_interval: Option<Duration>,
    /// `spec.serving.onAccessLost`.
    pub on_access_lost: OnAccessLost,
    /// `spec.serving.consistency`, `coldReads` and `coldReadWaitSeconds`.
    pub reads: ReadTerms,
    /// `spec.limits`.
    pub limits: Limits,
}

/// How the first state is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmup {
    /// `targetSeconds`: 1 s to a day.
    pub objective: Option<Duration>,
    /// 1..=64.
    pub max_concurrent_lists: usize,
    /// 50..=5000.
    pub page_size: u32,
    /// How a list is fetched.
    pub strategy: ListStrategy,
    /// 5 s to 10 minutes.
    pub streaming_deadline: Duration,
}

impl ValidatedProfile {
    /// Checks `profile`: what the CRD's schema and rules check, because files and older servers
    /// have not been through them, and what they cannot see.
    ///
    /// # Errors
    ///
    /// The first [`Invalid`] field, in the order of the spec.
    pub fn parse(profile: &v1alpha1::CacheProfile) -> Result<Self, Invalid> {
        let spec = &profile.spec;
        let targets = &spec.targets;
        counted("spec.targets", targets.len(), 1, 32)?;
        let mut names = BTreeMap::<&str, usize>::new();
        for (at, target) in targets.iter().enumerate() {
            if let Some(earlier) = names.insert(&target.name, at) {
                return Err(Invalid::Duplicate {
                    path: format!("spec.targets[{at}].name"),
                    value: target.name.clone(),
                    earlier: format!("spec.targets[{earlier}].name"),
                });
            }
        }
        let parse = |(at, target)| Target::parse(&format!("spec.targets[{at}]"), target);
        let staleness = in_range(
            "spec.freshness.maxStalenessSeconds",
            spec.freshness.max_staleness_seconds,
            10,
            3600,
        );
        Ok(Self {
            profile: identity(profile)?,
            uid: profile.metadata.uid.as_deref().unwrap_or_default().into(),
            generation: profile.metadata.generation.unwrap_or_default(),
            service_account: spec
                .service_account_name
                .as_deref()
                .map(service_account)
                .transpose()?,
            mode: match spec.mode {
                v1alpha1::Mode::Active => Mode::Active,
                v1alpha1::Mode::Plan => Mode::Plan,
                v1alpha1::Mode::Paused => Mode::Paused,
            },
            targets: targets.iter().enumerate().map(parse).collect::<Result<_, _>>()?,
            warmup: Warmup::parse(&spec.warmup)?,
            max_staleness: seconds(staleness?),
            verify_interval: verify_interval(&spec.freshness)?,
            on_access_lost: spec.serving.on_access_lost,
            reads: read_terms(&spec.serving)?,
            limits: Limits::parse(spec.limits.as_ref())?,
        })
    }
}

impl ValidatedProfile {
    /// Who reads its cells.
    #[must_use]
    pub fn identity(&self) -> Identity {
        match &self.service_account {
            None => Identity::Operator,
            Some(name) => Identity::ServiceAccount {
                namespace: Arc::clone(&self.profile.namespace),
                name: Arc::clone(name),
            },
        }
    }
}

fn service_account(name: &str) -> Result<Arc<str>, Invalid> {
    if is_dns_subdomain(name) {
        return Ok(name.into());
    }
    let problem = format!("{name:?} is not a name such as \"cache-reader\"");
    Err(Invalid::malformed("spec.serviceAccountName", &problem))
}

impl Warmup {
    fn parse(warmup: &v1alpha1::Warmup) -> Result<Self, Invalid> {
        let objective = warmup
            .target_seconds
            .map(|found| in_range("spec.warmup.targetSeconds", found, 1, 86_400))
            .transpose()?;
        let lists = warmup.max_concurrent_lists;
        let lists = in_range("spec.warmup.maxConcurrentLists", lists, 1, 64)?;
        let deadline = warmup.streaming_deadline_seconds;
        Ok(Self {
            objective: objective.map(seconds),
            max_concurrent_lists: usize::try_from(lists).unwrap_or(1),
            page_size: in_range("spec.warmup.pageSize", warmup.page_size, 50, 5000)?,
            strategy: match warmup.list_strategy {
                v1alpha1::ListStrategy::Auto => ListStrategy::Auto,
                v1alpha1::ListStrategy::Whole => ListStrategy::Whole,
                v1alpha1::ListStrategy::Streaming => ListStrategy::Streaming,
                v1alpha1::ListStrategy::Paged => ListStrategy::Paged,
            },
            streaming_deadline: seconds(in_range(
                "spec.warmup.streamingDeadlineSeconds",
                deadline,
                5,
                600,
            )?),
        })
    }
}

fn verify_interval(freshness: &v1alpha1::Freshness) -> Result<Option<Duration>, Invalid> {
    let path = "spec.freshness.verifyIntervalSeconds";
    let interval = in_range(path, freshness.verify_interval_seconds, 0, 86_400)?;
    Ok((interval > 0).then(|| seconds(interval)))
}

fn read_terms(serving: &v1alpha1::Serving) -> Result<ReadTerms, Invalid> {
    let wait = serving.cold_read_wait_seconds;
    let wait = seconds(in_range("spec.serving.coldReadWaitSeconds", wait, 0, 60)?);
    Ok(ReadTerms {
        consistency: match serving.consistency {
            v1alpha1::Consistency::Bounded => Consistency::Bounded,
            v1alpha1::Consistency::Strict => Consistency::Strict,
            v1alpha1::Consistency::Eventual => Consistency::Eventual,
        },
        cold_wait: match serving.cold_reads {
            v1alpha1::ColdReads::Wait => wait,
            v1alpha1::ColdReads::Reject => Duration::ZERO,
        },
    })
}

fn identity(profile: &v1alpha1::CacheProfile) -> Result<ProfileRef, Invalid> {
    let missing = |path: &str, expected| Invalid::Missing { path: path.to_owned(), expected };
    let meta = &profile.metadata;
    let name = meta.name.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| missing("metadata.name", "the profile's name"))?;
    let namespace = meta.namespace.as_deref().filter(|name| !name.is_empty());
    let namespace = namespace.ok_or_else(|| {
        missing("metadata.namespace", "the namespace that the profile is to live in")
    })?;
    if !is_dns_subdomain(name) {
        let problem = format!("{name:?} is not a name such as \"checkout\"");
        return Err(Invalid::malformed("metadata.name", &problem));
    }
    if !is_dns_label(namespace) {
        let problem = format!("{namespace:?} is not a name such as \"team-a\"");
        return Err(Invalid::malformed("metadata.namespace", &problem));
    }
    Ok(ProfileRef { namespace: namespace.into(), name: name.into() })
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        FieldPath, Index, IndexBy, ManagedFields, Projection, Requirement, SensitiveData,
        TargetScope,
    };

    fn parse(spec: &str) -> Result<ValidatedProfile, Invalid> {
        let head = "apiVersion: kubewarm.io/v1alpha1\nkind: CacheProfile\n";
        let meta = "metadata: {name: web, namespace: shop, uid: u-1, generation: 3}\n";
        let profile: v1alpha1::CacheProfile =
            serde_saphyr::from_str(&format!("{head}{meta}spec: {spec}\n")).unwrap();
        ValidatedProfile::parse(&profile)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let profile = parse("{targets: [{name: pods, resource: {resource: pods}}]}").unwrap();
        assert_eq!(profile.profile.to_string(), "shop/web");
        assert_eq!((&*profile.uid, profile.generation), ("u-1", 3));
        assert_eq!(profile.mode, Mode::Active);
        assert_eq!(profile.max_staleness, Duration::from_mins(2));
        assert_eq!(profile.on_access_lost, OnAccessLost::Fence);
        let warmup = Warmup {
            objective: None,
            max_concurrent_lists: 4,
            page_size: 500,
            strategy: ListStrategy::Auto,
            streaming_deadline: Duration::from_secs(30),
        };
        assert_eq!(profile.warmup, warmup);
        let [target] = profile.targets.as_slice() else { panic!("{profile:?}") };
        assert_eq!((&*target.name, &*target.of.to_string()), ("pods", "pods"));
        assert_eq!((target.priority, target.requirement), (500, Requirement::Required));
        assert_eq!(target.scope, TargetScope::OwnNamespace);
        assert_eq!(target.projection, Projection::Full(ManagedFields::Drop));
        assert!(target.labels.is_empty() && target.fields.is_empty() && target.indexes.is_empty());
    }

    #[test]
    fn everything_that_is_written_arrives() {
        let profile = parse(
            "{mode: Paused, warmup: {targetSeconds: 60, maxConcurrentLists: 8, pageSize: 1000,
              listStrategy: Paged, streamingDeadlineSeconds: 10},
              freshness: {maxStalenessSeconds: 30},
              serving: {onAccessLost: ServeStale}, targets: [{name: a, priority: 1000,
              requirement: Optional, sensitiveData: Allow,
              resource: {group: apps, version: v1, resource: deployments},
              scope: {type: Namespaces, namespaces: [b, a]},
              labelSelector: {matchLabels: {app: web},
                matchExpressions: [{key: tier, operator: Exists}]},
              fieldSelectors: [{field: status.phase, operator: NotEquals, value: Done}],
              projection: {type: MetadataOnly, managedFields: Keep},
              indexes: [{name: owner, fieldPath: '.metadata.ownerReferences[*].uid'},
                {name: app, labelKey: app}]}]}",
        )
        .unwrap();
        assert_eq!(profile.mode, Mode::Paused);
        assert_eq!(profile.warmup.objective, Some(Duration::from_mins(1)));
        assert_eq!(profile.max_staleness, Duration::from_secs(30));
        assert_eq!(profile.on_access_lost, OnAccessLost::ServeStale);
        let [target] = profile.targets.as_slice() else { panic!("{profile:?}") };
        assert_eq!(target.of.to_string(), "deployments.apps");
        assert_eq!(target.version.as_deref(), Some("v1"));
        let names = ["a", "b"].map(Arc::from).into();
        assert_eq!(target.scope, TargetScope::Namespaces(names));
        assert_eq!(target.labels.to_string(), "app in (web),tier");
        assert_eq!(target.fields.to_string(), "status.phase!=Done");
        assert_eq!(target.projection, Projection::MetadataOnly(ManagedFields::Keep));
        // Of no meaning but for secrets, where it tells cells apart.
        assert_eq!(target.sensitive_data, SensitiveData::Deny);
        let path = FieldPath::parse(".metadata.ownerReferences[*].uid").unwrap();
        assert_eq!(
            *target.indexes,
            [
                Index { name: "owner".into(), by: IndexBy::Field(path) },
                Index { name: "app".into(), by: IndexBy::Label("app".into()) },
            ]
        );
    }

    #[test]
    fn tables_are_compared_if_that_is_asked_for() {
        let profile = |seconds: i32| {
            parse(&format!(
                "{{freshness: {{verifyIntervalSeconds: {seconds}}}, targets: [{{name: a, resource: {{resource: a}}}}]}}"
            ))
        };
        assert_eq!(profile(0).unwrap().verify_interval, None);
        assert_eq!(profile(300).unwrap().verify_interval, Some(Duration::from_mins(5)));
        let error = profile(86_401).unwrap_err().to_string();
        assert!(error.starts_with("spec.freshness.verifyIntervalSeconds"), "{error}");
    }

    #[test]
    fn what_reads_may_expect_is_read() {
        let profile = |serving| {
            parse(&format!(
                "{{serving: {serving}, targets: [{{name: a, resource: {{resource: a}}}}]}}"
            ))
        };
        let terms = |serving| profile(serving).unwrap().reads;
        let of = |consistency, seconds| ReadTerms {
            consistency,
            cold_wait: Duration::from_secs(seconds),
        };
        assert_eq!(terms("{}"), of(Consistency::Bounded, 5));
        assert_eq!(
            terms("{consistency: Strict, coldReadWaitSeconds: 60}"),
            of(Consistency::Strict, 60)
        );
        let reject = "{consistency: Eventual, coldReads: Reject, coldReadWaitSeconds: 9}";
        assert_eq!(terms(reject), of(Consistency::Eventual, 0));
        let error = profile("{coldReadWaitSeconds: 61}").unwrap_err().to_string();
        assert!(error.starts_with("spec.serving.coldReadWaitSeconds"), "{error}");
    }

    #[test]
    fn a_profile_without_a_name_or_a_namespace_says_so() {
        let mut profile = v1alpha1::CacheProfile::new(
            "web",
            serde_json::from_value(serde_json::json!({
                "targets": [{ "name": "a", "resource": { "resource": "pods" } }]
            }))
            .unwrap(),
        );
        let message = |profile: &v1alpha1::CacheProfile| {
            ValidatedProfile::parse(profile).unwrap_err().to_string()
        };
        assert_eq!(
            message(&profile),
            "metadata.namespace is missing; set it to the namespace that the profile is to live in"
        );
        profile.metadata.namespace = Some("a\nb".to_owned());
        assert!(message(&profile).starts_with(r#"metadata.namespace: "a\nb" is not a name"#));
    }
}
