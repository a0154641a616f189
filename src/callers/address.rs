//! Where callers ask, and how many of them there is room for.

use std::time::Duration;

/// Where callers ask, and so how many of them there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The admin address: a few scrape; the rest only try.
    Admin,
    /// The read address. A controller that starts asks for many names at once: its questions wait for
    /// each other, not as long as clients do.
    Reads,
}

/// How many there is room for.
pub(super) struct Bounds {
    /// Questions at once about what was let in lately; each is a small request to the API server.
    pub(super) anew: usize,
    /// All other questions at once, whoever asks.
    pub(super) first: usize,
    /// Of either, of one address: whoever tries tokens leaves room for the others.
    pub(super) of_address: usize,
    /// Requests that wait for one of these others: strangers leave room for those who are known.
    pub(super) waiting: usize,
    /// Of one address.
    pub(super) waiting_of_address: usize,
    /// How long a question waits for its turn.
    pub(super) queue: Duration,
    /// Credentials that are remembered.
    pub(super) users: usize,
    /// Actions that are remembered: some 100 bytes each.
    pub(super) actions: usize,
    /// Requests of one user at once.
    pub(super) share: usize,
    /// Watches at once.
    pub(super) watches: usize,
    /// Of one user: a program has one for each kind, and runs some dozen times.
    pub(super) watches_share: usize,
}

impl Address {
    pub(super) const fn bounds(self) -> Bounds {
        match self {
            Self::Admin => Bounds {
                anew: 16,
                first: 16,
                of_address: 4,
                // Its listener bounds them.
                waiting: 256,
                waiting_of_address: 256,
                queue: Duration::ZERO,
                users: 256,
                actions: 256,
                share: 256,
                watches: 0,
                watches_share: 0,
            },
            // As many actions as the API server's own libraries remember.
            Self::Reads => Bounds {
                anew: 48,
                first: 48,
                of_address: 16,
                // Half of what the listener admits.
                waiting: 200,
                waiting_of_address: 100,
                queue: Duration::from_secs(3),
                users: 1_024,
                actions: 8_192,
                // A quarter of what the listener admits.
                share: 100,
                // Some 40 KiB each.
                watches: 4_096,
                watches_share: 1_024,
            },
        }
    }

    /// What the log says when nobody knows who may.
    pub(super) const fn unanswered(self) -> &'static str {
        match self {
            Self::Admin => "nobody can say who may read metrics; callers get 503",
            Self::Reads => "nobody can say who may read objects; callers get 503",
        }
    }
}
