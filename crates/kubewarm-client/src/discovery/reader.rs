//! Reads the discovery documents, and asks only for what changed.

use super::{
    document::{Document, GroupVersion, Raw, RawResourceList},
    served::{Freshness, Group, Groups, Served, Version},
};
use crate::api_client::ApiClient;
use http::{HeaderValue, StatusCode, header};
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Everything in one document; a server from before 1.30 answers with the older one.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// A cluster with 2,000 CRDs answers about 2 MiB.
const MAX_BYTES: usize = 32 << 20;
const TIME: Duration = Duration::from_secs(30);
/// Of one group version, where the server knows only the older documents.
const LEGACY_MAX_BYTES: usize = 4 << 20;
const LEGACY_TIME: Duration = Duration::from_secs(5);

/// The two documents as last read.
#[derive(Default)]
pub(super) struct Reader {
    core: Page,
    named: Page,
}

#[derive(Default)]
struct Page {
    /// What the server called `groups`; none for those that were read piece by piece.
    tag: Option<HeaderValue>,
    groups: Groups,
}

impl Reader {
    /// A new snapshot; of two documents either both count or none.
    pub(super) async fn poll(
        &mut self,
        client: &Client,
        known: Option<&Served>,
    ) -> Result<Served, Fault> {
        let (core, named) =
            tokio::join!(self.core.read(client, "/api"), self.named.read(client, "/apis"));
        core.and(named)?;
        Ok(Served::new(&self.core.groups, &self.named.groups, known))
    }
}

impl Page {
    async fn read(&mut self, client: &Client, path: &'static str) -> Result<(), Fault> {
        let get = || ApiClient::new(client).get(path).within(TIME).at_most(MAX_BYTES);
        let request = get().accept(AGGREGATED);
        let mut answer = match self.tag.clone() {
            Some(tag) => request.header(header::IF_NONE_MATCH, tag),
            None => request,
        }
        .send()
        .await?;
        if answer.status == StatusCode::NOT_MODIFIED && self.tag.is_some() {
            return Ok(());
        }
        if answer.status == StatusCode::NOT_ACCEPTABLE {
            answer = get().send().await?;
        }
        let document = answer.json::<Raw>()?.read().ok_or_else(|| {
            Fault::new(Reason::Malformed, format!("{path} is not a discovery document"))
        })?;
        (self.groups, self.tag) = match document {
            Document::Aggregated(groups) => (groups, answer.headers.get(header::ETAG).cloned()),
            Document::Index(list) => (read_each(client, list).await?, None),
        };
        Ok(())
    }
}

/// The older way: one request for each group version.
async fn read_each(client: &Client, list: Vec<GroupVersion>) -> Result<Groups, Fault> {
    let mut groups = Groups::new();
    for GroupVersion { group, version } in list {
        let path = match &*group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let request = ApiClient::new(client).get(path);
        let answer = request.within(LEGACY_TIME).at_most(LEGACY_MAX_BYTES).send().await?;
        // A group whose API service is down answers 503, or 404; the others count all the same.
        let (freshness, resources) = match answer.json::<RawResourceList>() {
            Ok(list) => (Freshness::Current, list.read()),
            Err(_) => (Freshness::Stale, BTreeMap::new()),
        };
        let read = Version { name: version, freshness, resources };
        Arc::make_mut(groups.entry(group).or_insert_with(|| Arc::new(Group::default())))
            .0
            .push(read);
    }
    Ok(groups)
}
