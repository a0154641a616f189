//! The Services to which injected pods connect.

use k8s_openapi::api::core::v1::Service;
use std::net::IpAddr;

/// Name of the Service that leads only to kubewarm's pods.
pub const INJECTED_SERVICE: &str = "kubewarm-api";
/// Name of the same Service for pods that may use the API server while no replica is ready.
pub const FAIL_OPEN_SERVICE: &str = "kubewarm-api-failopen";
/// Names of the `EndpointSlice`s with the API server's addresses, for IPv4 and for IPv6.
pub const FAIL_OPEN_SLICES: [&str; 2] = ["kubewarm-apiserver-ipv4", "kubewarm-apiserver-ipv6"];
/// The port of the API server's own Service, which injected pods use.
pub const INJECTED_PORT: i32 = 443;

/// The cluster IPs of the Service, one of each address family. Empty for a headless Service.
///
/// # Errors
///
/// The reason why pods cannot connect to the Service, whatever its address.
pub fn injected_ips(service: &Service) -> Result<Vec<IpAddr>, &'static str> {
    let spec = service.spec.as_ref().ok_or("has no spec")?;
    if !spec.ports.iter().flatten().any(|port| port.port == INJECTED_PORT) {
        return Err("has no port 443; install the chart's Service again");
    }
    Ok(spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect())
}
