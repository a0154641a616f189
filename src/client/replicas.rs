//! The replicas of kubewarm, drawn below a profile.

use super::{
    paint::{Line, Tone},
    text::{escape, length, span},
};
use crate::api::{ReplicaRole, ReplicaStatus};
use jiff::Timestamp;

/// A line for each replica below one that says what they are; nothing unless there are several,
/// because then all there is to say is said of the profile. Text of the cluster is escaped.
pub(super) fn replica_lines(replicas: &[ReplicaStatus], now: Timestamp) -> Vec<Line> {
    if replicas.len() < 2 {
        return Vec::new();
    }
    let widest = replicas.iter().map(|it| escape(&it.name).chars().count()).max().unwrap_or(0);
    let mut lines = vec![Line::of(Tone::Quiet, "replicas".to_owned())];
    for (at, replica) in replicas.iter().enumerate() {
        let is_last = at + 1 == replicas.len();
        let mut line = Line::of(Tone::Quiet, if is_last { "└── " } else { "├── " }.to_owned());
        line.push(Tone::Plain, format!("{:<widest$}  {:<8}", escape(&replica.name), role(replica)));
        match &replica.warm_targets {
            Some(warm) => line.push(Tone::Plain, format!("  {} warm", escape(warm))),
            None => line.push(Tone::Quiet, "  has not said how warm it is"),
        }
        if let Some(seen) = &replica.last_seen_time {
            let ago = length(span(seen.0, now));
            line.push(Tone::Quiet, format!("  last seen {ago} ago"));
        }
        lines.push(line);
    }
    lines
}

fn role(replica: &ReplicaStatus) -> &'static str {
    match replica.role {
        Some(ReplicaRole::Leader) => "leader",
        Some(ReplicaRole::Follower) => "follower",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{paint::Colour, sample},
        *,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn drawn(replicas: &[ReplicaStatus]) -> String {
        let lines = replica_lines(replicas, sample::now());
        lines.iter().map(|line| line.paint(0, Colour::Off)).collect()
    }

    fn leader() -> ReplicaStatus {
        ReplicaStatus {
            name: "kubewarm-0".to_owned(),
            role: Some(ReplicaRole::Leader),
            warm_targets: Some("2/2".to_owned()),
            last_seen_time: None,
        }
    }

    #[test]
    fn several_replicas_are_a_line_each() {
        let follower = ReplicaStatus {
            name: "kube\u{1b}[2J".to_owned(),
            role: Some(ReplicaRole::Follower),
            warm_targets: Some("1/2".to_owned()),
            last_seen_time: Some(Time("2026-03-01T11:59:48Z".parse().unwrap())),
        };
        let silent = ReplicaStatus { name: "new".to_owned(), ..ReplicaStatus::default() };
        let expected = "\
replicas
├── kubewarm-0     leader    2/2 warm
├── kube\\u{1b}[2J  follower  1/2 warm  last seen 12 s ago
└── new                      has not said how warm it is
";
        assert_eq!(drawn(&[leader(), follower, silent]), expected);
    }

    #[test]
    fn one_alone_is_not_worth_a_line() {
        assert_eq!(drawn(&[leader()]), "");
        assert_eq!(drawn(&[]), "");
    }
}
