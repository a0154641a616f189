//! Everything of a list but its items.

use super::split::ListSplitter;
use kubewarm_api::model::{Fault, Reason, ResourceVersion};
use serde::Deserialize;

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    metadata: ListMeta,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) token: String,
    #[serde(default)]
    pub(super) remaining_item_count: Option<u64>,
}

impl ListMeta {
    /// Of what a splitter has left over.
    pub(super) fn of(splitter: &ListSplitter) -> Result<Self, Fault> {
        Self::parse(&splitter.frame())
    }

    /// Of a whole list, or of one without its items.
    pub(super) fn parse(json: &[u8]) -> Result<Self, Fault> {
        let frame: Frame = serde_json::from_slice(json)
            .map_err(|_| Fault::new(Reason::Malformed, "the answer is not a list"))?;
        Ok(frame.metadata)
    }

    /// # Errors
    ///
    /// [`Reason::Malformed`] for a list without a version.
    pub(super) fn version(&self) -> Result<ResourceVersion, Fault> {
        ResourceVersion::parse(&self.resource_version)
            .ok_or_else(|| Fault::new(Reason::Malformed, "the list has no resourceVersion"))
    }
}
