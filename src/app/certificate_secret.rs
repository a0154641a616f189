//! The Secret with the certificates that kubewarm issues to itself. Each replica reads the
//! certificate from it. Any replica fills an empty Secret, and the leader renews it.

use crate::commands::causes;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kubewarm_api::{
    manifests::CERTIFICATE_ROTATION,
    model::{FaultReason, RequestFault},
};
use kubewarm_client::{ApiClient, LeaseState};
use kubewarm_serve::{
    ServeError,
    certificate::{
        BUNDLE, CaRotation, CertificateLifetimes, CertificateNames, IssuedCertificates,
        IssuedCertificatesError, ServingCertificate,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Interval between two reads of the Secret. The overlap of CAs is so long that no client notices.
const PERIOD: Duration = Duration::from_mins(1);
/// The interval while there is no certificate, because a starting replica waits for it, and after a
/// conflict with another writer.
const STARTING: Duration = Duration::from_secs(1);
/// The interval after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The interval at which the log repeats a failure.
const LOG_PERIOD: Duration = Duration::from_hours(1);

/// The Secret and the `ConfigMap` of `--certificate-secret`.
pub(super) struct CertificateSecret {
    pub(super) client: ApiClient,
    pub(super) namespace: Arc<str>,
    /// The name of both objects.
    pub(super) name: String,
    pub(super) names: CertificateNames,
    pub(super) lifetimes: CertificateLifetimes,
    /// The certificate of this replica's listeners.
    pub(super) serving: Arc<ServingCertificate>,
    /// The CAs that clients need, in PEM; `None` until `serving` comes from the Secret.
    pub(super) authorities: watch::Sender<Option<Arc<str>>>,
}

/// The log shows only an error's own text, so the text contains the cause.
#[derive(Debug, thiserror::Error)]
enum CertificateSecretError {
    #[error("the Secret cannot be read or written: {0}")]
    Secret(RequestFault),
    #[error("the CAs cannot be published in the ConfigMap, so no other CA will sign: {0}")]
    ConfigMap(RequestFault),
    #[error("kubewarm does not replace the Secret, because clients have its CA: {}", causes(.0))]
    Certificates(#[from] IssuedCertificatesError),
    #[error("the Secret's certificate is not used: {}", causes(.0))]
    Serving(#[from] ServeError),
}

impl CertificateSecret {
    /// Keeps this replica's certificate equal to the Secret's, and the Secret valid while this
    /// replica leads. Never returns.
    ///
    /// # Cost
    ///
    /// A GET of the Secret every minute. The leader also gets the `ConfigMap`.
    pub(super) async fn run(self, lease: watch::Receiver<LeaseState>) {
        let mut last_log: Option<(String, Instant)> = None;
        loop {
            let result = self.synchronize(&lease).await;
            let pause = match &result {
                // Tests use lifetimes of seconds.
                Ok(true) => PERIOD.min(self.lifetimes.leaf / 20),
                Err(_) if self.authorities.borrow().is_some() => RETRY,
                Ok(false) | Err(_) => STARTING,
            };
            if let Err(error) = result {
                let shown = error.to_string();
                let is_logged = last_log
                    .as_ref()
                    .is_some_and(|(text, at)| *text == shown && at.elapsed() < LOG_PERIOD);
                if !is_logged {
                    let (namespace, name) = (&self.namespace, &self.name);
                    tracing::error!(%error, %namespace, name, "certificates of --certificate-secret");
                    last_log = Some((shown, Instant::now()));
                }
            } else {
                last_log = None;
            }
            sleep(pause).await;
        }
    }

    /// Returns false if another client has changed the Secret since kubewarm read it.
    async fn synchronize(
        &self,
        lease: &watch::Receiver<LeaseState>,
    ) -> Result<bool, CertificateSecretError> {
        let mut secret: Secret =
            self.get("secrets").await.map_err(CertificateSecretError::Secret)?;
        let data = secret.data.take().unwrap_or_default();
        let data = data.into_iter().map(|(key, ByteString(value))| (key, value)).collect();
        let current = IssuedCertificates::parse(&data)?;
        let mut published = Ok(());
        if let Some(current) = &current {
            self.serve(current)?;
            if !lease.borrow().is_leader() {
                return Ok(true);
            }
            published = self.publish(&current.bundle()).await;
        }
        // Any replica fills an empty Secret. The leader can be of an older release, which does not
        // know the Secret and runs until this replica is ready.
        let annotations = secret.metadata.annotations.get_or_insert_default();
        let is_requested = annotations.remove(CERTIFICATE_ROTATION).is_some();
        let next = self.next(current.as_ref(), is_requested, published.is_ok())?;
        if next.is_none() && !is_requested {
            return published.map(|()| true);
        }
        let written = next.as_ref().or(current.as_ref()).map(IssuedCertificates::data);
        let written = written.into_iter().flatten();
        secret.data = Some(written.map(|(key, value)| (key, ByteString(value))).collect());
        let was_written =
            self.put("secrets", &secret).await.map_err(CertificateSecretError::Secret)?;
        if let Some(next) = next.filter(|_| was_written) {
            let (namespace, name) = (&self.namespace, &self.name);
            tracing::info!(%namespace, name, is_requested, "certificates renewed");
            self.serve(&next)?;
            published = self.publish(&next.bundle()).await;
        }
        published.map(|()| was_written)
    }

    /// Uses the leaf for this replica's listeners.
    fn serve(&self, certificates: &IssuedCertificates) -> Result<(), ServeError> {
        if self.serving.replace(certificates)? {
            let sha256 = self.serving.fingerprint();
            tracing::info!(%sha256, "the certificate has changed");
        }
        self.authorities.send_replace(Some(certificates.bundle().into()));
        Ok(())
    }

    fn next(
        &self,
        current: Option<&IssuedCertificates>,
        is_requested: bool,
        is_published: bool,
    ) -> Result<Option<IssuedCertificates>, IssuedCertificatesError> {
        let (names, lifetimes, now) = (&self.names, self.lifetimes, Timestamp::now());
        let Some(current) = current else {
            return IssuedCertificates::create(names, lifetimes, now).map(Some);
        };
        if is_requested && current.is_full() {
            let (namespace, name) = (&self.namespace, &self.name);
            tracing::error!(
                %namespace, name,
                "no other CA can sign before one of the 8 CAs of the bundle expires; the request is dropped"
            );
        }
        let rotation = match (is_requested, is_published) {
            (true, _) => CaRotation::Forced,
            (false, true) => CaRotation::Allowed,
            (false, false) => CaRotation::Suspended,
        };
        current.renewed(names, lifetimes, now, rotation)
    }

    /// Writes the CAs into the `ConfigMap`, which clients can read without permission for the keys.
    async fn publish(&self, bundle: &str) -> Result<(), CertificateSecretError> {
        let publish = async {
            let mut published: ConfigMap = self.get("configmaps").await?;
            let data = published.data.get_or_insert_default();
            if data.get(BUNDLE).is_some_and(|published| published == bundle) {
                return Ok(());
            }
            data.insert(BUNDLE.to_owned(), bundle.to_owned());
            // After a conflict, the next iteration writes again.
            self.put("configmaps", &published).await.map(drop)
        };
        publish.await.map_err(CertificateSecretError::ConfigMap)
    }

    async fn get<T: DeserializeOwned>(&self, resource: &str) -> Result<T, RequestFault> {
        self.client.get(self.path(resource)).send().await?.json()
    }

    /// Replaces the object. Returns false if it has changed since it was read.
    async fn put(&self, resource: &str, object: &impl Serialize) -> Result<bool, RequestFault> {
        let body = serde_json::to_vec(object)
            .map_err(|error| RequestFault::new(FaultReason::Internal, error.to_string()))?;
        let response = self.client.put(self.path(resource), body).send().await?;
        if response.status == StatusCode::CONFLICT {
            return Ok(false);
        }
        if response.status.is_success() { Ok(true) } else { Err(response.fault()) }
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}/{}", self.namespace, self.name)
    }
}
