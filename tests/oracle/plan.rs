//! Computes from a seed which faults a run injects, and when.

use std::fmt;
use std::time::Duration;

/// A fault that a run injects. `usize` is the number of the affected replica.
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
    /// etcd is frozen. The API server continues to send bookmarks at its last version.
    FreezeEtcd,
    /// Objects change while no replica reaches the API server. Then etcd is compacted and the API
    /// server restarts, so that no watch can resume.
    CompactEtcd,
    RestoreEtcd,
    /// An etcd restore that no replica notices: no replica reaches etcd during the restore, and
    /// writes raise the versions above all earlier ones. Afterwards the replicas restart, as
    /// docs/failure-modes.md demands.
    RestoreEtcdUnseen,
    /// kubewarm loses its permission to read the collections.
    RevokePermission,
    PauseProfile,
}

/// The theme of a run, which decides the faults that the run injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Network,
    Processes,
    /// etcd is restored.
    Restores,
    Profiles,
    /// Bookmarks stop, or prove nothing about the age of a store.
    Bookmarks,
    /// Changes are compacted or arrive late, so that watches cannot resume.
    Log,
    Revocation,
}

/// A seed has the theme at its remainder by 7. Of the seeds 1 to 5, only one (Bookmarks) has a long
/// run.
const THEMES: [Theme; 7] = [
    Theme::Revocation,
    Theme::Network,
    Theme::Processes,
    Theme::Bookmarks,
    Theme::Restores,
    Theme::Profiles,
    Theme::Log,
];

/// One injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultStep {
    /// The time without a fault, since the end of the previous fault.
    pub(crate) pause: Duration,
    pub(crate) fault: InjectedFault,
    /// How long the fault lasts. A cut connection or a compaction has no duration, so this is an
    /// additional wait after it.
    pub(crate) lasts: Duration,
}

/// The faults of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultPlan {
    pub(crate) theme: Theme,
    /// How long writers write objects.
    pub(crate) length: Duration,
    pub(crate) steps: Vec<FaultStep>,
}

/// The number of replicas.
pub(crate) const REPLICAS: usize = 2;

/// The end of a run, in which no fault is injected. Every read must succeed in its last part,
/// [`CALM`].
pub(crate) const UNDISTURBED: Duration = Duration::from_secs(30);
pub(crate) const CALM: Duration = Duration::from_secs(8);

const SHORT: Duration = Duration::from_mins(1);
/// The length of runs with slow effects. In this time, the staleness limit of 10 s passes several
/// times, and the age of 75 s at which changes leave an event log.
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

    /// How long writers write objects, and the maximum duration of a fault.
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
    /// The plan of a seed. `seconds` replaces the length that the theme would give the run.
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
