//! Injection of the workloads in one document of a stream of manifests.

use crate::{
    field_change::ChangedField,
    injection::{InjectedAddress, Injection},
    manifest_path::ManifestPath,
    manifest_text::{self, ManifestTextError, ObjectText},
    workload::WorkloadKind,
};
use serde_json::Value;

/// A document that cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text is no YAML, or cannot be edited.
    #[error(transparent)]
    Text(#[from] ManifestTextError),
    /// The text is YAML that Kubernetes does not accept.
    #[error("no object: {0}")]
    Object(#[from] serde_saphyr::Error),
    /// A field of an earlier injection was changed.
    #[error(transparent)]
    Changed(#[from] ChangedField),
    /// The edited text has other values than intended, for instance because of an alias.
    #[error(
        "cannot edit this YAML without other changes; use kubectl create --dry-run=client -o yaml to rewrite it"
    )]
    Inexact,
}

/// A workload in a document: the document's object, or an item of a `List`.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundWorkload {
    /// The workload's kind.
    pub kind: WorkloadKind,
    /// The workload's object.
    pub object: Value,
    /// `None` in a `List` with aliases, because an edit of one item could change another item.
    text: Option<ObjectText>,
}

/// A document of a stream, with the workloads in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestDocument {
    /// The text with its comments, and with the `---` before it.
    pub text: String,
    /// The workloads. Empty for a document that stays as it is.
    pub workloads: Vec<FoundWorkload>,
}

impl ManifestDocument {
    /// Splits a stream into its documents.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if the stream is no YAML.
    pub fn parse_stream(stream: &str) -> Result<Vec<Self>, DocumentError> {
        manifest_text::documents(stream)?.into_iter().map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, DocumentError> {
        let mut document = Self { text: text.to_owned(), workloads: Vec::new() };
        // Another document stays as it is, whatever its size and its values.
        let kind = manifest_text::kind(text)?.unwrap_or_default();
        let is_list = kind.ends_with("List");
        if WorkloadKind::of_word(&kind).is_none() && !is_list {
            return Ok(document);
        }
        let object: Value = serde_saphyr::from_str(text)?;
        if let Some(kind) = WorkloadKind::of_object(&object) {
            let text = Some(ObjectText { bytes: 0..text.len(), path: ManifestPath::default() });
            document.workloads.push(FoundWorkload { kind, object, text });
        } else if let (true, Some(items)) = (is_list, object["items"].as_array()) {
            let texts = manifest_text::items(text)?.unwrap_or_default();
            for (position, item) in items.iter().enumerate() {
                if let Some(kind) = WorkloadKind::of_object(item) {
                    let text = texts.get(position).cloned();
                    document.workloads.push(FoundWorkload { kind, object: item.clone(), text });
                }
            }
        }
        Ok(document)
    }

    /// Injects the workload at this position of [`workloads`](Self::workloads).
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if the text cannot be edited. The document then stays as it is.
    pub fn inject(
        &mut self,
        position: usize,
        address: &InjectedAddress,
    ) -> Result<(), DocumentError> {
        let Some(FoundWorkload { kind, object, .. }) = self.workloads.get(position) else {
            return Ok(());
        };
        let injection = Injection::plan(object, *kind, address);
        let (mut expected, additions) = (object.clone(), injection.additions(*kind));
        injection.apply(&mut expected, *kind);
        self.edit(position, &expected, |mut text, path| {
            for mut change in additions {
                change.at = change.at.below(path);
                text = manifest_text::add(&text, &change)?;
            }
            Ok(text)
        })
    }

    /// Removes the injection of the workload at this position. A workload without an injection
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if a field of the injection was changed, or if the text cannot be edited.
    /// The document then stays as it is.
    pub fn undo(&mut self, position: usize) -> Result<(), DocumentError> {
        let Some(FoundWorkload { kind, object, .. }) = self.workloads.get(position) else {
            return Ok(());
        };
        let Some(injection) = Injection::of_object(object, *kind)? else { return Ok(()) };
        let (restored, removals) = injection.undo(object, *kind)?;
        self.edit(position, &restored, |mut text, path| {
            for mut removal in removals {
                removal.at = removal.at.below(path);
                text = manifest_text::remove(&text, &removal)?;
            }
            Ok(text)
        })
    }

    /// Edits the text of a workload, whose object must then be `expected`. `edit` gets the text,
    /// and the path of the object in this text. A `List` of hundreds of workloads is parsed only
    /// once, because each edit parses only the text of one workload.
    fn edit(
        &mut self,
        position: usize,
        expected: &Value,
        edit: impl FnOnce(String, &ManifestPath) -> Result<String, ManifestTextError>,
    ) -> Result<(), DocumentError> {
        let text = self.workloads.get(position).and_then(|workload| workload.text.clone());
        let ObjectText { bytes, path } = text.ok_or(DocumentError::Inexact)?;
        let before = self.text.get(bytes.clone()).ok_or(DocumentError::Inexact)?;
        let edited = edit(before.to_owned(), &path)?;
        let parsed: Value = serde_saphyr::from_str(&edited).map_err(|_| DocumentError::Inexact)?;
        // A collection in block style that became empty is null in the text.
        let object =
            path.find(&parsed).filter(|object| without_empty(object) == without_empty(expected));
        let object = object.ok_or(DocumentError::Inexact)?;
        self.text.replace_range(bytes.clone(), &edited);
        for (other, workload) in self.workloads.iter_mut().enumerate() {
            if other == position {
                workload.object = object.clone();
            }
            let Some(text) = &mut workload.text else { continue };
            let moved =
                |at: usize| if at >= bytes.end { at - bytes.len() + edited.len() } else { at };
            text.bytes = moved(text.bytes.start)..moved(text.bytes.end);
        }
        Ok(())
    }
}

/// The value without nulls and empty collections, which mean the same to Kubernetes.
fn without_empty(value: &Value) -> Value {
    let is_full = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    match value {
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(entries.filter(|(_, value)| is_full(value)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
