//! Writes statuses to the API server.

use super::sentence::bounded;
use http::StatusCode;
use kube::{Client, Resource as _, core::PartialObjectMeta};
use kubewarm_api::{
    model::{ProfileRef, RequestFault},
    v1alpha1::{CacheProfile, CacheProfileStatus, FIELD_MANAGER, RulesCompleteness},
};
use kubewarm_client::{ApiClient, ApiResponse};
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// Timeout of one status write, including the client's own retries.
const TIME: Duration = Duration::from_secs(30);
/// Maximum size of a status, in bytes of JSON. etcd accepts objects up to 1.5 MiB, so 1 MiB remains
/// for the spec and the managed fields. kubewarm also drops a larger status that it reads: only
/// another client can have written it.
pub(crate) const MAX_STATUS: usize = 512 << 10;
/// Maximum size of a target's message in a status that is otherwise too large, in bytes. The
/// messages of 128 targets then fit into 128 KiB.
const SHORT_MESSAGE: usize = 256;
/// Maximum size of the response to a status write, in bytes of JSON. The response contains the
/// complete profile, including managed fields, which repeat the name of each field.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile. A profile that was created again under the same name has
    /// another UID and needs its own status.
    pub uid: Arc<str>,
    pub status: Arc<CacheProfileStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusWriteOutcome {
    Written,
    /// The API server returned 404, or the name now belongs to a profile with another UID.
    NotFound,
    /// The status write failed with any error except 404. The reporter retries the write with
    /// backoff.
    Failed,
}

#[derive(Clone, Debug)]
pub struct StatusWriter {
    client: ApiClient,
}

impl StatusWriter {
    pub fn new(client: &Client) -> Self {
        Self { client: ApiClient::new(client) }
    }

    async fn apply(&self, write: &StatusWrite) -> Result<ApiResponse, RequestFault> {
        let ProfileRef { namespace, name } = &write.profile;
        let collection = CacheProfile::url_path(&(), Some(namespace));
        let path = format!("{collection}/{name}/status?fieldManager={FIELD_MANAGER}&force=true");
        let request = self.client.apply(path, body(write).to_string());
        request.within(TIME).at_most(MAX_ANSWER).send().await
    }

    /// Writes the status of a profile. If a user deleted the profile and created it again under the
    /// same name, the write can reach the new profile, because the API server does not compare
    /// UIDs. The result is then [`StatusWriteOutcome::NotFound`].
    pub async fn write(&self, write: &StatusWrite) -> StatusWriteOutcome {
        let profile = &write.profile;
        let fault = match self.apply(write).await {
            // The API server ignores a UID in a status patch (seen with Kubernetes 1.36), so the
            // writer compares the UID in the response. If the status reached a profile with another
            // UID, kubewarm later replaces it.
            Ok(answer) if answer.status.is_success() => {
                let applied = answer.json::<PartialObjectMeta<CacheProfile>>();
                let uid = applied.ok().and_then(|applied| applied.metadata.uid);
                let is_same = uid.is_none_or(|uid| *uid == *write.uid);
                return if is_same {
                    StatusWriteOutcome::Written
                } else {
                    StatusWriteOutcome::NotFound
                };
            }
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
                tracing::debug!(%profile, "status not written, the profile is gone");
                return StatusWriteOutcome::NotFound;
            }
            Ok(answer) => answer.fault(),
            Err(fault) => fault,
        };
        tracing::warn!(%profile, error = %fault, "status not written, trying again");
        StatusWriteOutcome::Failed
    }
}

fn body(write: &StatusWrite) -> Value {
    json!({
        "apiVersion": CacheProfile::api_version(&()),
        "kind": CacheProfile::kind(&()),
        "metadata": {
            "namespace": &*write.profile.namespace,
            "name": &*write.profile.name,
        },
        "status": &*shrink_to_limit(&write.status),
    })
}

/// Returns `status`. If `status` exceeds [`MAX_STATUS`], returns a copy without RBAC manifests,
/// missing permissions or problems, removed in this order until the copy fits. `kubectl warm` can
/// print the removed fields. If the copy is still too large, shortens the messages of targets.
pub(super) fn shrink_to_limit(status: &CacheProfileStatus) -> Cow<'_, CacheProfileStatus> {
    let size = |status: &CacheProfileStatus| {
        serde_json::to_vec(status).map_or(usize::MAX, |json| json.len())
    };
    if size(status) <= MAX_STATUS {
        return Cow::Borrowed(status);
    }
    let mut smaller = status.clone();
    for leave_out in [leave_out_manifests, leave_out_missing, leave_out_problems, shorten_messages]
    {
        leave_out(&mut smaller);
        if size(&smaller) <= MAX_STATUS {
            break;
        }
    }
    Cow::Owned(smaller)
}

fn leave_out_manifests(status: &mut CacheProfileStatus) {
    let Some(access) = &mut status.access else { return };
    (access.manifests, access.manifests_elevated) = (None, None);
    if !std::mem::take(&mut access.excess).is_empty() {
        access.excess_completeness = Some(RulesCompleteness::Incomplete);
    }
}

fn leave_out_missing(status: &mut CacheProfileStatus) {
    status.access.iter_mut().for_each(|access| access.missing.clear());
}

fn leave_out_problems(status: &mut CacheProfileStatus) {
    status.targets.iter_mut().for_each(|target| target.problems.clear());
}

fn shorten_messages(status: &mut CacheProfileStatus) {
    let conditions = status.targets.iter_mut().flat_map(|target| &mut target.conditions);
    conditions.for_each(|condition| {
        condition.message = bounded(std::mem::take(&mut condition.message), SHORT_MESSAGE);
    });
}
