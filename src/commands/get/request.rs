//! Paths and media types of the requests of `get`.

use super::{super::output::OutputFormat, GetArgs};
use form_urlencoded::Serializer;
use kubewarm_api::model::Resource;

/// Media type of complete objects as JSON.
pub(super) const WHOLE: &str = "application/json";
/// Media type of the server's Table, or of objects if the server has no columns for the resource.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Returns the media type to request for an output format.
pub(super) fn accept(output: Option<OutputFormat>) -> &'static str {
    match output {
        None | Some(OutputFormat::Wide) => TABLE,
        Some(OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Name) => WHOLE,
    }
}

/// Returns path and query of a request. `namespace` is `None` for cluster-scoped resources and for
/// all namespaces. `page` contains query parameters such as `limit`.
pub(super) fn path(
    resource: &Resource,
    namespace: Option<&str>,
    args: &GetArgs,
    page: &[(&str, &str)],
) -> String {
    let mut path = resource.api_path();
    if let Some(namespace) = namespace {
        path = format!("{path}/namespaces/{namespace}");
    }
    path = format!("{path}/{}", resource.resource());
    if let Some(name) = &args.name {
        return format!("{path}/{name}");
    }
    let selectors = [("labelSelector", &args.selector), ("fieldSelector", &args.field_selector)];
    let selectors = selectors.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
    let query = Serializer::new(String::new()).extend_pairs(selectors).extend_pairs(page).finish();
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fixtures::parse;
    use kubewarm_api::model::GroupResource;

    fn build_path(
        (group, resource): (&str, &str),
        namespace: Option<&str>,
        line: &str,
        page: &[(&str, &str)],
    ) -> String {
        let args = parse::<GetArgs>(&format!("x {line}")).unwrap();
        let resource = GroupResource::new(group, resource).unwrap();
        path(&Resource::new(resource, "v1").unwrap(), namespace, &args, page)
    }

    #[test]
    fn only_lists_have_selectors_and_pages() {
        let pods = |page: &[(&str, &str)]| {
            build_path(("", "pods"), Some("shop"), "-l app=web,tier!=2", page)
        };
        let selected = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb%2Ctier%21%3D2";
        assert_eq!(pods(&[]), selected);
        let page = [("limit", "500"), ("continue", "a=b")];
        assert_eq!(pods(&page), format!("{selected}&limit=500&continue=a%3Db"));
        let object = build_path(("apps", "deployments"), Some("shop"), "front", &page);
        assert_eq!(object, "/apis/apps/v1/namespaces/shop/deployments/front");
        assert_eq!(build_path(("", "nodes"), None, "", &page[..1]), "/api/v1/nodes?limit=500");
    }
}
