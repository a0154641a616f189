//! Validation of a `CacheProfile`: all checks that need no access to a cluster.

use super::{
    AccessLossPolicy, Identity, ProfileLimits, ProfileMode, ProfileRef, ReadPolicy,
    ValidatedTarget, ValidationError,
    resource::{is_dns_label, is_dns_subdomain},
    target,
    validation_error::{counted, distinct, in_range},
};
use crate::v1alpha1::{self, MAX_TARGETS};
use kube::api::ObjectMeta;
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// A `CacheProfile` whose fields are all valid. Code outside of tests creates it only with
/// [`ValidatedProfile::parse`].
///
/// Code that uses this type does not check the fields again. Only the cluster shows whether the API
/// server serves a resource, the scope of the resource and its selectable fields. The controller
/// checks these properties. The controller also compares the profile's namespace with the operator
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedProfile {
    /// Namespace and name of the profile.
    pub profile: ProfileRef,
    /// `metadata.uid`; empty for a profile from a file.
    pub uid: Arc<str>,
    /// `metadata.generation`; 0 for a profile from a file.
    pub generation: i64,
    /// Value of `spec.serviceAccountName`, a ServiceAccount in the profile's namespace. `None`:
    /// kubewarm reads with the operator's identity.
    pub service_account: Option<Arc<str>>,
    /// Value of `spec.mode`.
    pub mode: ProfileMode,
    /// Entries of `spec.targets`, 1 to 128, in the order of the spec.
    pub targets: Vec<ValidatedTarget>,
    /// Value of `spec.warmup.deadlineSeconds`, 1 s to 1 day. `None`: no deadline.
    pub warmup_deadline: Option<Duration>,
    /// Value of `spec.warmup.maxConcurrentLists`, 1 to 64.
    pub max_concurrent_lists: usize,
    /// Value of `spec.freshness.maxStalenessSeconds`, 10 s to 1 hour.
    pub max_staleness: Duration,
    /// Value of `spec.freshness.consistencyCheckPeriodSeconds`, 1 s to 1 day. `None`: no
    /// consistency checks.
    pub consistency_check_period: Option<Duration>,
    /// Value of `spec.reads.onAccessLost`.
    pub on_access_lost: AccessLossPolicy,
    /// Values of `spec.reads.consistency` and `spec.reads.coldReadTimeoutSeconds`.
    pub reads: ReadPolicy,
    /// Value of `spec.limits`.
    pub limits: ProfileLimits,
}

impl ValidatedProfile {
    /// Checks every field of `profile`, and repeats the checks of the CRD's schema: no API server
    /// has checked a profile in a file, and an older CRD can have had another schema.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] for the first invalid field.
    pub fn parse(profile: &v1alpha1::CacheProfile) -> Result<Self, ValidationError> {
        let v1alpha1::CacheProfileSpec { targets, warmup, freshness, reads, .. } = &profile.spec;
        counted("spec.targets", targets.len(), 1..=MAX_TARGETS)?;
        distinct(
            "spec.targets",
            ".name",
            targets.iter().map(|target| (&target.name, &*target.name)),
        )?;
        let scope = target::scope("spec.scope", &profile.spec.scope)?;
        let parse =
            |(at, target)| ValidatedTarget::parse(&format!("spec.targets[{at}]"), target, &scope);
        let account = profile.spec.service_account_name.as_deref();
        let (deadline, lists) = (warmup.deadline_seconds, warmup.max_concurrent_lists);
        let check_period = freshness.consistency_check_period_seconds.map(|period| {
            seconds("spec.freshness.consistencyCheckPeriodSeconds", period, 1..=86_400)
        });
        Ok(Self {
            profile: profile_ref(&profile.metadata)?,
            uid: profile.metadata.uid.as_deref().unwrap_or_default().into(),
            generation: profile.metadata.generation.unwrap_or_default(),
            service_account: account
                .map(|name| {
                    named("spec.serviceAccountName", name, is_dns_subdomain, "cache-reader")
                })
                .transpose()?,
            mode: profile.spec.mode,
            targets: targets.iter().enumerate().map(parse).collect::<Result<_, _>>()?,
            warmup_deadline: deadline
                .map(|deadline| seconds("spec.warmup.deadlineSeconds", deadline, 1..=86_400))
                .transpose()?,
            max_concurrent_lists: in_range("spec.warmup.maxConcurrentLists", lists, 1..=64)?,
            max_staleness: seconds(
                "spec.freshness.maxStalenessSeconds",
                freshness.max_staleness_seconds,
                10..=3600,
            )?,
            consistency_check_period: check_period.transpose()?,
            on_access_lost: reads.on_access_lost,
            reads: read_terms(reads)?,
            limits: ProfileLimits::parse(profile.spec.limits.as_ref())?,
        })
    }

    /// Returns the identity with which kubewarm reads from the API server for this profile.
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

fn read_terms(reads: &v1alpha1::ReadSettings) -> Result<ReadPolicy, ValidationError> {
    let timeout = reads.cold_read_timeout_seconds;
    Ok(ReadPolicy {
        consistency: reads.consistency,
        cold_read_timeout: seconds("spec.reads.coldReadTimeoutSeconds", timeout, 0..=60)?,
    })
}

fn profile_ref(meta: &ObjectMeta) -> Result<ProfileRef, ValidationError> {
    let present = |path: &str, value: &Option<String>, expected| {
        let value = value.clone().filter(|name| !name.is_empty());
        value
            .ok_or_else(|| ValidationError::new(format!("{path} is missing; set it to {expected}")))
    };
    let name = present("metadata.name", &meta.name, "the profile's name")?;
    let home = "the namespace that the profile is to live in";
    let namespace = present("metadata.namespace", &meta.namespace, home)?;
    let name = named("metadata.name", &name, is_dns_subdomain, "checkout")?;
    let namespace = named("metadata.namespace", &namespace, is_dns_label, "team-a")?;
    Ok(ProfileRef { namespace, name })
}

/// Checks the object name at the JSON path `path` with `is_valid`. The error message suggests
/// `example` as a valid name.
fn named(
    path: &str,
    name: &str,
    is_valid: fn(&str) -> bool,
    example: &str,
) -> Result<Arc<str>, ValidationError> {
    if is_valid(name) {
        return Ok(name.into());
    }
    Err(ValidationError::malformed(path, format!("{name:?} is not a name such as {example:?}")))
}

fn seconds(
    path: &str,
    number: i32,
    range: RangeInclusive<i32>,
) -> Result<Duration, ValidationError> {
    in_range(path, number, range).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        FieldPath, IndexDefinition, ManagedFieldsPolicy, Projection, ReadConsistency,
        SecretDataPolicy, TargetRequirement, TargetScope,
    };

    fn parse(spec: &str) -> Result<ValidatedProfile, ValidationError> {
        let head = "apiVersion: kubewarm.io/v1alpha1\nkind: CacheProfile\n";
        let meta = "metadata: {name: web, namespace: shop, uid: u-1, generation: 3}\n";
        let profile: v1alpha1::CacheProfile =
            serde_saphyr::from_str(&format!("{head}{meta}spec: {spec}\n")).unwrap();
        ValidatedProfile::parse(&profile)
    }

    #[test]
    fn absent_fields_have_their_defaults() {
        let profile = parse("{targets: [{name: pods, resource: pods}]}").unwrap();
        assert_eq!(profile.profile.to_string(), "shop/web");
        assert_eq!((&*profile.uid, profile.generation), ("u-1", 3));
        assert_eq!(profile.mode, ProfileMode::Active);
        assert_eq!(profile.max_staleness, Duration::from_mins(2));
        assert_eq!(profile.on_access_lost, AccessLossPolicy::Reject);
        assert_eq!((profile.warmup_deadline, profile.max_concurrent_lists), (None, 4));
        let [target] = profile.targets.as_slice() else { panic!("{profile:?}") };
        assert_eq!((&*target.name, &*target.resource.to_string()), ("pods", "pods"));
        assert_eq!((target.priority, target.requirement), (500, TargetRequirement::Required));
        assert_eq!(target.scope, TargetScope::OwnNamespace);
        assert_eq!(target.projection, Projection::Full(ManagedFieldsPolicy::Keep));
        assert!(target.labels.is_empty() && target.fields.is_empty() && target.indexes.is_empty());
    }

    #[test]
    fn every_field_of_the_spec_is_parsed() {
        let profile = parse(
            "{mode: Paused, warmup: {deadlineSeconds: 60, maxConcurrentLists: 8},
              freshness: {maxStalenessSeconds: 30},
              reads: {onAccessLost: ServeStale}, targets: [{name: a, priority: 1000,
              requirement: Optional, secretData: Allow,
              group: apps, version: v1, resource: deployments,
              scope: {type: Namespaces, namespaces: [b, a]},
              labelSelector: {matchLabels: {app: web},
                matchExpressions: [{key: tier, operator: Exists}]},
              fieldSelector: status.phase!=Done,
              projection: {type: Metadata, managedFields: Keep},
              indexes: [{name: owner, fieldPath: 'metadata.ownerReferences[*].uid'}]}]}",
        )
        .unwrap();
        assert_eq!(profile.mode, ProfileMode::Paused);
        assert_eq!(profile.warmup_deadline, Some(Duration::from_mins(1)));
        assert_eq!(profile.max_staleness, Duration::from_secs(30));
        assert_eq!(profile.on_access_lost, AccessLossPolicy::ServeStale);
        let [target] = profile.targets.as_slice() else { panic!("{profile:?}") };
        assert_eq!(target.resource.to_string(), "deployments.apps");
        assert_eq!(target.version.as_deref(), Some("v1"));
        let names = ["a", "b"].map(Arc::from).into();
        assert_eq!(target.scope, TargetScope::Namespaces(names));
        assert_eq!(target.labels.to_string(), "app in (web),tier");
        assert_eq!(target.fields.to_string(), "status.phase!=Done");
        assert_eq!(target.projection, Projection::Metadata(ManagedFieldsPolicy::Keep));
        assert_eq!(target.secret_data, SecretDataPolicy::Deny);
        let path = FieldPath::parse("metadata.ownerReferences[*].uid").unwrap();
        assert_eq!(*target.indexes, [IndexDefinition { name: "owner".into(), path }]);
    }

    #[test]
    fn the_managed_fields_of_secrets_are_kept_only_with_secret_data_allow() {
        let projection = |target: &str| {
            let profile = parse(&format!("{{targets: [{{name: a, {target}}}]}}")).unwrap();
            profile.targets[0].projection
        };
        let (keep, drop) = (ManagedFieldsPolicy::Keep, ManagedFieldsPolicy::Drop);
        for fields in ["", ", managedFields: Keep", ", managedFields: Drop"] {
            let target = format!("resource: secrets, projection: {{type: Metadata{fields}}}");
            assert_eq!(projection(&target), Projection::Metadata(drop), "{target}");
        }
        let metadata = "resource: secrets, secretData: Allow, projection: {type: Metadata}";
        assert_eq!(projection(metadata), Projection::Metadata(keep));
        assert_eq!(projection("resource: secrets, secretData: Allow"), Projection::Full(keep));
        let other = "group: x.io, resource: secrets, projection: {type: Metadata}";
        assert_eq!(projection(other), Projection::Metadata(keep));
    }

    #[test]
    fn a_target_without_a_scope_has_the_scope_of_the_spec() {
        let profile = parse(
            "{scope: {type: Namespaces, namespaces: [b, a]},
              targets: [{name: pods, resource: pods},
                {name: nodes, resource: nodes, scope: {type: Cluster}}]}",
        )
        .unwrap();
        let scopes: Vec<_> = profile.targets.iter().map(|target| target.scope.clone()).collect();
        let namespaces = TargetScope::Namespaces(["a", "b"].map(Arc::from).into());
        assert_eq!(scopes, [namespaces, TargetScope::Cluster]);

        let error = parse(
            "{scope: {type: Namespaces}, targets: [{name: nodes, resource: nodes,
              scope: {type: Cluster}}]}",
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.scope.namespaces is required for, and only for, type Namespaces; name 1 to 64 \
             namespaces"
        );
    }

    #[test]
    fn a_profile_without_a_check_period_has_no_consistency_checks() {
        let profile = |freshness: &str| {
            parse(&format!("{{freshness: {{{freshness}}}, targets: [{{name: a, resource: a}}]}}"))
        };
        let period = |seconds| profile(&format!("consistencyCheckPeriodSeconds: {seconds}"));
        assert_eq!(profile("").unwrap().consistency_check_period, None);
        let five_minutes = Some(Duration::from_mins(5));
        assert_eq!(period(300).unwrap().consistency_check_period, five_minutes);
        for seconds in [0, 86_401] {
            let error = period(seconds).unwrap_err().to_string();
            assert!(error.starts_with("spec.freshness.consistencyCheckPeriodSeconds"), "{error}");
        }
    }

    #[test]
    fn read_settings_are_parsed() {
        let profile =
            |reads| parse(&format!("{{reads: {reads}, targets: [{{name: a, resource: a}}]}}"));
        let terms = |reads| profile(reads).unwrap().reads;
        let policy = |consistency, seconds| ReadPolicy {
            consistency,
            cold_read_timeout: Duration::from_secs(seconds),
        };
        assert_eq!(terms("{}"), policy(ReadConsistency::Bounded, 5));
        assert_eq!(
            terms("{consistency: Strict, coldReadTimeoutSeconds: 60}"),
            policy(ReadConsistency::Strict, 60)
        );
        let reject = "{consistency: Eventual, coldReadTimeoutSeconds: 0}";
        assert_eq!(terms(reject), policy(ReadConsistency::Eventual, 0));
        let error = profile("{coldReadTimeoutSeconds: 61}").unwrap_err().to_string();
        assert!(error.starts_with("spec.reads.coldReadTimeoutSeconds"), "{error}");
    }

    #[test]
    fn a_missing_name_or_namespace_is_an_error_with_its_path() {
        let mut profile = v1alpha1::CacheProfile::new(
            "web",
            serde_json::from_value(serde_json::json!({
                "targets": [{ "name": "a", "resource": "pods" }]
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
