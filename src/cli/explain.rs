//! What can be typed after `explain`.

use super::{ConnectionArgs, TrustArgs};
use clap::Args;

pub(super) const CODES: &str = "\
Exit codes:
  0  warm, and known to be current
  1  not so
  2  the question failed";

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A target of a profile, as PROFILE/TARGET; of PROFILE alone, each of its targets.
    #[arg(value_name = "PROFILE/TARGET", value_parser = subject)]
    pub subject: Explained,

    /// Where the profile is [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// The admin address of a replica, such as `http://localhost:9090` behind `kubectl port-forward`:
    /// it says how often each cell has been tried, and when it is tried next.
    #[arg(long, env = "KUBEWARM_OPERATOR", value_name = "URL")]
    pub operator: Option<String>,

    /// Its certificate.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// `metadata.name`.
    pub profile: String,
    /// `targets[].name`; `None` for all.
    pub target: Option<String>,
}

fn subject(text: &str) -> Result<Explained, String> {
    let (profile, target) = match text.split_once('/') {
        Some((profile, target)) => (profile, Some(target)),
        None => (text, None),
    };
    if profile.is_empty() || target.is_some_and(|target| target.is_empty() || target.contains('/'))
    {
        return Err("expected PROFILE/TARGET, or PROFILE".to_owned());
    }
    Ok(Explained { profile: profile.to_owned(), target: target.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_its_profile() {
        let of = |text| subject(text).map(|it| (it.profile, it.target));
        assert_eq!(of("checkout"), Ok(("checkout".into(), None)));
        assert_eq!(of("checkout/pods"), Ok(("checkout".into(), Some("pods".into()))));
        for text in ["", "/pods", "checkout/", "shop/checkout/pods"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
