//! Declared indexes: what each is called, and what it looks up by.

use super::{
    FieldPath, GroupResource, Invalid, LabelRequirement, Operator, Projection,
    invalid::{counted, distinct},
    target::label,
};
use crate::v1alpha1;
use std::sync::Arc;

/// A declared index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// A DNS label, unique within the target. Readers select by `index.kubewarm.io/` and this name.
    pub name: Arc<str>,
    /// What is looked up by.
    pub by: IndexBy,
}

/// What an index looks up by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexBy {
    /// A label; labels are indexed anyway, so this only has a name.
    Label(Arc<str>),
    /// A field.
    Field(FieldPath),
}

/// Checks the indexes at the JSON path `path`.
pub(super) fn parse(
    path: &str,
    indexes: &[v1alpha1::Index],
    of: (&GroupResource, Projection),
) -> Result<Arc<[Index]>, Invalid> {
    counted(path, indexes.len(), 0..=16)?;
    let parse = |(at, index): (usize, &v1alpha1::Index)| {
        let path = format!("{path}[{at}]");
        let name = label(&format!("{path}.name"), &index.name)?;
        Ok(Index { name, by: index_by(&path, index, of)? })
    };
    let checked = indexes.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    distinct(path, ".name", indexes.iter().map(|index| (&index.name, &*index.name)))?;
    Ok(checked)
}

fn index_by(
    path: &str,
    index: &v1alpha1::Index,
    (of, projection): (&GroupResource, Projection),
) -> Result<IndexBy, Invalid> {
    let (field, path) = match (&index.field_path, &index.label_key) {
        (Some(field), None) => (field, format!("{path}.fieldPath")),
        (None, Some(key)) => {
            let checked = LabelRequirement::new(key, Operator::Exists, []);
            checked.map_err(|error| Invalid::malformed(&format!("{path}.labelKey"), error))?;
            return Ok(IndexBy::Label(key.as_str().into()));
        }
        (both_or_none, _) => {
            let advice = if both_or_none.is_some() { "remove one" } else { "add one" };
            return Err(Invalid::new(format!(
                "{path}: exactly one of fieldPath or labelKey must be set; {advice}"
            )));
        }
    };
    let checked = FieldPath::parse(field).map_err(|error| Invalid::malformed(&path, error))?;
    let problem = match projection {
        Projection::MetadataOnly(_) => {
            "with MetadataOnly, index paths must start with .metadata.; index another field, or set \
             projection.type to Full"
        }
        // The values of an index are asked for by name.
        Projection::Full(_) if of.is_secrets() => {
            "the payload of secrets is not indexed; index paths must start with .metadata."
        }
        Projection::Full(_) => return Ok(IndexBy::Field(checked)),
    };
    if checked.is_metadata() {
        return Ok(IndexBy::Field(checked));
    }
    Err(Invalid::new(format!("{path} is {field:?}: {problem}")))
}
