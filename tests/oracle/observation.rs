//! What readers received from replicas. The file `record.json` of a run contains it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Milliseconds since the run began.
pub(crate) type Millis = u64;

/// The index of a collection in `COLLECTIONS`.
pub(crate) type CollectionIndex = usize;

/// One reader at one replica, with a ServiceAccount of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ReaderId {
    pub(crate) replica: usize,
    pub(crate) name: String,
}

/// The part of an object that a response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    Whole,
    /// A row of a Table contains only the object's metadata.
    Metadata,
}

impl Form {
    /// The `Accept` header that requests this form.
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=Table;v=v1;g=meta.k8s.io",
        }
    }
}

/// One state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectState {
    pub(crate) version: u64,
    /// A hash of the object without its version. So a deletion, which changes only the version,
    /// keeps the hash.
    pub(crate) digest: u64,
}

/// One response or watch event, or a mark between them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(crate) reader: ReaderId,
    pub(crate) collection: CollectionIndex,
    /// When the reader sent the request.
    pub(crate) sent: Millis,
    /// When the head of the response arrived, or the event. For refusals and writes: when the
    /// request ended.
    pub(crate) arrived: Millis,
    pub(crate) content: ObservedContent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ObservedContent {
    /// A refused read: the status code, which is neither 200 nor a 404 for an object. 0 stands for
    /// a broken connection.
    Refused {
        code: u16,
    },
    List {
        form: Form,
        version: u64,
        at_least: u64,
        objects: BTreeMap<String, ObjectState>,
        age: StatedAge,
    },
    /// The response to a get. `object` is `None` if the object does not exist.
    Get {
        name: String,
        object: Option<ObjectState>,
        age: StatedAge,
    },
    /// The API server accepted the reader's own write, which got this version.
    Written {
        name: String,
        version: u64,
    },
    /// A response to a list or get that is no list, is no object of the requested name, or contains
    /// an object twice.
    Malformed,
    /// A watch began after this version. The reader's events and bookmarks that follow belong to
    /// this watch. If it `resumes` an earlier watch, the judge treats both as one watch.
    WatchOpened {
        version: u64,
        resumes: bool,
    },
    Event {
        form: Form,
        change: ChangeType,
        name: String,
        object: ObjectState,
    },
    Bookmark {
        version: u64,
    },
}

impl ObservedContent {
    /// The version and the objects of a list, so that a planted fault can change them.
    pub(crate) fn list_mut(&mut self) -> Option<(&mut u64, &mut BTreeMap<String, ObjectState>)> {
        if let Self::List { version, objects, .. } = self { Some((version, objects)) } else { None }
    }
}

/// What a response states about its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatedAge {
    /// The header `Kubewarm-Freshness-Milliseconds`. `None` if the API server answered, or if the
    /// object does not exist.
    pub(crate) freshness: Option<Millis>,
    /// Whether the response has a `Warning`.
    pub(crate) has_warning: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// The name and the state of an object in JSON.
pub(crate) fn named_state(object: &Value, form: Form) -> Option<(String, ObjectState)> {
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str()?.to_owned();
    let version = metadata.get("resourceVersion")?.as_str()?.parse().ok()?;
    Some((name, ObjectState { version, digest: digest(object, form) }))
}

/// A hash of the object without the parts that depend on the response: its version, `kind` and
/// `apiVersion`.
pub(crate) fn digest(object: &Value, form: Form) -> u64 {
    let mut parts: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut metadata = object.get("metadata").cloned().unwrap_or_default();
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("resourceVersion");
    }
    parts.insert("metadata", &metadata);
    if form == Form::Whole {
        let others = object.as_object().into_iter().flatten();
        let others =
            others.filter(|(name, _)| !["metadata", "kind", "apiVersion"].contains(&name.as_str()));
        parts.extend(others.map(|(name, value)| (name.as_str(), value)));
    }
    let mut hasher = DefaultHasher::new();
    for (name, value) in parts {
        // The text is the same for equal objects, because serde_json sorts the fields.
        (name, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}
