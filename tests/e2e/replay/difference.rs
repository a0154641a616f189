//! Every permitted difference between an answer of kubewarm and the API server's answer.

use serde_json::{Value, json};

use super::Answer;

/// A permitted difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    Ages,
    ContinueToken,
    ContinueWords,
    ExactVersion,
    FieldLabels,
    ForgottenVersion,
    FutureVersion,
    ListVersion,
    MediaTypes,
    NoNumber,
    OnlyReads,
    SecretMetadata,
    UnknownPath,
    Unserved,
    UnusualPath,
    WarmKinds,
}

impl Difference {
    pub(crate) const ALL: &[Self] = &[
        Self::Ages,
        Self::ContinueToken,
        Self::ContinueWords,
        Self::ExactVersion,
        Self::FieldLabels,
        Self::ForgottenVersion,
        Self::FutureVersion,
        Self::ListVersion,
        Self::MediaTypes,
        Self::NoNumber,
        Self::OnlyReads,
        Self::SecretMetadata,
        Self::UnknownPath,
        Self::Unserved,
        Self::UnusualPath,
        Self::WarmKinds,
    ];

    /// The name of the difference in the document.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ages => "ages",
            Self::ContinueToken => "continue token",
            Self::ContinueWords => "continue words",
            Self::ExactVersion => "exact version",
            Self::FieldLabels => "field labels",
            Self::ForgottenVersion => "forgotten version",
            Self::FutureVersion => "future version",
            Self::ListVersion => "list version",
            Self::MediaTypes => "media types",
            Self::NoNumber => "no number",
            Self::OnlyReads => "only reads",
            Self::SecretMetadata => "secret metadata",
            Self::UnknownPath => "unknown path",
            Self::Unserved => "unserved",
            Self::UnusualPath => "unusual path",
            Self::WarmKinds => "warm kinds",
        }
    }

    /// Returns whether the difference occurs only at certain moments.
    pub(crate) fn is_by_chance(self) -> bool {
        matches!(self, Self::Ages | Self::FutureVersion)
    }

    /// Removes the difference from both answers, and nothing else.
    pub(crate) fn forgive(self, ours: &mut Answer, theirs: &mut Answer) {
        match self {
            Self::Ages => each(ours, theirs, |answer| rows(answer).for_each(without_ages)),
            Self::ContinueToken => each(ours, theirs, |answer| {
                let token = &mut answer.body["metadata"]["continue"];
                if token.as_str().is_some_and(|token| !token.is_empty()) {
                    *token = json!("*");
                }
            }),
            Self::ContinueWords => each(ours, theirs, |answer| {
                keep_before(
                    &mut answer.body,
                    "invalid continue token: continue key is not valid: ",
                );
            }),
            Self::ForgottenVersion => {
                let event = &ours.body[0]["object"];
                let text = event["message"].as_str().unwrap_or_default();
                let is_known = text.starts_with("too old resource version: 1 (");
                if is_known && event["code"] == 410 && ours.body[1].is_null() {
                    *ours = theirs.clone();
                }
            }
            Self::FutureVersion => each(ours, theirs, |answer| {
                keep_before(&mut answer.body, ", current: ");
                let event = answer.body.get_mut(0).and_then(|event| event.get_mut("object"));
                if let Some(object) = event {
                    keep_before(object, ", current: ");
                }
            }),
            Self::ListVersion => each(ours, theirs, |answer| {
                let body = &mut answer.body;
                let is_list = ["items", "rows"].iter().any(|list| body.get(list).is_some());
                let version = &mut body["metadata"]["resourceVersion"];
                if is_list && version.as_str().is_some_and(|version| !version.is_empty()) {
                    *version = json!("*");
                }
            }),
            Self::MediaTypes => {
                decided(ours, theirs, 406, &[500]);
                each(ours, theirs, |answer| {
                    if answer.code == 406 {
                        (answer.body, answer.is_indented) = (Value::Null, false);
                    }
                });
            }
            Self::UnknownPath => {
                // kubewarm checks the parameters before it knows whether the kind exists.
                let is_unknown = theirs.body.is_null()
                    || theirs.body["message"] == "the server could not find the requested resource";
                if theirs.code == 404 && is_unknown && matches!(ours.code, 400 | 404 | 406 | 422) {
                    *ours = theirs.clone();
                }
            }
            Self::Unserved => {
                decided(ours, theirs, 421, &[200, 400, 403, 404, 405, 406, 422, 500, 504]);
            }
            Self::UnusualPath => {
                decided(ours, theirs, 400, &[200, 301, 400, 403, 404, 405, 406, 422, 500, 504]);
            }
            Self::ExactVersion => decided(ours, theirs, 410, &[200, 410]),
            Self::FieldLabels => decided(ours, theirs, 400, &[200]),
            Self::NoNumber => decided(ours, theirs, 400, &[500]),
            Self::OnlyReads => decided(ours, theirs, 405, &[403, 405]),
            Self::SecretMetadata => each(ours, theirs, |answer| {
                let body = &mut answer.body;
                for list in ["items", "rows"] {
                    let all = body[list].as_array_mut().into_iter().flatten();
                    all.for_each(|it| as_kept(if list == "rows" { &mut it["object"] } else { it }));
                }
                as_kept(body);
            }),
            Self::WarmKinds => as_warm(ours, theirs),
        }
    }
}

fn each(ours: &mut Answer, theirs: &mut Answer, change: impl Fn(&mut Answer)) {
    change(ours);
    change(theirs);
}

/// If the answers have these status codes, treats them as equal.
fn decided(ours: &mut Answer, theirs: &mut Answer, own: u16, their: &[u16]) {
    if ours.code == own && their.contains(&theirs.code) {
        *ours = theirs.clone();
    }
}

/// Shortens the message of a `Status` to the part before and including these words.
fn keep_before(status: &mut Value, words: &str) {
    let message = status["message"].as_str().unwrap_or_default();
    if let Some((before, _)) = message.split_once(words) {
        status["message"] = json!(format!("{before}{words}"));
    }
}

fn rows(answer: &mut Answer) -> impl Iterator<Item = &mut Value> {
    answer.body["rows"].as_array_mut().into_iter().flatten()
}

fn without_ages(row: &mut Value) {
    for cell in row["cells"].as_array_mut().into_iter().flatten() {
        if cell.as_str().is_some_and(|text| crate::tables::seconds(text).is_some()) {
            *cell = json!("*");
        }
    }
}

/// Keeps the parts of a Secret that a metadata target stores.
fn as_kept(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let is_empty = annotations.is_some_and(|annotations| {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            annotations.is_empty()
        });
        if is_empty {
            metadata.remove("annotations");
        }
    }
}

/// Reduces the API server's discovery documents to warm kinds, and to the verbs that kubewarm
/// serves.
fn as_warm(ours: &mut Answer, theirs: &mut Answer) {
    const VERBS: [&str; 3] = ["get", "list", "watch"];
    const LISTS: [&str; 4] = ["items", "versions", "groups", "resources"];
    /// The identity of a list element. The core group has no name.
    fn name(it: &Value) -> &str {
        let all = ["/metadata/name", "/name", "/resource", "/version"];
        all.iter().find_map(|at| it.pointer(at)?.as_str()).unwrap_or_default()
    }
    fn list<'a>(of: &'a mut Value, list: &str) -> Option<&'a mut Vec<Value>> {
        of.get_mut(list)?.as_array_mut()
    }
    fn keep(ours: &Value, theirs: &mut Value) {
        for list_name in LISTS {
            let Some(own) = ours[list_name].as_array() else { continue };
            let Some(all) = list(theirs, list_name) else { continue };
            all.retain_mut(|it| {
                let same = own.iter().find(|own| name(own) == name(it));
                same.is_some_and(|own| {
                    keep(own, it);
                    true
                })
            });
        }
        // For a built-in kind, the API server leaves out group and version of the enclosing
        // document.
        let kind = "responseKind";
        if theirs.pointer("/responseKind/version").is_some_and(|version| version == "") {
            for of in ["group", "version"] {
                theirs[kind][of] = ours[kind][of].clone();
            }
        }
        if let Some(kind) = theirs.as_object_mut() {
            kind.remove("storageVersionHash");
            kind.remove("subresources");
            if let Some(verbs) = kind.get_mut("verbs").and_then(Value::as_array_mut) {
                verbs.retain(|it| VERBS.iter().any(|verb| it == verb));
            }
        }
    }
    // Only aggregated documents have an order of the custom resources in one API version.
    fn sort_custom(document: &mut Value) {
        let of = document["groupVersion"].as_str().unwrap_or_default();
        let is_custom = of.starts_with("example.com/");
        if let Some(resources) = list(document, "resources").filter(|_| is_custom) {
            resources.sort_by_key(|it| name(it).to_owned());
        }
    }
    keep(&ours.body, &mut theirs.body);
    // kubewarm sends an `ETag` with each document.
    each(ours, theirs, |answer| {
        sort_custom(&mut answer.body);
        for name in ["cache-control", "vary"] {
            answer.headers.remove(name);
        }
    });
}
