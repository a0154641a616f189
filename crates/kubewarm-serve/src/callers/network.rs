//! The key of limits per client address.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the /64 network of an IPv6 address. The owner of one IPv6 address usually has its whole
/// /64 network.
#[must_use]
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        for (peer, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
            ("2001:db8:0:1::1", "2001:db8:0:1::"),
            ("2001:db8:0:2::1", "2001:db8:0:2::"),
        ] {
            let [peer, expected] = [peer, expected].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(network(peer), expected);
        }
    }
}
