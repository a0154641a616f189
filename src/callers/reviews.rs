//! What the API server is asked about callers.

use crate::{
    cluster::{Action, Presented, Reviewer, User, Verdict, Who},
    model::Fault,
};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Asks the API server about callers. A port: one implementation sends requests.
pub trait Reviews: Send + Sync + 'static {
    /// Whether the `Impersonate-*` headers of callers are passed on.
    fn passes_impersonation_on(&self) -> bool;

    /// Whose credentials these are.
    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>>;

    /// Whether the user may do this, whose token this is; without one it has shown a certificate.
    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        user: Arc<User>,
        action: Action,
    ) -> BoxFuture<'static, Result<Verdict, Fault>>;
}

impl Reviews for Reviewer {
    fn passes_impersonation_on(&self) -> bool {
        Self::passes_impersonation_on(self)
    }

    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.who(&presented).await })
    }

    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        user: Arc<User>,
        action: Action,
    ) -> BoxFuture<'static, Result<Verdict, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.may(presented.as_deref(), &user, &action).await })
    }
}
