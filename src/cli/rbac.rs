//! What can be typed after `rbac`.

use super::{SpecArgs, spec::one_of};
use clap::Args;
use kubewarm_api::model::Subject;

pub(super) const CODES: &str = "\
Exit codes:
  0  printed; with --diff: nothing would change, or --generation was given and is the profile's
  1  with --diff and without --generation: somebody would gain, lose or keep more than is needed
  2  the question failed, a profile would be refused, or it is of another generation";

/// Arguments of `rbac`.
#[derive(Debug, Args)]
#[command(group = one_of(["name", "file", "operator"]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RbacArgs {
    /// Which profiles.
    #[command(flatten)]
    pub spec: SpecArgs,

    /// Print what kubewarm itself needs, whatever the profiles say, instead of a profile's roles.
    #[arg(long, conflicts_with_all = ["diff", "generation", "subject", "namespace"])]
    pub operator: bool,

    /// With --operator: what `kubewarm run --metrics-auth` needs, too.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub metrics_auth: bool,

    /// With --operator: what `kubewarm run --api-addr` needs, too.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub read_api: bool,

    /// Say who would gain and lose what if the manifests were applied, instead of printing them.
    /// Namespaces of selectors are asked for.
    #[arg(long)]
    pub diff: bool,

    /// Fail unless the profile is of this generation: it has not been edited since it was reviewed.
    #[arg(long, value_name = "NUMBER", conflicts_with = "file")]
    pub generation: Option<i64>,

    /// Who is to be granted: system:serviceaccount:NAMESPACE:NAME, the name of a user, or
    /// group:NAME [default: the ServiceAccount kubewarm in the operator's namespace; that the status
    /// of a profile in the cluster names another is an error].
    #[arg(long, value_parser = subject)]
    pub subject: Option<Subject>,
}

/// A subject as [`Subject`] displays it.
pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let subject = text
        .strip_prefix("group:")
        .map_or_else(|| Subject::from_username(text), |name| Subject::Group(name.into()));
    let complete = match &subject {
        Subject::ServiceAccount { namespace, name } => !namespace.is_empty() && !name.is_empty(),
        Subject::User(name) => !name.is_empty() && !name.starts_with("system:serviceaccount:"),
        Subject::Group(name) => !name.is_empty(),
    };
    if complete {
        return Ok(subject);
    }
    Err("expected system:serviceaccount:NAMESPACE:NAME, the name of a user, or group:NAME"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn parse(line: &str) -> Result<RbacArgs, clap::Error> {
        let Command::Rbac(args) = Cli::try_parse_from(line.split_whitespace())?.command else {
            panic!("{line} is not rbac");
        };
        Ok(args)
    }

    #[test]
    fn subjects_are_read_as_they_are_written() {
        for text in ["system:serviceaccount:ops:kubewarm", "jane", "system:admin", "group:devs"] {
            assert_eq!(subject(text).map(|s| s.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "group:", "system:serviceaccount:ops", "system:serviceaccount::a"] {
            assert!(subject(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_or_a_name_is_wanted_and_only_a_name_has_a_generation() {
        let args = parse("kubewarm rbac checkout -n shop --diff --generation=7").unwrap();
        assert_eq!((args.spec.name.as_deref(), args.generation), (Some("checkout"), Some(7)));
        assert!(parse("kubewarm rbac -f - --diff").unwrap().diff);
        assert!(parse("kubewarm rbac --operator --watch-namespaces a,b").unwrap().operator);
        assert!(parse("kubewarm rbac --operator --metrics-auth").unwrap().metrics_auth);
        assert!(parse("kubewarm rbac --operator --read-api").unwrap().read_api);
        for line in [
            "--operator --watch-namespaces A",
            "--operator -f a",
            "checkout --metrics-auth",
            "checkout --read-api",
            "--operator --metrics-auth --watch-namespaces a",
            "",
            "checkout -f a.yaml",
            "-f a.yaml --generation=7",
            "--diff",
        ] {
            let error = parse(&format!("kubewarm rbac {line}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
