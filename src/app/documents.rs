//! What the API server says of itself, its version and its OpenAPI documents: asked for when a reader does, and some
//! of it kept.

use crate::{
    cluster::{self, Answer, ask_on},
    model::{Fault, Reason},
    server::read::{Documents, Schema},
    wire::{SchemaForm, SchemaIndex},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header;
use kube::Client;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long the version counts: it changes with an upgrade.
const VERSION_KNOWN: Duration = Duration::from_mins(1);
/// How long the index counts: so long after a CRD changed its schema is the old one.
const INDEX_KNOWN: Duration = Duration::from_secs(10);
/// How long a reader waits for its turn, and for the API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of documents that are kept: Kubernetes' own are some 5 MiB together, as text.
const MOST_BYTES: usize = 16 << 20;
/// How many of them: each version of a group, in either form.
const MOST_DOCUMENTS: usize = 64;

/// Asks for them as the operator. Who may see which is decided before.
pub(super) struct ApiDocuments {
    client: Client,
    runtime: Handle,
    /// Locked while it is asked for.
    version: Arc<Mutex<Option<(Instant, Bytes)>>>,
    /// Locked while one is asked for: what comes is held whole, so that it is one at a time.
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    index: Option<(Instant, Arc<SchemaIndex>)>,
    documents: Kept,
}

/// Documents, that were asked for last at the end.
#[derive(Default)]
struct Kept(VecDeque<(Named, Schema)>);

/// The URL at the API server, which changes with the document, and the form.
type Named = (String, SchemaForm);

impl ApiDocuments {
    pub(super) fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime, version: Arc::default(), held: Arc::default() }
    }

    /// What comes of `asking`, which goes on with the operator's own connections.
    fn asked<T: Send + 'static>(
        &self,
        asking: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Fault>> {
        ask_on(&self.runtime, async {
            let late = || Fault::new(Reason::TimedOut, "the API server takes too long");
            timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Documents for ApiDocuments {
    fn version(&self) -> BoxFuture<'static, Result<Bytes, Fault>> {
        let (client, held) = (self.client.clone(), Arc::clone(&self.version));
        self.asked(async move {
            let mut held = held.lock().await;
            if let Some((at, version)) = &*held
                && at.elapsed() < VERSION_KNOWN
            {
                return Ok(version.clone());
            }
            let version = said(cluster::get(&client, "/version").await?)?.body;
            *held = Some((Instant::now(), version.clone()));
            Ok(version)
        })
    }

    fn index(&self) -> BoxFuture<'static, Result<Arc<SchemaIndex>, Fault>> {
        let (client, held) = (self.client.clone(), Arc::clone(&self.held));
        self.asked(async move {
            let mut held = held.lock().await;
            if let Some((at, index)) = &held.index
                && at.elapsed() < INDEX_KNOWN
            {
                return Ok(Arc::clone(index));
            }
            let answer = said(cluster::get(&client, "/openapi/v3").await?)?;
            let none = || Fault::new(Reason::Internal, "/openapi/v3 is no index");
            let index = Arc::new(SchemaIndex::parse(&answer.body).ok_or_else(none)?);
            held.index = Some((Instant::now(), Arc::clone(&index)));
            Ok(index)
        })
    }

    fn document(&self, url: &str, form: SchemaForm) -> BoxFuture<'static, Result<Schema, Fault>> {
        let (client, held) = (self.client.clone(), Arc::clone(&self.held));
        let name = (url.to_owned(), form);
        self.asked(async move {
            let mut held = held.lock().await;
            if let Some(known) = held.documents.get(&name) {
                return Ok(known);
            }
            let (url, form) = &name;
            let answer = said(cluster::get_in_form(&client, url, form.media_type()).await?)?;
            let etag = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
            let schema = Schema { etag: etag.map(Into::into), body: answer.body };
            held.documents.put(name, &schema);
            Ok(schema)
        })
    }
}

/// `answer`, if it is what was asked for.
fn said(answer: Answer) -> Result<Answer, Fault> {
    if answer.status.is_success() { Ok(answer) } else { Err(answer.fault()) }
}

impl Kept {
    fn get(&mut self, name: &Named) -> Option<Schema> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        let found = self.0.remove(at)?;
        let schema = found.1.clone();
        self.0.push_back(found);
        Some(schema)
    }

    /// Keeps it, and lets go of what it takes the place of, or the room.
    fn put(&mut self, name: Named, schema: &Schema) {
        let path = |(url, form): &Named| (url.split('?').next().map(str::to_owned), *form);
        self.0.retain(|(known, _)| path(known) != path(&name));
        self.0.push_back((name, schema.clone()));
        let bytes = |kept: &Self| kept.0.iter().map(|(_, it)| it.body.len()).sum::<usize>();
        while self.0.len() > MOST_DOCUMENTS || bytes(self) > MOST_BYTES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn schema(bytes: usize) -> Schema {
        Schema { etag: None, body: Bytes::from(vec![b'x'; bytes]) }
    }

    fn named(text: &str) -> Named {
        (format!("/openapi/v3/{text}"), SchemaForm::Json)
    }

    #[test]
    fn a_document_takes_the_place_of_its_older_self() {
        let mut kept = Kept::default();
        kept.put(named("api/v1?hash=A"), &schema(1));
        kept.put((named("api/v1?hash=A").0, SchemaForm::Protobuf), &schema(2));
        kept.put(named("api/v1?hash=B"), &schema(3));
        assert_eq!(kept.get(&named("api/v1?hash=A")), None);
        assert_eq!(kept.get(&named("api/v1?hash=B")), Some(schema(3)));
        assert_eq!(kept.0.len(), 2);
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_number_and_the_oldest_goes_first() {
        let mut kept = Kept::default();
        for name in ["a", "b", "c"] {
            kept.put(named(name), &schema(MOST_BYTES / 3));
        }
        assert!(kept.get(&named("a")).is_some());
        kept.put(named("d"), &schema(MOST_BYTES / 3));
        assert!(kept.get(&named("b")).is_none() && kept.get(&named("a")).is_some());
        kept.put(named("huge"), &schema(MOST_BYTES + 1));
        assert!(kept.0.is_empty());
        for number in 0..2 * MOST_DOCUMENTS {
            kept.put(named(&number.to_string()), &schema(1));
        }
        assert_eq!(kept.0.len(), MOST_DOCUMENTS);
    }
}
