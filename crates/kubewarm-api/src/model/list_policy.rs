//! Settings of the operator's flags for list requests.

use std::time::Duration;

/// Settings for the lists of all profiles, from the operator's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPolicy {
    /// List requests to try, and their order.
    pub strategy: ListStrategy,
    /// Objects per page of a paged list, 50 to 5000.
    pub page_size: u32,
    /// Timeout of a watch list, 5 s to 10 minutes. Without the final bookmark in this time,
    /// kubewarm uses a paged list.
    pub watch_list_timeout: Duration,
}

/// List requests to try. All strategies end with a paged list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum ListStrategy {
    /// API servers before 1.33: only a paged list. Later: a list, a watch list, then a paged list.
    #[default]
    Auto,
    /// One list request without pages, then a paged list.
    List,
    /// A watch with `sendInitialEvents`, then a paged list.
    WatchList,
    /// Only a paged list.
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
