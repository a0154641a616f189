//! Commands that users copy from the output.

use kubewarm_api::{model::is_dns_label, v1alpha1::CacheProfile};
use std::{ffi::OsString, path::Path};

pub(crate) const PLUGIN: &str = "kubectl-warm";

/// Returns the command as the user typed it: `kubewarm`, or `kubectl warm` for the kubectl plugin.
pub(super) fn program() -> &'static str {
    let called = std::env::args_os().next();
    if is_plugin(called.as_ref()) { "kubectl warm" } else { "kubewarm" }
}

/// Replaces `kubewarm` at the start of each command between backticks in `text` by `kubectl warm`,
/// if this process is the kubectl plugin.
pub fn as_called(text: &str) -> String {
    text.replace("`kubewarm ", &format!("`{} ", program()))
}

/// Whether the program runs as a kubectl plugin. `called` is the path of the program file.
pub(crate) fn is_plugin(called: Option<&OsString>) -> bool {
    let stem = called.and_then(|path| Path::new(path).file_stem());
    stem.is_some_and(|stem| stem == PLUGIN || stem == "kubectl_warm")
}

/// Returns the environment variable that sets a flag of `kubewarm run`, such as
/// `KUBEWARM_ADMIN_ADDR` for `admin-addr`.
pub(crate) fn variable(flag: &str) -> String {
    format!("KUBEWARM_{}", flag.to_uppercase().replace('-', "_"))
}

/// Returns the arguments `NAME -n NAMESPACE` that select `profile` in a printed command. A name or
/// namespace that is not a DNS name becomes the placeholder `NAME`. No object in the cluster can
/// therefore add shell code to a printed command.
pub(super) fn address(profile: &CacheProfile) -> String {
    let metadata = &profile.metadata;
    format!("{} -n {}", plain(metadata.name.as_deref()), plain(metadata.namespace.as_deref()))
}

/// Returns two commands: the first shows the permissions that `profile` needs, the second grants
/// them. Both commands fail if the profile was edited after this call, so that nobody grants what
/// nobody has reviewed. `operator` is the operator namespace, or a placeholder.
pub(super) fn grant(profile: &CacheProfile, operator: &str) -> [String; 2] {
    let generation = profile.metadata.generation.unwrap_or_default();
    let address = address(profile);
    let rbac = format!("{} rbac {address} --operator-namespace {operator}", program());
    [
        format!("{rbac} --diff --generation={generation} &&"),
        format!("  {rbac} --generation={generation} | kubectl apply -f -"),
    ]
}

pub(super) fn plain(name: Option<&str>) -> &str {
    name.filter(|name| name.split('.').all(is_dns_label)).unwrap_or("NAME")
}
