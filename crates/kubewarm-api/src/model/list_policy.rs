use std::time::Duration;

/// Settings for the list requests of all informers, from the operator's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPolicy {
    /// Which kinds of list request an informer tries, in which order.
    pub strategy: ListStrategy,
    /// Number of objects in each page of a paged list, 50 to 5000.
    pub page_size: u32,
    /// Timeout of a watch list, 5 s to 10 minutes. If the final bookmark has not arrived by then,
    /// the informer tries a paged list.
    pub watch_list_timeout: Duration,
}

/// Kinds of list request that an informer tries in order until one request succeeds. Every strategy
/// ends with a paged list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum ListStrategy {
    /// For API servers before Kubernetes 1.33, only a paged list. For later versions, one list
    /// without pages, then a watch list, then a paged list.
    #[default]
    Auto,
    /// One list request without pages, then a paged list.
    List,
    /// A watch list (a watch with `sendInitialEvents`), then a paged list.
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
