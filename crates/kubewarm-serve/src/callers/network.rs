//! The IPv6 network of a client address. kubewarm counts an IPv6 client by its address and by its
//! network.
//!
//! Counting by network alone would be wrong in a cluster. By default, Kubernetes gives each node
//! one /64 for its pods (`--node-cidr-mask-size-ipv6`), and each pod has one address in it. One pod
//! could then use up the limits of all pods on its node.
//!
//! Counting by address alone would be wrong outside of clusters. One host usually has a whole /64,
//! so it could use each limit as often as it likes.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the /64 network of an IPv6 address. `None` for an IPv4 address, also for one in an
/// IPv4-mapped IPv6 address, because a host rarely has many IPv4 addresses.
pub(crate) fn network(address: &IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => {
            Some(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv6_addresses_have_a_network() {
        for (address, expected) in [
            ("10.0.0.1", None),
            ("::ffff:10.0.0.1", None),
            ("2001:db8:0:1:2:3:4:5", Some("2001:db8:0:1::")),
            ("2001:db8:0:1::1", Some("2001:db8:0:1::")),
            ("2001:db8:0:2::1", Some("2001:db8:0:2::")),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(network(&address.parse().unwrap()), expected, "{address}");
        }
    }
}
