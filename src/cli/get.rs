//! What can be typed after `get`.

use super::{CacheArgs, ConnectionArgs, value};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

pub(super) const CODES: &str = "\
Exit codes:
  0  printed; with --compare: both servers say the same
  1  with --compare: they do not
  2  the question failed";

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// What: plural, singular or short name, with the group behind a dot where it takes one.
    pub kind: String,

    /// One object [default: all].
    #[arg(value_parser = object, conflicts_with_all = ["all_namespaces", "selector", "field_selector"])]
    pub name: Option<String>,

    /// Where to look [default: the namespace of the context].
    #[arg(short, long, value_parser = value::namespace)]
    pub namespace: Option<String>,

    /// Objects of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Only those with these labels, such as app=web,tier!=2.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,

    /// Only those with these fields, such as spec.nodeName=n1.
    #[arg(long, value_name = "FIELDS")]
    pub field_selector: Option<String>,

    /// How to print it [default: a table].
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "compare")]
    pub output: Option<Form>,

    /// Ask the API server for the same, and say what differs and how long each took. Objects are compared by
    /// uid and version. What differs is asked for again after a second: only what the cache has not come to
    /// by then is named.
    #[arg(long)]
    pub compare: bool,

    /// A kubeconfig for the read API, as `kubewarm kubeconfig` writes it, in place of the flags that find it.
    #[arg(
        long,
        env = "KUBEWARM_CACHE_KUBECONFIG",
        value_name = "FILE",
        conflicts_with_all = ["server", "profile", "certificate_authority", "tls_server_name"]
    )]
    pub cache_kubeconfig: Option<PathBuf>,

    /// Where the read API is.
    #[command(flatten)]
    pub cache: CacheArgs,

    /// Whose user, and where the API server is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kinds and names, one a line.
    Name,
    /// A table of all columns.
    Wide,
}

/// A name that cannot change the path of a request.
fn object(text: &str) -> Result<String, String> {
    let is_safe = |c: char| c.is_ascii_graphic() && !"/%?#".contains(c);
    if text.is_empty() || text.chars().all(|c| c == '.') || !text.chars().all(is_safe) {
        return Err("expected the name of an object".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    #[test]
    fn no_name_changes_the_path_of_a_request() {
        for text in ["red", "system:node:n1", "a.b", "A_b"] {
            assert!(object(text).is_ok(), "{text}");
        }
        for text in ["", ".", "..", "a/b", "a%2fb", "a?b", "a#b", "a b", "é"] {
            assert!(object(text).is_err(), "{text}");
        }
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for line in [
            "get",
            "get pods one -A",
            "get pods one -l app=web",
            "get pods --compare -o json",
            "get pods --cache-kubeconfig a --server https://b",
            "get pods --server http://b",
        ] {
            let words = format!("kubewarm {line}");
            let error = Cli::try_parse_from(words.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
