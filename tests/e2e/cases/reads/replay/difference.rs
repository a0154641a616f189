//! Every permitted difference between a response of kubewarm and the API server's response to the
//! same request.

use serde_json::{Value, json};

use super::Answer;

/// A permitted difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    Ages,
    Anonymous,
    CheckedFirst,
    ContinueToken,
    ContinueWords,
    ExactVersion,
    FieldLabels,
    ForgottenVersion,
    FutureVersion,
    HeadRequests,
    Impersonation,
    ListVersion,
    MediaTypes,
    NoNumber,
    OneToken,
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
        Self::Anonymous,
        Self::CheckedFirst,
        Self::ContinueToken,
        Self::ContinueWords,
        Self::ExactVersion,
        Self::FieldLabels,
        Self::ForgottenVersion,
        Self::FutureVersion,
        Self::HeadRequests,
        Self::Impersonation,
        Self::ListVersion,
        Self::MediaTypes,
        Self::NoNumber,
        Self::OneToken,
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
            Self::Anonymous => "anonymous",
            Self::CheckedFirst => "checked first",
            Self::ContinueToken => "continue token",
            Self::ContinueWords => "continue words",
            Self::ExactVersion => "exact version",
            Self::FieldLabels => "field labels",
            Self::ForgottenVersion => "forgotten version",
            Self::FutureVersion => "future version",
            Self::HeadRequests => "HEAD",
            Self::Impersonation => "impersonation",
            Self::ListVersion => "list version",
            Self::MediaTypes => "media types",
            Self::NoNumber => "no number",
            Self::OneToken => "one token",
            Self::OnlyReads => "only reads",
            Self::SecretMetadata => "secret metadata",
            Self::UnknownPath => "unknown path",
            Self::Unserved => "unserved",
            Self::UnusualPath => "unusual path",
            Self::WarmKinds => "warm kinds",
        }
    }

    /// Returns whether the difference does not occur in each run. For example, the API server
    /// compacts old versions after 5 to 10 minutes, and from then on returns 410 for them as
    /// kubewarm does.
    pub(crate) fn is_by_chance(self) -> bool {
        matches!(self, Self::Ages | Self::ExactVersion | Self::FutureVersion)
    }

    /// Removes this difference from both responses, so that the remaining parts must be equal.
    pub(crate) fn forgive(self, ours: &mut Answer, theirs: &mut Answer) {
        match self {
            Self::Ages => each(ours, theirs, |answer| rows(answer).for_each(without_ages)),
            Self::Anonymous => replace_if(is_anonymous, ours, theirs),
            Self::CheckedFirst => replace_if(is_checked_first, ours, theirs),
            Self::ContinueToken => each(ours, theirs, |answer| {
                hide(&mut answer.body, "/metadata/continue");
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
                if ["items", "rows"].iter().any(|list| answer.body.get(list).is_some()) {
                    hide(&mut answer.body, "/metadata/resourceVersion");
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
                // kubewarm checks the parameters of a request before it checks whether the kind
                // exists. The API server does this the other way round.
                let is_unknown = theirs.is_plain_text()
                    || theirs.message() == "the server could not find the requested resource";
                if theirs.code == 404 && is_unknown && matches!(ours.code, 400 | 404 | 406 | 422) {
                    *ours = theirs.clone();
                }
            }
            Self::Unserved => {
                decided(ours, theirs, 421, &[200, 400, 403, 404, 405, 406, 422, 500, 504]);
            }
            Self::UnusualPath => replace_if(is_unusual_path, ours, theirs),
            Self::ExactVersion => replace_if(is_forgotten, ours, theirs),
            Self::FieldLabels => {
                if ours.message().starts_with("field label not supported: ") {
                    decided(ours, theirs, 400, &[200]);
                }
            }
            Self::HeadRequests => decided(ours, theirs, 405, &[200, 400, 404, 406, 422, 500, 504]),
            Self::Impersonation => replace_if(is_impersonation, ours, theirs),
            Self::NoNumber => decided(ours, theirs, 400, &[500]),
            Self::OneToken => replace_if(has_other_token, ours, theirs),
            Self::OnlyReads => replace_if(is_no_read, ours, theirs),
            Self::SecretMetadata => each(ours, theirs, |answer| {
                let body = &mut answer.body;
                for list in ["items", "rows"] {
                    let all =
                        body.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
                    for item in all {
                        as_kept(if list == "rows" { &mut item["object"] } else { item });
                    }
                }
                as_kept(body);
            }),
            Self::WarmKinds => as_warm(ours, theirs),
        }
    }
}

/// How the API server names the user of a request without credentials.
const ANONYMOUS: &str = "User \"system:anonymous\"";

/// Returns whether the server rejects the parameter `timeout`. The API server checks it before
/// everything else.
fn is_invalid_timeout(answer: &Answer) -> bool {
    let text = "invalid timeout specified in the request URL";
    answer.code == 400 && (answer.body.is_null() || answer.message().starts_with(text))
}

fn is_anonymous(ours: &Answer, theirs: &Answer) -> bool {
    // A HEAD answer has no message.
    let is_denied =
        theirs.code == 403 && (theirs.body.is_null() || theirs.message().contains(ANONYMOUS));
    ours.code == 401 && (is_denied || is_invalid_timeout(theirs))
}

fn is_checked_first(ours: &Answer, theirs: &Answer) -> bool {
    theirs.code == 401 && matches!(ours.code, 400 | 404 | 406 | 421 | 422)
}

fn is_impersonation(ours: &Answer, theirs: &Answer) -> bool {
    const OURS: [u16; 8] = [400, 401, 403, 404, 405, 406, 421, 422];
    // The API server rejects impersonated groups without an impersonated user. A response to HEAD
    // has no message.
    let is_without_user = theirs.message().contains("without impersonating a user");
    let is_refused = matches!(theirs.code, 401 | 403 | 500) || is_without_user;
    is_refused && OURS.contains(&ours.code)
}

fn has_other_token(ours: &Answer, _theirs: &Answer) -> bool {
    let is_refused = ours.body.is_null() || ours.message() == "Authorization is repeated";
    ours.code == 401 || (ours.code == 400 && is_refused)
}

fn is_no_read(ours: &Answer, theirs: &Answer) -> bool {
    ours.code == 405 && (matches!(theirs.code, 401 | 403 | 405) || is_invalid_timeout(theirs))
}

fn is_unusual_path(ours: &Answer, theirs: &Answer) -> bool {
    const ABOUT: [&str; 5] =
        ["the path must not contain ", "namespace \"", "resource \"", "version \"", "group \""];
    const THEIRS: [u16; 10] = [200, 301, 400, 403, 404, 405, 406, 422, 500, 504];
    let is_of_path =
        ours.body.is_null() || ABOUT.iter().any(|about| ours.message().starts_with(about));
    ours.code == 400 && is_of_path && THEIRS.contains(&theirs.code)
}

fn is_forgotten(ours: &Answer, theirs: &Answer) -> bool {
    // The API server still has the requested version, and rejects only the requested form. kubewarm
    // has forgotten the version, so it returns 410.
    let is_of_form =
        theirs.code == 400 && theirs.message().starts_with("Unable to convert to Table");
    ours.code == 410 && (matches!(theirs.code, 200 | 406 | 410) || is_of_form)
}

/// If the answers differ in a permitted way, treats them as equal.
fn replace_if(
    is_permitted: impl Fn(&Answer, &Answer) -> bool,
    ours: &mut Answer,
    theirs: &mut Answer,
) {
    if is_permitted(ours, theirs) {
        *ours = theirs.clone();
    }
}

fn each(ours: &mut Answer, theirs: &mut Answer, change: impl Fn(&mut Answer)) {
    change(ours);
    change(theirs);
}

/// If the answers have these status codes, treats them as equal.
fn decided(ours: &mut Answer, theirs: &mut Answer, our_code: u16, their_codes: &[u16]) {
    if ours.code == our_code && their_codes.contains(&theirs.code) {
        *ours = theirs.clone();
    }
}

/// Replaces a text that is not empty.
fn hide(body: &mut Value, pointer: &str) {
    let text = body.pointer_mut(pointer);
    if let Some(text) = text.filter(|text| text.as_str().is_some_and(|text| !text.is_empty())) {
        *text = json!("*");
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
    answer.body.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten()
}

fn without_ages(row: &mut Value) {
    for cell in row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
        if cell.as_str().is_some_and(|text| crate::cases::reads::tables::seconds(text).is_some()) {
            *cell = json!("*");
        }
    }
}

/// Keeps the parts of a Secret that a metadata target stores.
fn as_kept(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
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
    fn name(item: &Value) -> &str {
        let all = ["/metadata/name", "/name", "/resource", "/version"];
        all.iter().find_map(|at| item.pointer(at)?.as_str()).unwrap_or_default()
    }
    fn list<'a>(document: &'a mut Value, list: &str) -> Option<&'a mut Vec<Value>> {
        document.get_mut(list)?.as_array_mut()
    }
    fn keep(ours: &Value, theirs: &mut Value) {
        for list_name in LISTS {
            let Some(items) = ours[list_name].as_array() else { continue };
            let Some(all) = list(theirs, list_name) else { continue };
            all.retain_mut(|theirs| {
                let same = items.iter().find(|ours| name(ours) == name(theirs));
                same.is_some_and(|ours| {
                    keep(ours, theirs);
                    true
                })
            });
        }
        // For a built-in kind, the API server leaves out group and version of the enclosing
        // document.
        let kind = "responseKind";
        if theirs.pointer("/responseKind/version").is_some_and(|version| version == "") {
            for field in ["group", "version"] {
                theirs[kind][field] = ours[kind][field].clone();
            }
        }
        if let Some(kind) = theirs.as_object_mut() {
            kind.remove("storageVersionHash");
            kind.remove("subresources");
            if let Some(verbs) = kind.get_mut("verbs").and_then(Value::as_array_mut) {
                verbs.retain(|verb| VERBS.iter().any(|known| verb == known));
            }
        }
    }
    // Only aggregated documents have an order of the custom resources in one API version.
    fn sort_custom(document: &mut Value) {
        let version = document["groupVersion"].as_str().unwrap_or_default();
        let is_custom = version.starts_with("example.com/");
        if let Some(resources) = list(document, "resources").filter(|_| is_custom) {
            resources.sort_by_key(|resource| name(resource).to_owned());
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
