//! Commands that are printed to be copied.

use kubewarm_api::{model::is_dns_label, v1alpha1::CacheProfile};
use std::{ffi::OsString, path::Path};

/// The name of the program as kubectl's plugin.
pub(crate) const PLUGIN: &str = "kubectl-warm";

/// What whoever called this process types for it: `kubewarm`, or `kubectl warm`.
pub(super) fn program() -> &'static str {
    let called = std::env::args_os().next();
    if is_plugin(called.as_ref()) { "kubectl warm" } else { "kubewarm" }
}

/// `text`, where commands between backticks are written as whoever called this process types them.
#[must_use]
pub fn as_called(text: &str) -> String {
    text.replace("`kubewarm ", &format!("`{} ", program()))
}

/// Whether a process that was called by the path `called` is kubectl's plugin.
pub(crate) fn is_plugin(called: Option<&OsString>) -> bool {
    let stem = called.and_then(|path| Path::new(path).file_stem());
    stem.is_some_and(|stem| stem == PLUGIN || stem == "kubectl_warm")
}

/// The environment variable of a flag of `run`: `KUBEWARM_ADMIN_ADDR` of `admin-addr`.
pub(crate) fn variable(flag: &str) -> String {
    format!("KUBEWARM_{}", flag.to_uppercase().replace('-', "_"))
}

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
