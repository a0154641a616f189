//! Metrics about the read API's limits and the TLS certificates, computed at each scrape.

use jiff::Timestamp;
use kubewarm_serve::{callers::LimitUsage, certificate::ServingCertificate};
use prometheus::{
    Registry, proto::MetricFamily, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};
use std::sync::Arc;

/// A TLS listener, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TlsListener {
    Admin,
    Read,
}

pub(super) fn limit_families(limits: &[LimitUsage]) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let gauges = |name: &str, help: &str| {
        register_int_gauge_vec_with_registry!(name, help, &["limit"], registry)
    };
    let in_use = gauges(
        "kubewarm_read_in_use",
        "Use of each limit of the read API. For user_ and address_ limits: the highest use by one user or address.",
    )?;
    let sizes = gauges(
        "kubewarm_read_limit",
        "Slots of the read API. user_ and address_: for one user or address.",
    )?;
    for LimitUsage { limit, in_use: used, size } in limits {
        let number = |slots: usize| i64::try_from(slots).unwrap_or(i64::MAX);
        in_use.with_label_values(&[limit]).set(number(*used));
        sizes.with_label_values(&[limit]).set(number(*size));
    }
    Ok(registry.gather())
}

pub(super) fn applier_families(users: usize) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let gauge = register_int_gauge_with_registry!(
        "kubewarm_read_appliers",
        "Users who read objects without managedFields and apply such objects or may patch them.",
        registry
    )?;
    gauge.set(i64::try_from(users).unwrap_or(i64::MAX));
    Ok(registry.gather())
}

pub(super) fn certificate_families(
    certificates: &[(TlsListener, Arc<ServingCertificate>)],
) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let expiry = register_int_gauge_vec_with_registry!(
        "kubewarm_certificate_expiry_timestamp_seconds",
        "Time at which the certificate of this listener expires. Absent without TLS.",
        &["listener"],
        registry
    )?;
    for (listener, certificate) in certificates {
        if let Some(time) = certificate.expiry().map(Timestamp::as_second) {
            expiry.with_label_values(&[listener]).set(time);
        }
    }
    Ok(registry.gather())
}
