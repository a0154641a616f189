//! `Accept` headers of the API.

pub(crate) const ANY: &str = "*/*";
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(crate) const OLD_TABLE: &str = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
/// What kubectl sends for a table.
pub(crate) const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                                  application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// Discovery of all groups in one document.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
