//! One read request, parsed.

use super::{
    Failure, Form, LabelFilter, Listing,
    accept::{self, Shape},
    options,
    path::{Named, Path, Place},
    query::{Parameter, Query},
    watching::Watching,
};
use kubewarm_api::model::{FieldSelector, ObjectKey, ProfileRef, Resource, ResourceVersion};
use std::{num::NonZeroU64, sync::Arc};

/// What a request reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Set below `/profiles/<namespace>/<name>`: no other profile's cells answer.
    pub profile: Option<ProfileRef>,
    /// What is read.
    pub what: What,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A document about the API.
    Document(Document),
    /// Objects of one resource.
    Objects(Objects),
}

/// A document about the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `/version`.
    Version,
    /// `/api`.
    Core(Listing),
    /// `/apis`.
    Groups(Listing),
    /// `/apis/<group>`.
    Group(Arc<str>),
    /// `/api/<version>`, where the group is empty, or `/apis/<group>/<version>`.
    Resources {
        /// Empty for the core group.
        group: Arc<str>,
        /// Such as `v1`.
        version: Arc<str>,
    },
}

/// A get, a list or a watch of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Of which resource.
    pub resource: Resource,
    /// The namespace of the path; `None` for all of them, and for what lives in none.
    pub namespace: Option<Arc<str>>,
    /// One object, or those that the selectors select.
    pub selection: Selection,
    /// Which labels they have. Empty for a get.
    pub labels: LabelFilter,
    /// Which fields they have; whether the kind knows them is not decided here. Empty for a get.
    pub fields: FieldSelector,
    /// How new the answer has to be.
    pub at: At,
    /// How many objects at most. `None` where the API server ignores it, too.
    pub limit: Option<NonZeroU64>,
    /// What of each object.
    pub form: Form,
    /// Set where changes are asked for. Then `at` is how new the state has to be that it begins with,
    /// and `limit` is `None`, whatever the request says of it.
    pub watch: Option<Watching>,
}

/// One object, or some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The object of this name.
    Get {
        /// Its name.
        name: Arc<str>,
    },
    /// What the selectors select.
    List,
}

/// How new an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// As new as can be known: no version was given.
    Latest,
    /// As it is held: version 0.
    Any,
    /// Of this version or a later one.
    NotOlderThan(ResourceVersion),
    /// Of this version.
    Exact(ResourceVersion),
    /// The rest of a list.
    Continue {
        /// The version of the pages before; `None`: whatever is newest.
        version: Option<ResourceVersion>,
        /// The last object of the page before, which need not exist any more. Its namespace is that
        /// of the path, where it has one.
        after: ObjectKey,
    },
}

/// What a caller must be allowed, in the terms of a `SubjectAccessReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// `get`, `list` or `watch`.
    pub verb: &'static str,
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// Empty for all namespaces, and for what lives in none.
    pub namespace: &'a str,
    /// Empty for all names.
    pub name: &'a str,
}

impl Asked {
    /// Reads a request: `path` and `query` as they came, percent-encoded, and the first `Accept`
    /// header.
    ///
    /// # Errors
    ///
    /// What the API server would answer: 400, 404, 405, 406 or 422; and 421 for subresources and
    /// paths below `/watch/`, which are not served. None of it depends on what is stored.
    pub fn parse(
        method: &str,
        path: &str,
        query: Option<&str>,
        accept: Option<&str>,
    ) -> Result<Self, Failure> {
        let Path { profile, named } = Path::parse(path)?;
        let what = match named {
            Named::Objects(place) => What::Objects(objects(method, place, query, accept)?),
            Named::Nothing => return Err(Failure::no_such_path()),
            _ if method != "GET" => return Err(Failure::only_get()),
            Named::Core => What::Document(Document::Core(accept::listing(accept)?)),
            Named::Groups => What::Document(Document::Groups(accept::listing(accept)?)),
            Named::Version => plain(Document::Version, accept)?,
            Named::Group(group) => plain(Document::Group(group), accept)?,
            Named::Resources(group, version) => {
                plain(Document::Resources { group, version }, accept)?
            }
        };
        Ok(Self { profile, what })
    }
}

fn plain(document: Document, accept: Option<&str>) -> Result<What, Failure> {
    accept::plain(accept)?;
    Ok(What::Document(document))
}

/// In the API server's order: the media type, the options, what they mean.
fn objects(
    method: &str,
    place: Place,
    query: Option<&str>,
    accept: Option<&str>,
) -> Result<Objects, Failure> {
    let Place { resource, namespace, name, not_served, subresource: _ } = place;
    let of = resource.group_resource();
    if method != "GET" {
        let Some(verb) = verb(method, name.is_some()) else {
            return Err(Failure::only_get());
        };
        return Err(Failure::method_not_allowed(of, verb));
    }
    if let Some(why) = not_served {
        return Err(Failure::not_cached(of, name.as_deref().unwrap_or_default(), why));
    }
    let query = Query::parse(query)?;
    let shape = match (&name, query.is_set(Parameter::Watch)) {
        (Some(_), _) => Shape::One,
        (None, true) => Shape::Event,
        (None, false) => Shape::List,
    };
    let form = accept::form(accept, shape)?;
    let Some(name) = name else {
        let options::Options { labels, fields, at, limit, watch } =
            options::of_list(&query, namespace.clone())?;
        let form = options::of_form(form, &query)?;
        let selection = Selection::List;
        return Ok(Objects {
            resource,
            namespace,
            selection,
            labels,
            fields,
            at,
            limit,
            form,
            watch,
        });
    };
    Ok(Objects {
        at: options::of_get(&query)?,
        form: options::of_form(form, &query)?,
        resource,
        namespace,
        selection: Selection::Get { name },
        labels: LabelFilter::default(),
        fields: FieldSelector::default(),
        limit: None,
        watch: None,
    })
}

/// The verb that a method stands for.
fn verb(method: &str, is_named: bool) -> Option<&'static str> {
    Some(match (method, is_named) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

impl Document {
    /// The path that a caller must be allowed to get; without that of a profile before it.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Version => "/version".to_owned(),
            Self::Core(_) => "/api".to_owned(),
            Self::Groups(_) => "/apis".to_owned(),
            Self::Group(group) => format!("/apis/{group}"),
            Self::Resources { group, version } if group.is_empty() => format!("/api/{version}"),
            Self::Resources { group, version } => format!("/apis/{group}/{version}"),
        }
    }
}

impl Objects {
    /// The one name that is asked for.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.selection {
            Selection::Get { name } => Some(name),
            Selection::List => None,
        }
    }

    /// The fields that the caller must be allowed to select by, and no others: an authorizer may allow a list
    /// for what is selected by, and of indexes it knows nothing. What may be one is left out, so that it is
    /// decided as if it were not asked for, before anybody looks whether it is declared.
    #[must_use]
    pub fn reviewed_fields(&self) -> FieldSelector {
        self.fields.without_indexes(self.resource.group_resource())
    }

    /// What the caller must be allowed, as the API server puts it: a list by `metadata.name=` is a
    /// list of that name, and a namespace stands within itself. From the same fields that select, so
    /// that nothing is read but what was reviewed.
    #[must_use]
    pub fn access(&self) -> Access<'_> {
        let name = self.name();
        let is_namespace = name.is_some() && self.resource.resource() == "namespaces";
        let within = if is_namespace { name } else { self.namespace.as_deref() };
        let verb = match (name, &self.watch) {
            (Some(_), _) => "get",
            (None, Some(_)) => "watch",
            (None, None) => "list",
        };
        let selected = || self.fields.name().filter(|name| is_reviewable(name));
        Access {
            verb,
            group: self.resource.group(),
            version: self.resource.version(),
            resource: self.resource.resource(),
            namespace: within.unwrap_or_default(),
            name: name.or_else(selected).unwrap_or_default(),
        }
    }
}

/// `IsValidPathSegmentName` of apimachinery: other names are of no object, and not reviewed by name.
fn is_reviewable(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(path: &str, query: &str) -> Result<Asked, Failure> {
        Asked::parse("GET", path, Some(query), None)
    }

    fn objects_of(path: &str, query: &str) -> Objects {
        match get(path, query).unwrap().what {
            What::Objects(objects) => objects,
            What::Document(other) => panic!("{other:?}"),
        }
    }

    /// `verb namespace/name` of the review.
    fn reviewed(path: &str, query: &str) -> String {
        let objects = objects_of(path, query);
        let Access { verb, group, version, resource, namespace, name } = objects.access();
        format!("{verb} {resource}.{version}.{group} {namespace}/{name}")
    }

    #[test]
    fn the_review_is_about_the_very_request() {
        for (path, query, expected) in [
            ("/api/v1/namespaces/a/pods/p", "", "get pods.v1. a/p"),
            ("/api/v1/namespaces/a/pods/p", "watch=1", "get pods.v1. a/p"),
            ("/api/v1/namespaces/a/pods/p", "fieldSelector=metadata.name=q", "get pods.v1. a/p"),
            ("/api/v1/namespaces/a/pods", "", "list pods.v1. a/"),
            ("/api/v1/pods", "watch=true", "watch pods.v1. /"),
            ("/api/v1/pods", "fieldSelector=metadata.namespace=a", "list pods.v1. /"),
            ("/api/v1/pods", "fieldSelector=metadata.name%3Dp", "list pods.v1. /p"),
            ("/api/v1/pods", "fieldSelector=metadata.name!%3Dp", "list pods.v1. /"),
            ("/api/v1/pods", "fieldSelector=metadata.name=..", "list pods.v1. /"),
            ("/api/v1/pods", "fieldSelector=metadata.name=a%252Fb", "list pods.v1. /"),
            ("/api/v1/namespaces/a", "", "get namespaces.v1. a/a"),
            ("/api/v1/namespaces", "", "list namespaces.v1. /"),
            ("/apis/apps/v1/deployments", "", "list deployments.v1.apps /"),
        ] {
            assert_eq!(reviewed(path, query), expected, "{path}?{query}");
        }
    }

    #[test]
    fn a_get_has_no_selectors_and_a_list_has_all_of_them() {
        let query = "labelSelector=a>1,b&fieldSelector=metadata.name!=x&limit=5";
        let one = objects_of("/api/v1/nodes/n", query);
        assert!(one.labels.is_empty() && one.fields.is_empty() && one.limit.is_none());
        assert_eq!(one.name(), Some("n"));
        let all = objects_of("/api/v1/nodes", query);
        assert_eq!(all.labels.selector().to_string(), "b");
        assert_eq!(all.labels.comparisons().len(), 1);
        assert_eq!(all.fields.to_string(), "metadata.name!=x");
        assert_eq!((all.limit, all.form), (NonZeroU64::new(5), Form::Full));
    }

    #[test]
    fn documents_are_reviewed_by_their_paths() {
        for path in ["/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
            for asked in [path.to_owned(), format!("{path}/"), format!("/profiles/a/b{path}")] {
                let What::Document(document) = get(&asked, "").unwrap().what else {
                    panic!("{asked}")
                };
                assert_eq!(document.path(), path);
            }
        }
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_kind_of_refusal() {
        for (method, path, accept, code) in [
            ("GET", "/metrics", None, 404),
            ("POST", "/metrics", None, 404),
            ("POST", "/apis", None, 405),
            ("HEAD", "/api/v1/pods", None, 405),
            ("PUT", "/api/v1/namespaces/a/pods/p", None, 405),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", None, 405),
            ("GET", "/api/v1/namespaces/a/pods/p/log", None, 421),
            ("GET", "/api/v1/namespaces/a/status", None, 421),
            ("GET", "/api/v1/watch/pods", None, 421),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", None, 421),
            ("GET", "/api/v1/pods", Some("application/yaml"), 406),
            ("GET", "/version", Some("application/yaml"), 406),
            ("GET", "/apis", Some("text/html"), 406),
            ("GET", "/api/v1/pods/a%2Fb", None, 400),
            ("DELETE", "/api/v1//pods", None, 400),
        ] {
            let failure = Asked::parse(method, path, None, accept).unwrap_err();
            assert_eq!(failure.code(), code, "{method} {path}");
        }
        let failure = Asked::parse("DELETE", "/api/v1/pods", None, None).unwrap_err();
        assert_eq!(
            failure.message(),
            "deletecollection is not supported on resources of kind \"pods\""
        );
    }

    #[test]
    fn a_profile_stands_beside_the_request_and_changes_nothing_in_it() {
        let plain = get("/api/v1/pods", "labelSelector=a").unwrap();
        let below = get("/profiles/team-a/p/api/v1/pods", "labelSelector=a").unwrap();
        assert_eq!(plain.what, below.what);
        assert_eq!((plain.profile.is_none(), below.profile.is_some()), (true, true));
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(
            method in "(GET|POST|.{0,5})",
            path in r"(/(api|apis|v1|namespaces|watch|pods|a|%2F|\.\.|%|profiles|version|.{0,3})){0,8}/?",
            query in proptest::option::of(
                r"((labelSelector|fieldSelector|limit|continue|watch|resourceVersion|resourceVersionMatch)=.{0,20}&?){0,4}"
            ),
            accept in proptest::option::of(".{0,40}"),
        ) {
            if let Ok(Asked { what: What::Objects(objects), .. }) =
                Asked::parse(&method, &path, query.as_deref(), accept.as_deref())
            {
                let access = objects.access();
                prop_assert_eq!(access.verb == "get", objects.name().is_some());
                if access.verb == "list" {
                    prop_assert_eq!(access.namespace, objects.namespace.as_deref().unwrap_or(""));
                }
            }
        }
    }
}
