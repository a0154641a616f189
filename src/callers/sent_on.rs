//! Room for requests that are sent on to the API server, with tokens that nobody here asks about: by its answers it is
//! known which of them are any.

use super::{
    address::Bounds,
    places::{Place, Places, network},
    tags::{Key, Tag},
};
use parking_lot::Mutex;
use std::{collections::HashMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// At once, watches and tunnels among them: each holds a connection to the API server and some 100 KiB.
const ALL: usize = 1_024;
/// Of one token: a controller watches some hundred kinds.
const OF_TOKEN: usize = 256;
/// Of one address: an account has as many tokens as it makes.
const OF_ADDRESS: usize = 512;
/// With tokens that the API server has not accepted lately: they may be made up.
const UNKNOWN: usize = 150;
/// Of one address.
const UNKNOWN_OF_ADDRESS: usize = 50;
/// How long a token that was accepted counts as such, if nothing of it is under way.
const LATELY: Duration = Duration::from_mins(10);
/// Tokens of which that is known: as many as may be sent on at once. The one that was accepted first goes.
const ACCEPTED: usize = ALL;

/// Room for what is sent on, and for the connections that it comes over.
pub(super) struct Sending {
    of_token: Places<Tag>,
    of_address: Places<IpAddr>,
    unknown: Places<IpAddr>,
    connections: Places<Tag>,
    /// By claims.
    accepted: Mutex<HashMap<Tag, Accepted>>,
}

/// A token that the API server has accepted.
struct Accepted {
    /// Whoever knows its claims alone has not shown it.
    whole: Tag,
    until: Instant,
}

/// A token, as far as one is told from another.
#[derive(Clone, Copy, Debug)]
struct Token {
    /// What it is counted by, however it is written.
    claims: Tag,
    whole: Tag,
}

/// A request that is sent on, and what it takes up until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the places back"]
pub struct SentOn {
    token: Token,
    peer: IpAddr,
    place: Held,
}

#[derive(Debug)]
enum Held {
    Known { _of_token: Place, _of_address: Place },
    Unknown { _of_address: Place },
}

impl Sending {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let Bounds { connections_sent_on, connections_sent_on_share, .. } = *bounds;
        Self {
            of_token: Places::new(ALL, OF_TOKEN),
            of_address: Places::new(ALL, OF_ADDRESS),
            unknown: Places::new(UNKNOWN, UNKNOWN_OF_ADDRESS),
            connections: Places::new(connections_sent_on, connections_sent_on_share),
            accepted: Mutex::default(),
        }
    }

    /// A place for a request with the token `bearer` from `peer`, if there is one.
    pub(super) fn take(
        &self,
        key: &Key,
        bearer: &[u8],
        peer: IpAddr,
        now: Instant,
    ) -> Option<SentOn> {
        let token = Token { claims: key.of_claims(bearer), whole: key.of_bearer(bearer) };
        let peer = network(peer);
        let place = if self.is_accepted(&token, now) {
            self.known(&token, peer)?
        } else {
            Held::Unknown { _of_address: self.unknown.take(peer)? }
        };
        Some(SentOn { token, peer, place })
    }

    /// The API server has accepted the token of `sent`, which has a place among those that are known from now on, if
    /// there is one.
    pub(super) fn accept(&self, sent: SentOn, now: Instant) -> SentOn {
        let SentOn { token, peer, place } = sent;
        self.remember(token, now);
        let known = match place {
            Held::Known { .. } => None,
            Held::Unknown { .. } => self.known(&token, peer),
        };
        SentOn { token, peer, place: known.unwrap_or(place) }
    }

    /// A place for the connection that `sent` came over, if there is one.
    pub(super) fn connection(&self, sent: &SentOn) -> Option<Place> {
        self.connections.take(sent.token.claims)
    }

    fn known(&self, token: &Token, peer: IpAddr) -> Option<Held> {
        let of_address = self.of_address.take(peer)?;
        let of_token = self.of_token.take(token.claims)?;
        Some(Held::Known { _of_token: of_token, _of_address: of_address })
    }

    /// A token with requests under way stays accepted: a watch asks for nothing more.
    fn is_accepted(&self, Token { claims, whole }: &Token, now: Instant) -> bool {
        let accepted = self.accepted.lock();
        accepted
            .get(claims)
            .is_some_and(|it| it.whole == *whole && (now < it.until || self.of_token.has(claims)))
    }

    fn remember(&self, Token { claims, whole }: Token, now: Instant) {
        let mut accepted = self.accepted.lock();
        if accepted.len() >= ACCEPTED && !accepted.contains_key(&claims) {
            accepted.retain(|claims, it| now < it.until || self.of_token.has(claims));
            let first = accepted.iter().min_by_key(|(_, it)| it.until).map(|(&claims, _)| claims);
            if let Some(first) = first.filter(|_| accepted.len() >= ACCEPTED) {
                accepted.remove(&first);
            }
        }
        accepted.insert(claims, Accepted { whole, until: now + LATELY });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Address, *};

    struct Scene {
        sending: Sending,
        key: Key,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let sending = Sending::new(&Address::Reads.bounds());
            Self { sending, key: Key::generate().unwrap(), now: Instant::now() }
        }

        fn take(&self, bearer: &str, last: u8) -> Option<SentOn> {
            let peer = IpAddr::from([10, 0, 1, last]);
            self.sending.take(&self.key, bearer.as_bytes(), peer, self.now)
        }

        fn accept(&self, bearer: &str) -> SentOn {
            self.sending.accept(self.take(bearer, 9).unwrap(), self.now)
        }

        /// As many as there are of 600.
        fn many(&self, bearer: &str, last: u8) -> Vec<SentOn> {
            (0..600).filter_map(|_| self.take(bearer, last)).collect()
        }
    }

    #[test]
    fn whoever_tries_tokens_leaves_those_room_whose_tokens_were_accepted() {
        let scene = Scene::new();
        drop(scene.accept("jane"));
        let mut held: Vec<_> = [1, 2, 3].map(|peer| scene.many("made-up", peer)).into();
        assert!(held.iter().all(|held| held.len() == 50));
        assert!(scene.take("john", 9).is_none());
        assert_eq!(scene.many("jane", 1).len(), 256);
        // What turns out to be accepted leaves its place to others that are tried.
        let known = scene.sending.accept(held[0].remove(0), scene.now);
        assert!(scene.take("john", 1).is_some());
        drop(known);
    }

    #[test]
    fn a_token_is_accepted_for_ten_minutes_and_for_as_long_as_something_of_it_lasts() {
        let mut scene = Scene::new();
        let watch = scene.accept("jane");
        scene.now += LATELY;
        assert_eq!(scene.many("jane", 1).len(), 255, "it is known");
        drop(watch);
        assert_eq!(scene.many("jane", 1).len(), 50, "it may have ended since");
    }

    #[test]
    fn whoever_knows_the_claims_alone_takes_nothing_of_the_owners() {
        let scene = Scene::new();
        drop(scene.accept("head.claims.signature"));
        let forged = scene.many("head.claims.forged", 1);
        assert_eq!(forged.len(), 50);
        assert_eq!(scene.many("head.claims.signature", 1).len(), 256);
    }

    #[test]
    fn a_bounded_number_of_tokens_is_known_and_the_last_of_them() {
        let mut scene = Scene::new();
        for n in 0..ACCEPTED + 10 {
            drop(scene.accept(&n.to_string()));
            scene.now += Duration::from_millis(1);
        }
        assert_eq!(scene.sending.accepted.lock().len(), ACCEPTED);
        assert_eq!(scene.many("9", 1).len(), 50);
        assert_eq!(scene.many("10", 1).len(), 256);
    }
}
