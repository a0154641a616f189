//! One token of a ServiceAccount. To keep the token secret, `Debug` does not print the token, and a
//! dropped token overwrites its memory with zeros.

use http::HeaderValue;
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

/// Latest time of a token's renewal, as a fraction of the token's life. The rest of the life is for
/// further attempts if a token request fails.
const RENEW_AT: f64 = 0.8;
/// Largest jitter, as a fraction of the token's life. Jitter makes a renewal earlier, so that
/// kubewarm does not renew all tokens of the same age at the same time.
const JITTER: f64 = 0.1;
/// kubewarm does not use a token in this time before the token's expiry. Otherwise the token might
/// expire before the request arrives at the API server.
const MARGIN: Duration = Duration::from_secs(10);

/// A bearer token of a ServiceAccount, with the times of its renewal and of its expiry.
pub(super) struct AccountToken {
    header: Zeroizing<String>,
    renew_at: Instant,
    ends_at: Instant,
    is_accepted: AtomicBool,
}

impl AccountToken {
    /// Creates a token that was requested at `asked_at` and lives for `life`. `chance`, a random
    /// number from 0 to 1, scales the jitter.
    pub(super) fn new(token: &str, life: Duration, asked_at: Instant, chance: f64) -> Self {
        Self {
            header: Zeroizing::new(["Bearer ", token].concat()),
            renew_at: asked_at + life.mul_f64(RENEW_AT - JITTER * chance.clamp(0.0, 1.0)),
            ends_at: asked_at + life.saturating_sub(MARGIN),
            is_accepted: AtomicBool::new(false),
        }
    }

    /// Returns the value of the `Authorization` header, marked as sensitive; `None` if the token is
    /// not a valid header value.
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

    /// Records that the API server accepted the token. Returns `true` only at the first call, so
    /// that the caller resets its count of failures only once for each token.
    pub(super) fn mark_accepted(&self) -> bool {
        !self.is_accepted.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for AccountToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_due_after_70_to_80_percent_of_its_life_and_never_printed() {
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        let second = Duration::from_secs(1);
        for (chance, due) in [(0.0, 2_880), (1.0, 2_520)] {
            let token = AccountToken::new("hush", hour, now, chance);
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
