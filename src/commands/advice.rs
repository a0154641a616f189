//! Commands that users copy from the output.

use kubewarm_api::{model::is_dns_label, v1alpha1::CacheProfile};
use std::{ffi::OsString, path::Path};

/// File name of the program as a kubectl plugin.
pub(crate) const PLUGIN: &str = "kubectl-warm";

/// Returns the command that started this process: `kubewarm`, or `kubectl warm` for the plugin.
pub(super) fn program() -> &'static str {
    let called = std::env::args_os().next();
    if is_plugin(called.as_ref()) { "kubectl warm" } else { "kubewarm" }
}

/// Replaces `kubewarm` at the start of each command between backticks in `text` by the command that started this
/// process.
#[must_use]
pub fn as_called(text: &str) -> String {
    text.replace("`kubewarm ", &format!("`{} ", program()))
}

/// Whether `called`, the path of the program file, is the kubectl plugin.
pub(crate) fn is_plugin(called: Option<&OsString>) -> bool {
    let stem = called.and_then(|path| Path::new(path).file_stem());
    stem.is_some_and(|stem| stem == PLUGIN || stem == "kubectl_warm")
}

/// Returns the environment variable of a `run` flag, such as `KUBEWARM_ADMIN_ADDR` for `admin-addr`.
pub(crate) fn variable(flag: &str) -> String {
    format!("KUBEWARM_{}", flag.to_uppercase().replace('-', "_"))
}

/// Returns `NAME -n NAMESPACE` of `profile`, for printed commands. A name or namespace that is not a DNS name becomes
/// `NAME`. So no object in the cluster can add shell code to a command.
pub(super) fn address(profile: &CacheProfile) -> String {
    let metadata = &profile.metadata;
    format!("{} -n {}", plain(metadata.name.as_deref()), plain(metadata.namespace.as_deref()))
}

/// Returns commands that show and then grant the permissions of `profile`. Both commands fail if the profile was edited
/// after this call. `operator` is the operator namespace, or a placeholder.
pub(super) fn grant(profile: &CacheProfile, operator: &str) -> [String; 2] {
    let generation = profile.metadata.generation.unwrap_or_default();
    let of = address(profile);
    let rbac = format!("{} rbac {of} --operator-namespace {operator}", program());
    [
        format!("{rbac} --diff --generation={generation} &&"),
        format!("  {rbac} --generation={generation} | kubectl apply -f -"),
    ]
}

fn plain(name: Option<&str>) -> &str {
    name.filter(|name| name.split('.').all(is_dns_label)).unwrap_or("NAME")
}
