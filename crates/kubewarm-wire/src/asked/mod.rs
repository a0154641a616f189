//! One read request, parsed.

#[cfg(test)]
mod tests;

use super::{
    Failure, Form, Listing, accept, options,
    path::{Document, Path, Place},
    query::{Parameter, Query},
    watching::Watching,
};
use kubewarm_api::model::{
    FieldSelector, LabelSelector, ObjectKey, ProfileRef, Resource, ResourceVersion,
};
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
    /// A document about the API. `/api` and `/apis` have two forms.
    Document(Document, Listing),
    /// Objects of one resource.
    Objects(Objects),
}

/// A get, a list or a watch of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Of which resource.
    pub resource: Resource,
    /// The namespace of the path; `None` for all of them, and for what lives in none.
    pub namespace: Option<Arc<str>>,
    /// The one object that a get names; `None` for those that the selectors select.
    pub name: Option<Arc<str>>,
    /// Which labels they have. Empty for a get.
    pub labels: LabelSelector,
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
        let (profile, named) = Path::parse(path)?;
        let what = match named {
            Path::Objects(place) => What::Objects(objects(method, place, query, accept)?),
            Path::Nothing => return Err(Failure::no_such_path()),
            _ if method != "GET" => return Err(Failure::only_get()),
            Path::Document(document @ (Document::Core | Document::Groups)) => {
                What::Document(document, accept::listing(accept)?)
            }
            Path::Document(document) => {
                accept::plain(accept)?;
                What::Document(document, Listing::Legacy)
            }
        };
        Ok(Self { profile, what })
    }
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
    let is_list = name.is_none() && !query.is_set(Parameter::Watch);
    let mut objects = Objects {
        resource,
        namespace,
        name,
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        at: At::Latest,
        limit: None,
        form: accept::form(accept, is_list)?,
        watch: None,
    };
    match objects.name {
        Some(_) => objects.at = options::of_get(&query)?,
        None => options::of_list(&query, &mut objects)?,
    }
    objects.form = options::of_form(objects.form, &query)?;
    Ok(objects)
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

impl Objects {
    /// The one name that an object of the answer can have: that of a get, or that of a list by `metadata.name=`.
    #[must_use]
    pub fn only_name(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.fields.name())
    }

    /// The fields that an access review names. Authorizers may allow a list for the fields that it selects by. They know no
    /// declared index, so a review names none.
    #[must_use]
    pub fn reviewed_fields(&self) -> FieldSelector {
        self.fields.without_indexes()
    }

    /// What the caller must be allowed, as the API server puts it: a list by `metadata.name=` is a
    /// list of that name, and a namespace stands within itself. From the same fields that select, so
    /// that nothing is read but what was reviewed.
    #[must_use]
    pub fn access(&self) -> Access<'_> {
        let name = self.name.as_deref();
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
