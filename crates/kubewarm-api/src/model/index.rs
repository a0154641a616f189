//! Field indexes that a profile's target declares: their names and field paths.

use super::{
    FieldPath, GroupResource, Projection, ValidationError,
    target::label,
    validation_error::{counted, distinct},
};
use crate::v1alpha1;
use std::sync::Arc;

/// One declared index of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Name of the index: a DNS label, unique within the target. Clients select with the field
    /// `index.kubewarm.io/<name>`.
    pub name: Arc<str>,
    /// Field whose values are indexed.
    pub path: FieldPath,
}

/// Checks the indexes that a target declares. `projection` is the part of each object that the
/// target stores, which must contain the indexed fields. `path` is the JSON path of the indexes,
/// for error messages.
pub(super) fn parse(
    path: &str,
    indexes: &[v1alpha1::IndexSpec],
    resource: &GroupResource,
    projection: Projection,
) -> Result<Arc<[IndexDefinition]>, ValidationError> {
    counted(path, indexes.len(), 0..=16)?;
    let parse = |(at, index): (usize, &v1alpha1::IndexSpec)| {
        let path = format!("{path}[{at}]");
        let name = label(&format!("{path}.name"), &index.name)?;
        let path =
            field_path(&format!("{path}.fieldPath"), &index.field_path, resource, projection)?;
        Ok(IndexDefinition { name, path })
    };
    let checked = indexes.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    distinct(path, ".name", indexes.iter().map(|index| (&index.name, &*index.name)))?;
    Ok(checked)
}

fn field_path(
    path: &str,
    text: &str,
    resource: &GroupResource,
    projection: Projection,
) -> Result<FieldPath, ValidationError> {
    let checked =
        FieldPath::parse(text).map_err(|error| ValidationError::malformed(path, error))?;
    let problem = match projection {
        Projection::Metadata(_) => {
            "with projection Metadata, index paths must start with metadata.; index another field, or set \
             projection.type to Full"
        }
        // To select by an index, a client writes the value into the request's URL. Secret data must
        // not be in a URL, so only metadata of Secrets can be indexed.
        Projection::Full(_) if resource.is_secrets() => {
            "the payload of secrets is not indexed; index paths must start with metadata."
        }
        Projection::Full(_) => return Ok(checked),
    };
    if checked.is_metadata() {
        return Ok(checked);
    }
    Err(ValidationError::new(format!("{path} is {text:?}: {problem}")))
}
