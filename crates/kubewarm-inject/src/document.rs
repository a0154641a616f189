//! Injection of the workloads in one document of a stream of manifests.

use crate::{
    field_change::ChangedField,
    injection::{InjectedAddress, Injection},
    manifest_path::ManifestPath,
    manifest_text::{self, ManifestTextError},
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
    base: ManifestPath,
}

/// A document of a stream, with the workloads in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestDocument {
    /// The text with its comments, and with the `---` before it.
    pub text: String,
    /// The workloads. Empty for a document that stays as it is.
    pub workloads: Vec<FoundWorkload>,
    object: Value,
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
        // Another document stays as it is, whatever its size and its values.
        let kind = manifest_text::kind(text)?.unwrap_or_default();
        if WorkloadKind::of_word(&kind).is_none() && !kind.ends_with("List") {
            let (text, workloads) = (text.to_owned(), Vec::new());
            return Ok(Self { text, workloads, object: Value::Null });
        }
        let object: Value = serde_saphyr::from_str(text)?;
        let mut workloads = Vec::new();
        if let Some(kind) = WorkloadKind::of_object(&object) {
            workloads.push(FoundWorkload {
                kind,
                object: object.clone(),
                base: ManifestPath::default(),
            });
        }
        let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let items = object["items"].as_array().filter(|_| is_list);
        for (position, item) in items.into_iter().flatten().enumerate() {
            if let Some(kind) = WorkloadKind::of_object(item) {
                let base = ManifestPath::parse("items").position(position);
                workloads.push(FoundWorkload { kind, object: item.clone(), base });
            }
        }
        Ok(Self { text: text.to_owned(), workloads, object })
    }

    /// Injects the workload, and returns the document again.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if the text cannot be edited.
    pub fn inject(
        &self,
        workload: &FoundWorkload,
        address: &InjectedAddress,
    ) -> Result<Self, DocumentError> {
        let FoundWorkload { kind, object, base } = workload;
        let injection = Injection::plan(object, *kind, address);
        let mut expected = self.object.clone();
        if let Some(object) = base.find_mut(&mut expected) {
            injection.apply(object, *kind);
        }
        let mut text = self.text.clone();
        for mut change in injection.additions(*kind) {
            change.at = change.at.below(base);
            text = manifest_text::add(&text, &change)?;
        }
        Self::checked(&text, &expected)
    }

    /// Removes the injection of the workload, and returns the document again. A workload without an
    /// injection stays as it is.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if a field of the injection was changed, or if the text cannot be edited.
    pub fn undo(&self, workload: &FoundWorkload) -> Result<Self, DocumentError> {
        let FoundWorkload { kind, object, base } = workload;
        let Some(injection) = Injection::of_object(object, *kind)? else { return Ok(self.clone()) };
        let (restored, removals) = injection.undo(object, *kind)?;
        let mut expected = self.object.clone();
        if let Some(object) = base.find_mut(&mut expected) {
            *object = restored;
        }
        let mut text = self.text.clone();
        for mut removal in removals {
            removal.at = removal.at.below(base);
            text = manifest_text::remove(&text, &removal)?;
        }
        Self::checked(&text, &expected)
    }

    /// The edited document, whose values must be `expected`.
    fn checked(text: &str, expected: &Value) -> Result<Self, DocumentError> {
        let edited = Self::parse(text).map_err(|_| DocumentError::Inexact)?;
        // A collection in block style that became empty is null in the text.
        let is_exact = without_empty(&edited.object) == without_empty(expected);
        if is_exact { Ok(edited) } else { Err(DocumentError::Inexact) }
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
