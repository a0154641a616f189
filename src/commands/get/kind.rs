//! What people call a kind.

use kubewarm_api::model::Resource;
use kubewarm_client::{Kind, Served};

/// What `typed` means among what is served: a plural, singular or short name or a kind, with `.group` or
/// `.version.group` behind it or not. Of several the first, built-in groups before others.
pub(super) fn find<'a>(served: &'a Served, typed: &str) -> Option<(Resource, &'a Kind)> {
    let (name, place) = typed.split_once('.').unwrap_or((typed, ""));
    let is_called = |resource: &Resource, kind: &Kind| {
        resource.resource().eq_ignore_ascii_case(name) || kind.is_called(name)
    };
    let is_there = |resource: &Resource| {
        place.is_empty()
            || resource.group() == place
            || place.strip_prefix(resource.version()).and_then(|rest| rest.strip_prefix('.'))
                == Some(resource.group())
    };
    served.resources().find(|(resource, kind)| is_called(resource, kind) && is_there(resource))
}
