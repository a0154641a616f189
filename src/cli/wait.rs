//! What can be typed after `wait`.

use super::{ConnectionArgs, value};
use clap::{Args, builder::PossibleValue};
use std::time::Duration;

pub(super) const CODES: &str = "\
Exit codes:
  0  ready
  1  not ready, with --timeout=0
  2  only an edit of the profile helps (Stalled), or the question failed
  3  timed out";

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The profile.
    pub name: String,

    /// Where it is [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// What to wait for.
    // The only state, so that nothing reads it.
    #[arg(
        long = "for",
        value_name = "STATE",
        default_value = "ready",
        value_parser = [
            PossibleValue::new("ready").help("The condition Ready is True for the newest generation")
        ]
    )]
    pub until: String,

    /// How long: seconds, or such as 90s or 5m. 0 looks once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = value::duration)]
    pub timeout: Duration,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn wait_has_defaults_and_refuses_what_it_cannot_wait_for() {
        let Command::Wait(wait) = parse("kubewarm wait checkout -n shop").unwrap().command else {
            panic!("not wait");
        };
        assert_eq!((&*wait.until, wait.timeout), ("ready", Duration::from_mins(5)));
        assert!(parse("kubewarm wait checkout --for=rv=5").is_err());
        assert!(parse("kubewarm wait").is_err());
    }
}
