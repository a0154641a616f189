//! Which replicas keep a profile, and how warm each says that it is.

use super::figures;
use crate::{
    api::{ReplicaRole, ReplicaStatus},
    cluster::Replicas,
    model::ProfileRef,
};
use jiff::Timestamp;

/// As many entries as the schema allows.
const MAX_REPLICAS: usize = 16;

/// The entries of `profile`, by name, as the leader writes them: itself always, and of the others
/// the first 15. `warm_targets` is the leader's own.
///
/// While the leader has not looked at the others yet, those of `last` stay, as followers: a change
/// of the leader must not make the rest disappear for a moment.
pub(super) fn entries(
    replicas: &Replicas,
    profile: &ProfileRef,
    warm_targets: Option<&str>,
    last: &[ReplicaStatus],
    clock: Timestamp,
) -> Vec<ReplicaStatus> {
    let own = ReplicaStatus {
        name: replicas.own.to_string(),
        role: Some(ReplicaRole::Leader),
        warm_targets: warm_targets.map(str::to_owned),
        last_seen_time: Some(figures::seconds(clock)),
    };
    let mut others: Vec<_> = match &replicas.others {
        Some(peers) => peers
            .iter()
            .map(|peer| ReplicaStatus {
                name: peer.name.to_string(),
                role: Some(ReplicaRole::Follower),
                warm_targets: peer.warm_targets(profile).map(|warm| warm.to_string()),
                last_seen_time: Some(figures::seconds(peer.last_seen)),
            })
            .collect(),
        None => last
            .iter()
            .filter(|entry| entry.name != own.name)
            .map(|entry| ReplicaStatus { role: Some(ReplicaRole::Follower), ..entry.clone() })
            .collect(),
    };
    others.truncate(MAX_REPLICAS - 1);
    others.push(own);
    others.sort_by(|a, b| a.name.cmp(&b.name));
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Peer, WarmTargets};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn profile(name: &str) -> ProfileRef {
        ProfileRef { namespace: "shop".into(), name: name.into() }
    }

    fn known(names: &[String]) -> Replicas {
        let share = || (profile("cart"), WarmTargets::parse("1/3").unwrap());
        let others = names.iter().map(|name| Peer::new(name, NOW, [share()])).collect();
        Replicas { others: Some(others), ..Replicas::alone("b_1") }
    }

    fn shown(entries: &[ReplicaStatus]) -> Vec<String> {
        let show = |entry: &ReplicaStatus| {
            let warm = entry.warm_targets.as_deref().unwrap_or("-");
            format!("{} {:?} {warm}", entry.name, entry.role.unwrap())
        };
        entries.iter().map(show).collect()
    }

    #[test]
    fn each_has_its_own_share_and_we_lead() {
        let replicas = known(&["a".to_owned(), "c".to_owned()]);
        let of = |name| shown(&entries(&replicas, &profile(name), Some("3/3"), &[], NOW));
        assert_eq!(of("cart"), ["a Follower 1/3", "b Leader 3/3", "c Follower 1/3"]);
        assert_eq!(of("unsaid"), ["a Follower -", "b Leader 3/3", "c Follower -"]);
    }

    #[test]
    fn a_replica_without_others_names_itself() {
        let alone = Replicas::alone("b_1");
        assert_eq!(shown(&entries(&alone, &profile("cart"), None, &[], NOW)), ["b Leader -"]);
    }

    #[test]
    fn before_the_first_look_the_others_stay_as_followers() {
        let entry = |name: &str, role| ReplicaStatus {
            name: name.to_owned(),
            role: Some(role),
            ..ReplicaStatus::default()
        };
        let last = [entry("a", ReplicaRole::Leader), entry("b", ReplicaRole::Follower)];
        let of = |replicas| shown(&entries(&replicas, &profile("cart"), Some("0/3"), &last, NOW));
        assert_eq!(of(Replicas::alone("b_1")), ["a Follower -", "b Leader 0/3"]);
        assert_eq!(of(known(&[])), ["b Leader 0/3"], "nobody else is there");
    }

    #[test]
    fn there_is_always_room_for_the_leader() {
        let names: Vec<_> = (10..40).map(|number| format!("a{number}")).collect();
        let all = entries(&known(&names), &profile("cart"), Some("3/3"), &[], NOW);
        assert_eq!(all.len(), MAX_REPLICAS);
        assert_eq!(all.last().unwrap().name, "b");
    }
}
