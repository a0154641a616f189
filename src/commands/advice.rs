//! Commands that are printed to be copied.

use crate::cli::program;
use kubewarm_api::{model::is_dns_label, v1alpha1::CacheProfile};

/// `NAME -n NAMESPACE` of `profile`. Anything that is no name of the API server does not get into a command.
pub(super) fn address(profile: &CacheProfile) -> String {
    let metadata = &profile.metadata;
    format!("{} -n {}", plain(metadata.name.as_deref()), plain(metadata.namespace.as_deref()))
}

/// Looks at what the profile of the cluster needs and grants it, unless the profile was edited in between.
pub(super) fn grant(profile: &CacheProfile) -> [String; 2] {
    let generation = profile.metadata.generation.unwrap_or_default();
    let rbac = format!("{} rbac {}", program(), address(profile));
    [
        format!("{rbac} --diff --generation={generation} &&"),
        format!("  {rbac} --generation={generation} | kubectl apply -f -"),
    ]
}

fn plain(name: Option<&str>) -> &str {
    name.filter(|name| name.split('.').all(is_dns_label)).unwrap_or("NAME")
}
