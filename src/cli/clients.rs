//! Whose certificates count on the read address.

use super::value;
use clap::Args;
use http::HeaderName;
use std::path::PathBuf;

/// Client certificates and front proxies: named as those of the API server, and with the same meaning.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// CAs as PEM, read again when the file changes: whoever shows a client certificate of theirs is the user
    /// of its common name, in the groups of its organizations, and needs no token. As the API server's flag.
    /// Not with --auth=caller-token.
    #[arg(long, env = "KUBEWARM_CLIENT_CA_FILE", value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CAs as PEM, read again when the file changes, of front proxies: whoever shows a client certificate of
    /// theirs with one of --requestheader-allowed-names says in headers whom it speaks for. From anybody else
    /// these headers count for nothing. As the API server's flag. Not with --auth=caller-token.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_CLIENT_CA_FILE",
        value_name = "FILE",
        requires = "requestheader_allowed_names"
    )]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// The common names of front proxies, separated by commas. Unlike with the API server, none is not any.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_ALLOWED_NAMES",
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = value::common_name,
        requires = "requestheader_client_ca_file"
    )]
    pub requestheader_allowed_names: Vec<String>,

    /// The headers with the user's name, separated by commas; the first that is there counts.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_USERNAME_HEADERS",
        value_name = "HEADERS",
        value_delimiter = ',',
        value_parser = value::header,
        default_value = "x-remote-user"
    )]
    pub requestheader_username_headers: Vec<HeaderName>,

    /// The headers with the user's UID, separated by commas; the first that is there counts.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_UID_HEADERS",
        value_name = "HEADERS",
        value_delimiter = ',',
        value_parser = value::header,
        default_value = "x-remote-uid"
    )]
    pub requestheader_uid_headers: Vec<HeaderName>,

    /// The headers with a group of the user's each, separated by commas.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_GROUP_HEADERS",
        value_name = "HEADERS",
        value_delimiter = ',',
        value_parser = value::header,
        default_value = "x-remote-group"
    )]
    pub requestheader_group_headers: Vec<HeaderName>,

    /// What the headers with anything else of the user begin with, separated by commas.
    #[arg(
        long,
        env = "KUBEWARM_REQUESTHEADER_EXTRA_HEADERS_PREFIX",
        value_name = "PREFIXES",
        value_delimiter = ',',
        value_parser = value::header_prefix,
        default_value = "x-remote-extra-"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

impl ClientArgs {
    /// Whether any certificate counts.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.client_ca_file.is_some() || self.requestheader_client_ca_file.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: ClientArgs,
    }

    fn of(more: &[&str]) -> Result<ClientArgs, String> {
        let parsed = Run::try_parse_from([&["run"], more].concat());
        parsed.map(|run| run.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_front_proxy_is_named_and_its_headers_are_the_usual_ones() {
        let none = of(&[]).unwrap();
        assert!(!none.are_wanted());
        assert_eq!(none.requestheader_username_headers, ["x-remote-user"]);
        assert_eq!(none.requestheader_extra_headers_prefix, ["x-remote-extra-"]);
        let file = "--requestheader-client-ca-file=ca.crt";
        let args = of(&[
            file,
            "--requestheader-allowed-names=front,side",
            "--requestheader-username-headers=X-User,X-Remote-User",
            "--requestheader-extra-headers-prefix=X-Extra-",
        ]);
        let args = args.unwrap();
        assert!(args.are_wanted());
        assert_eq!(args.requestheader_allowed_names, ["front", "side"]);
        assert_eq!(args.requestheader_username_headers, ["x-user", "x-remote-user"]);
        assert_eq!(args.requestheader_extra_headers_prefix, ["x-extra-"]);
        for (more, said) in [
            (vec![file], "--requestheader-allowed-names"),
            (vec![file, "--requestheader-allowed-names="], "the common name of a certificate"),
            (vec!["--requestheader-allowed-names=a"], "--requestheader-client-ca-file"),
            (vec!["--requestheader-group-headers=a b"], "such as x-remote-user"),
            (vec!["--requestheader-group-headers=Authorization"], "such as x-remote-user"),
            (vec!["--requestheader-extra-headers-prefix="], "such as x-remote-extra-"),
            (vec!["--requestheader-extra-headers-prefix=imperson"], "such as x-remote-extra-"),
        ] {
            let error = of(&more).unwrap_err();
            assert!(error.contains(said), "{more:?}: {error}");
        }
    }
}
