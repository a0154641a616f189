//! One token: never shown, wiped from memory when it goes, and renewed before it ends.

use http::HeaderValue;
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

/// Latest renewal, as a share of the token's life.
const RENEW_AT: f64 = 0.8;
/// How much earlier it may be, so that tokens minted together are not renewed together.
const JITTER: f64 = 0.1;
/// Not used any more so long before it ends: what is sent now arrives a little later.
const MARGIN: Duration = Duration::from_secs(10);

/// A bearer token of a ServiceAccount.
pub(super) struct Token {
    header: Zeroizing<String>,
    renew_at: Instant,
    ends_at: Instant,
    /// Whether the API server has accepted it.
    proven: AtomicBool,
}

impl Token {
    /// A token that was asked for at `asked_at` and lives for `life`. `chance` of 0..1 is the jitter.
    pub(super) fn new(token: &str, life: Duration, asked_at: Instant, chance: f64) -> Self {
        Self {
            header: Zeroizing::new(["Bearer ", token].concat()),
            renew_at: asked_at + life.mul_f64(RENEW_AT - JITTER * chance.clamp(0.0, 1.0)),
            ends_at: asked_at + life.saturating_sub(MARGIN),
            proven: AtomicBool::new(false),
        }
    }

    /// The value of `Authorization`, marked as a secret; `None` if the token is none.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&self.header).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(super) fn is_usable(&self, now: Instant) -> bool {
        now < self.ends_at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.renew_at
    }

    /// Notes that the API server accepted it; whether that is news.
    pub(super) fn prove(&self) -> bool {
        !self.proven.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_due_at_four_fifths_of_its_life_and_never_shown() {
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        let second = Duration::from_secs(1);
        for (chance, due) in [(0.0, 2_880), (1.0, 2_520)] {
            let token = Token::new("hush", hour, now, chance);
            let due = now + Duration::from_secs(due);
            assert!(!token.is_due(due - second) && token.is_due(due + second), "{chance}");
            assert!(token.is_usable(now + hour - MARGIN - second));
            assert!(!token.is_usable(now + hour - MARGIN));
            let header = token.header().unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer hush");
            for shown in [format!("{token:?}"), format!("{header:?}")] {
                assert!(!shown.contains("hush"), "{shown}");
            }
        }
    }
}
