//! What people call a kind.

use crate::{
    cluster::{Kind, Served},
    model::Resource,
};

/// What `typed` means among what is served: a plural, singular or short name or a kind, with `.group` or
/// `.version.group` behind it or not. Of several the first, built-in groups before others.
pub(super) fn find<'a>(served: &'a Served, typed: &str) -> Option<(Resource, &'a Kind)> {
    let (name, place) = typed.split_once('.').unwrap_or((typed, ""));
    let name = name.to_lowercase();
    let is_called = |resource: &Resource, kind: &Kind| {
        let singular = if kind.singular.is_empty() { &kind.name } else { &kind.singular };
        resource.resource() == name
            || singular.to_lowercase() == name
            || kind.name.to_lowercase() == name
            || kind.short_names.iter().any(|short| **short == *name)
    };
    let is_there = |resource: &Resource| {
        place.is_empty()
            || resource.group() == place
            || place.strip_prefix(resource.version()).and_then(|rest| rest.strip_prefix('.'))
                == Some(resource.group())
    };
    served.resources().find(|(resource, kind)| is_called(resource, kind) && is_there(resource))
}
