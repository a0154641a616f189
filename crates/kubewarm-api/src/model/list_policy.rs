use std::time::Duration;

/// Settings for the list requests of all informers, from the operator's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPolicy {
    /// Which list methods an informer tries, in which order.
    pub strategy: ListStrategy,
    /// Number of objects in each page of a paged list, 50 to 5000.
    pub page_size: u32,
    /// Longest time without bytes of a streaming list, 5 s to 10 minutes. After this time, or after
    /// ten times this time in total, the informer tries its next method.
    pub watch_list_timeout: Duration,
}

/// The list methods that an informer tries in order until one succeeds. Every strategy ends with a
/// paged list, which every API server supports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum ListStrategy {
    /// For API servers before Kubernetes 1.33, which build a whole list in memory, only a paged
    /// list. For later versions, one list without pages, then a streaming list, then a paged list.
    #[default]
    Auto,
    /// One list request without pages, then a paged list.
    List,
    /// A streaming list (a watch with `sendInitialEvents`), then a paged list.
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
