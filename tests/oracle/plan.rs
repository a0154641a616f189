//! Which faults a seed injects, and when.

use std::fmt;
use std::time::Duration;

/// What is disturbed. `usize` is a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The replica's connections are closed, and refused for 300 ms.
    CutLink(usize),
    RefuseLink(usize),
    HoldLink(usize),
    SlowLink(usize),
    FreezeReplica(usize),
    /// The replica is killed and starts again.
    KillReplica(usize),
    FreezeApiServer,
    KillApiServer,
    /// The API server goes on sending bookmarks at its last version.
    FreezeEtcd,
    /// Objects change while no replica reaches the API server. Then etcd is compacted and the API server restarts, so
    /// that no watch can resume.
    CompactEtcd,
    RestoreEtcd,
    /// etcd is restored while no replica reaches it, and writes raise its versions above all earlier ones. Afterwards
    /// the replicas restart, as docs/failure-modes.md demands.
    RestoreEtcdUnseen,
    /// kubewarm may not read the collections.
    RevokePermission,
    PauseProfile,
}

/// What the faults of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Network,
    Processes,
    /// etcd is restored.
    Restores,
    Profiles,
    /// Bookmarks stop or prove nothing.
    Bookmarks,
    /// Changes are compacted, and arrive late.
    Log,
    Revocation,
}

/// The theme of a seed is at its remainder. The seeds 1 to 5 have one long run.
const THEMES: [Theme; 7] = [
    Theme::Revocation,
    Theme::Network,
    Theme::Processes,
    Theme::Bookmarks,
    Theme::Restores,
    Theme::Profiles,
    Theme::Log,
];

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultStep {
    /// Since the end of the fault before.
    pub(crate) pause: Duration,
    pub(crate) fault: InjectedFault,
    /// The fault's duration; for a cut or a compaction, an additional wait.
    pub(crate) lasts: Duration,
}

/// The faults of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultPlan {
    pub(crate) theme: Theme,
    /// How long objects are written.
    pub(crate) length: Duration,
    pub(crate) steps: Vec<FaultStep>,
}

/// The number of replicas.
pub(crate) const REPLICAS: usize = 2;

/// At the end of a run no fault is injected for this time. The last [`CALM`] of it is judged: every read succeeds.
pub(crate) const UNDISTURBED: Duration = Duration::from_secs(30);
pub(crate) const CALM: Duration = Duration::from_secs(8);

const SHORT: Duration = Duration::from_mins(1);
/// The staleness limit of 10 s passes several times, and so does the age of 75 s at which changes leave an event log.
const LONG: Duration = Duration::from_secs(150);

impl Theme {
    /// The faults of the theme, each at a random replica.
    fn faults(self, random: &mut fastrand::Rng) -> Vec<InjectedFault> {
        let mut replica = || random.usize(..REPLICAS);
        match self {
            Self::Network => vec![
                InjectedFault::CutLink(replica()),
                InjectedFault::RefuseLink(replica()),
                InjectedFault::HoldLink(replica()),
                InjectedFault::SlowLink(replica()),
            ],
            Self::Processes => vec![
                InjectedFault::FreezeReplica(replica()),
                InjectedFault::KillReplica(replica()),
                InjectedFault::FreezeApiServer,
                InjectedFault::KillApiServer,
            ],
            Self::Restores => {
                vec![
                    InjectedFault::RestoreEtcd,
                    InjectedFault::RestoreEtcdUnseen,
                    InjectedFault::CutLink(replica()),
                ]
            }
            Self::Profiles => {
                vec![
                    InjectedFault::PauseProfile,
                    InjectedFault::KillReplica(replica()),
                    InjectedFault::CutLink(replica()),
                ]
            }
            Self::Bookmarks => {
                vec![
                    InjectedFault::FreezeEtcd,
                    InjectedFault::HoldLink(replica()),
                    InjectedFault::FreezeReplica(replica()),
                ]
            }
            Self::Log => vec![
                InjectedFault::CompactEtcd,
                InjectedFault::SlowLink(replica()),
                InjectedFault::KillApiServer,
                InjectedFault::RefuseLink(replica()),
            ],
            Self::Revocation => {
                vec![
                    InjectedFault::RevokePermission,
                    InjectedFault::PauseProfile,
                    InjectedFault::CutLink(replica()),
                ]
            }
        }
    }

    /// How long objects are written, and the longest time of a fault.
    fn lengths(self) -> (Duration, Duration) {
        match self {
            Self::Network | Self::Processes | Self::Restores | Self::Profiles => {
                (SHORT, Duration::from_secs(6))
            }
            Self::Bookmarks | Self::Log | Self::Revocation => (LONG, Duration::from_secs(30)),
        }
    }
}

impl FaultPlan {
    /// The plan of a seed. `seconds` replaces the length of its theme.
    pub(crate) fn of(seed: u64, seconds: Option<u64>) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let theme = THEMES[usize::try_from(seed).unwrap_or_default() % THEMES.len()];
        let (length, longest) = theme.lengths();
        let length = seconds.map_or(length, Duration::from_secs);
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let mut left = length.saturating_sub(UNDISTURBED);
        let (mut steps, mut faults) = (Vec::new(), Vec::new());
        loop {
            if faults.is_empty() {
                faults = theme.faults(&mut random);
                random.shuffle(&mut faults);
            }
            let pause = Duration::from_millis(random.u64(500..4_000));
            let lasts = Duration::from_millis(random.u64(1_000..=longest));
            let Some(rest) = left.checked_sub(pause + lasts) else { break };
            left = rest;
            steps.extend(faults.pop().map(|fault| FaultStep { pause, fault, lasts }));
        }
        Self { theme, length, steps }
    }
}

impl fmt::Display for FaultStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:.1?}", self.fault, self.lasts)
    }
}
