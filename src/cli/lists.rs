//! Flags of `run` that determine how kubewarm lists the objects that profiles select.

use crate::commands;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use kubewarm_api::model::{ListPolicy, ListStrategy};
use std::{str::FromStr as _, time::Duration};
use strum::VariantNames as _;

/// Flags for how kubewarm lists the objects of profiles.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lists")]
pub struct ListArgs {
    /// Method to list the objects of an informer. `auto`: one list or pages, depending on the API
    /// server's version. `list`: one list. `watch-list`: a watch that sends the objects first.
    /// `paged-list`: pages. If the API server rejects a method, kubewarm lists in pages.
    #[arg(
        long,
        default_value = "auto",
        value_name = "STRATEGY",
        value_parser = PossibleValuesParser::new(ListStrategy::VARIANTS)
            .try_map(|text| ListStrategy::from_str(&text))
    )]
    pub list_strategy: ListStrategy,

    /// Objects per page of a paged list, 50 to 5000.
    #[arg(
        long,
        default_value = "500",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(50..=5000)
    )]
    pub list_page_size: u32,

    /// Timeout of a streaming list, 5s to 10m. After the timeout kubewarm lists in pages.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = watch_list_timeout)]
    pub watch_list_timeout: Duration,
}

impl ListArgs {
    pub fn policy(&self) -> ListPolicy {
        ListPolicy {
            strategy: self.list_strategy,
            page_size: self.list_page_size,
            watch_list_timeout: self.watch_list_timeout,
        }
    }
}

fn watch_list_timeout(text: &str) -> Result<Duration, String> {
    let timeout = commands::duration(text)?;
    if (Duration::from_secs(5)..=Duration::from_mins(10)).contains(&timeout) {
        return Ok(timeout);
    }
    Err("expected 5s to 10m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        lists: ListArgs,
    }

    fn policy(flags: &[&str]) -> Option<ListPolicy> {
        let parsed = Flags::try_parse_from([&["kubewarm"], flags].concat());
        parsed.ok().map(|flags| flags.lists.policy())
    }

    #[test]
    fn flags_have_the_defaults_of_the_model_and_bounds() {
        assert_eq!(policy(&[]), Some(ListPolicy::default()));
        for (name, strategy) in [
            ("auto", ListStrategy::Auto),
            ("list", ListStrategy::List),
            ("watch-list", ListStrategy::WatchList),
            ("paged-list", ListStrategy::PagedList),
        ] {
            let expected = ListPolicy { strategy, ..ListPolicy::default() };
            assert_eq!(policy(&["--list-strategy", name]), Some(expected));
        }
        for flags in [
            ["--list-strategy", "whole"],
            ["--list-page-size", "49"],
            ["--list-page-size", "5001"],
            ["--watch-list-timeout", "4s"],
            ["--watch-list-timeout", "601"],
        ] {
            assert_eq!(policy(&flags), None, "{flags:?}");
        }
    }
}
