//! A question to the API server that others wait for: sent on threads whose connections outlive theirs.

use futures::{FutureExt as _, future::BoxFuture};
use kubewarm_api::model::Fault;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Has `asking` go on on `runtime`, for as long as somebody waits for what comes of it.
///
/// # Errors
///
/// Those of `asking`; an internal fault if it panics.
pub fn ask_on<T: Send + 'static>(
    runtime: &Handle,
    asking: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> BoxFuture<'static, Result<T, Fault>> {
    let asking = AbortOnDropHandle::new(runtime.spawn(asking));
    async move { asking.await.unwrap_or_else(|_| Err(Fault::broke_off())) }.boxed()
}
