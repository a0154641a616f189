//! The paths of what is asked for.

use super::{Form, GetArgs};
use form_urlencoded::Serializer;
use kubewarm_api::model::Resource;

/// As many a page as kubectl has.
const PAGE: &str = "500";

/// Objects.
pub(super) const WHOLE: &str = "application/json";
/// Columns as the server has them; objects where it has none.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The media type of what is printed.
pub(super) fn accept(output: Option<Form>) -> &'static str {
    match output {
        None | Some(Form::Wide) => TABLE,
        Some(Form::Json | Form::Yaml | Form::Name) => WHOLE,
    }
}

/// One request, which may come in pages.
#[derive(Debug)]
pub(super) struct Request {
    path: String,
    selectors: Vec<(&'static str, String)>,
    is_of_one: bool,
}

impl Request {
    /// `namespace`: of all of them, and of kinds without, `None`.
    pub(super) fn new(resource: &Resource, namespace: Option<&str>, args: &GetArgs) -> Self {
        let mut path = resource.api_path();
        if let Some(namespace) = namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", resource.resource());
        if let Some(name) = &args.name {
            path = format!("{path}/{name}");
        }
        let selectors =
            [("labelSelector", &args.selector), ("fieldSelector", &args.field_selector)];
        let selectors = selectors.into_iter().filter_map(|(key, it)| Some((key, it.clone()?)));
        Self { path, selectors: selectors.collect(), is_of_one: args.name.is_some() }
    }

    pub(super) fn is_of_one(&self) -> bool {
        self.is_of_one
    }

    /// All of it at once.
    pub(super) fn whole(&self) -> String {
        self.with(&[])
    }

    /// The first page, or the one that `next` stands for.
    pub(super) fn page(&self, next: Option<&str>) -> String {
        if self.is_of_one {
            return self.whole();
        }
        let limit = [("limit", PAGE)];
        let next = next.map(|token| ("continue", token));
        self.with(&limit.into_iter().chain(next).collect::<Vec<_>>())
    }

    fn with(&self, more: &[(&str, &str)]) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(&self.selectors).extend_pairs(more);
        match query.finish().as_str() {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::parse;
    use kubewarm_api::model::GroupResource;

    fn of(group: &str, resource: &str, namespace: Option<&str>, line: &str) -> Request {
        let args = parse::<GetArgs>(&format!("x {line}")).unwrap();
        let of = GroupResource::new(group, resource).unwrap();
        Request::new(&Resource::new(of, "v1").unwrap(), namespace, &args)
    }

    #[test]
    fn selectors_and_pages_are_of_lists() {
        let pods = of("", "pods", Some("shop"), "-l app=web,tier!=2");
        assert_eq!(
            pods.whole(),
            "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb%2Ctier%21%3D2"
        );
        assert!(pods.page(Some("a=b")).ends_with("&limit=500&continue=a%3Db"));
        let one = of("apps", "deployments", Some("shop"), "front");
        assert_eq!(one.page(None), "/apis/apps/v1/namespaces/shop/deployments/front");
        assert_eq!(of("", "nodes", None, "").page(None), "/api/v1/nodes?limit=500");
    }
}
