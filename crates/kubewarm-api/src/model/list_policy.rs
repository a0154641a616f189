//! How the process lists.

use std::time::Duration;

/// Settings for the lists of all profiles, from the operator's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPolicy {
    /// The requests that are tried, and their order.
    pub strategy: ListStrategy,
    /// Objects per page of a paged list; 50..=5000.
    pub page_size: u32,
    /// Time without the end bookmark of a watch list, after which pages are tried; 5 s to 10 minutes.
    pub watch_list_timeout: Duration,
}

/// Which requests kubewarm tries for a list. A paged list is always the last.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ListStrategy {
    /// By the API server's version: a list, then a watch list.
    #[default]
    Auto,
    /// One list request.
    List,
    /// A watch that sends the objects first.
    WatchList,
    /// Pages alone.
    PagedList,
}

impl Default for ListPolicy {
    fn default() -> Self {
        Self {
            strategy: ListStrategy::Auto,
            page_size: 500,
            watch_list_timeout: Duration::from_secs(30),
        }
    }
}
