//! Maps a client's IP address to the key by which kubewarm counts in its limits per client address.

use std::net::{IpAddr, Ipv6Addr};

/// Returns an IPv4 address unchanged, and the /64 network of an IPv6 address. All addresses of a
/// /64 network count against one limit, because they usually have one owner.
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
