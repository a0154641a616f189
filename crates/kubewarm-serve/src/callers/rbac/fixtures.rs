//! Rules for tests, which no informer follows.

use super::{ClusterRules, RbacAuthorizer, cluster_rules::RulesEffect};
use crate::callers::{
    AuthorizationMode, CallerGate,
    fixtures::{FakeReviewCounts, FakeReviewFn, changing_counted},
};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kubewarm_rbac::RbacKind;
use parking_lot::Mutex;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The rules of a cluster in which the user `jane` may get, list and watch pods in the namespace
/// `shop`.
pub(crate) struct FakeRules {
    pub(crate) rules: Arc<ClusterRules>,
    /// The age of the rules' proof. `None`: the rules are incomplete.
    pub(crate) age: Arc<Mutex<Option<Duration>>>,
}

/// A `CallerGate` that decides by rules, and what controls its decisions.
pub(crate) struct RuledCallers {
    pub(crate) callers: Arc<CallerGate>,
    pub(crate) rules: FakeRules,
    pub(crate) say: Arc<Mutex<FakeReviewFn>>,
    pub(crate) count: FakeReviewCounts,
}

impl FakeRules {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let age = Arc::new(Mutex::new(Some(Duration::ZERO)));
        let fake = Self { rules: ClusterRules::new(max_bytes), age };
        let role: Role = serde_json::from_value(json!({
            "metadata": {"name": "reader", "namespace": "shop"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
        }))
        .unwrap();
        fake.rules.update(|rules| {
            rules.upsert(&role);
            RulesEffect::Changed
        });
        fake.grant();
        fake
    }

    pub(crate) fn grant(&self) {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "jane", "namespace": "shop"},
            "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "name": "jane"}],
        }))
        .unwrap();
        self.rules.update(|rules| {
            rules.upsert(&binding);
            RulesEffect::Changed
        });
    }

    pub(crate) fn revoke(&self) {
        self.rules.update(|rules| {
            rules.remove(RbacKind::RoleBinding, "shop", "jane");
            RulesEffect::Changed
        });
    }

    /// Changes a rule that concerns nobody.
    pub(crate) fn change(&self) {
        self.rules.update(|rules| {
            rules.upsert(&ClusterRoleBinding::default());
            RulesEffect::Changed
        });
    }

    pub(crate) fn authorizer(&self) -> Arc<RbacAuthorizer> {
        let age = Arc::clone(&self.age);
        let proof = move || age.lock().and_then(|age| Instant::now().checked_sub(age));
        RbacAuthorizer::new(Arc::clone(&self.rules), Box::new(proof))
    }
}

/// Creates a `CallerGate` that decides by [`FakeRules`].
pub(crate) fn by_rules(say: FakeReviewFn) -> RuledCallers {
    let (callers, say, count) = changing_counted(say);
    let rules = FakeRules::new(1 << 20);
    let callers = callers.with_authorization(AuthorizationMode::Rbac(rules.authorizer()));
    RuledCallers { callers: Arc::new(callers), rules, say, count }
}
