//! Where callers ask, and how many of them there is room for.

use super::Action;
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
    /// Questions at once; each is a small request to the API server. So many about users that were let in lately, as many
    /// about others that are known, as many about strangers.
    pub(super) questions: usize,
    /// Of one user or, of strangers, of one address: whoever tries tokens or names leaves room for the others.
    pub(super) questions_of_one: usize,
    /// Requests that wait for an answer about others that are known, and as many about strangers: they leave room for
    /// those who were let in.
    pub(super) waiting: usize,
    /// Of one user or address.
    pub(super) waiting_of_one: usize,
    /// Questions about users that were let in lately, of which `share` are one user's, and requests that wait for an
    /// answer: whoever asks and leaves, again and again, leaves no more than that.
    pub(super) waiting_let_in: usize,
    /// How long a question waits for its turn.
    pub(super) queue: Duration,
    /// Credentials that are remembered, and users that were let in lately.
    pub(super) users: usize,
    /// Actions that are remembered: some 300 bytes each.
    pub(super) actions: usize,
    /// Requests of one user at once.
    pub(super) share: usize,
    /// Watches at once.
    pub(super) watches: usize,
    /// Of one user: a program has one for each kind, and runs some dozen times.
    pub(super) watches_share: usize,
    /// Connections of users that do not make room for others: names, too, are made by whoever may make accounts.
    pub(super) connections: usize,
    /// Of one user.
    pub(super) connections_share: usize,
    /// The same of those over which requests were sent on: their tokens are not asked about, and an account has as many
    /// as it makes.
    pub(super) connections_sent_on: usize,
    /// Of one token.
    pub(super) connections_sent_on_share: usize,
}

impl Address {
    pub(super) const fn bounds(self) -> Bounds {
        match self {
            Self::Admin => Bounds {
                questions: 16,
                questions_of_one: 4,
                // Its listener bounds them.
                waiting: 256,
                waiting_of_one: 256,
                waiting_let_in: 256,
                queue: Duration::ZERO,
                users: 256,
                actions: 256,
                share: 256,
                watches: 0,
                watches_share: 0,
                connections: 0,
                connections_share: 0,
                connections_sent_on: 0,
                connections_sent_on_share: 0,
            },
            // As many actions as the API server's own libraries remember.
            Self::Reads => Bounds {
                questions: 48,
                questions_of_one: 16,
                // Both together leave a quarter of what the listener admits.
                waiting: 150,
                // A client that starts may send as many as its share at once.
                waiting_of_one: 100,
                // As many as the listener admits.
                waiting_let_in: 400,
                queue: Duration::from_secs(3),
                users: 1_024,
                actions: 8_192,
                // A quarter of what the listener admits.
                share: 100,
                // Some 40 KiB each.
                watches: 4_096,
                watches_share: 1_024,
                // Half of what the listener admits, and a quarter: with a quarter for those who are sent on, one is left.
                connections: 1_024,
                connections_share: 512,
                connections_sent_on: 512,
                connections_sent_on_share: 256,
            },
        }
    }

    /// Whether those who may do `action` come before others from then on: discovery is allowed to everybody whom the API
    /// server knows.
    pub(super) const fn tells_users(self, action: &Action) -> bool {
        match (self, action) {
            (Self::Admin, _) | (Self::Reads, Action::Resource { .. }) => true,
            (Self::Reads, Action::Path { .. }) => false,
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
