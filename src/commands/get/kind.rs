//! What people call a kind.

use kubewarm_api::model::{Resource, ResourceInfo};
use kubewarm_client::Served;

/// The resource that `typed` names among those served: a plural, singular or short name or a kind, with `.group` or
/// `.version.group` behind it or not. Of several the first, built-in groups before others.
pub(super) fn find<'a>(served: &'a Served, typed: &str) -> Option<&'a ResourceInfo> {
    let (name, place) = typed.split_once('.').unwrap_or((typed, ""));
    let is_there = |resource: &Resource| {
        place.is_empty()
            || resource.group() == place
            || place.strip_prefix(resource.version()).and_then(|rest| rest.strip_prefix('.'))
                == Some(resource.group())
    };
    served.resources().find(|it| it.is_called(name) && is_there(&it.resource))
}
