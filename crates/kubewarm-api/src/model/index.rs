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
    /// Unique within the target, and what readers select by: a DNS label, and no field label that the API
    /// server knows of the kind.
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
        if !of.0.may_index_as(&name) {
            return Err(Invalid(format!(
                "{path}.name is {name:?}: that is a field label of the API server's, by which readers select; \
                 call the index otherwise"
            )));
        }
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
            return Err(Invalid(format!(
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
        Projection::Full(_) | Projection::Profile if of.is_secrets() => {
            "the payload of secrets is not indexed; index paths must start with .metadata."
        }
        Projection::Full(_) | Projection::Profile => return Ok(IndexBy::Field(checked)),
    };
    if checked.is_metadata() {
        return Ok(IndexBy::Field(checked));
    }
    Err(Invalid(format!("{path} is {field:?}: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ManagedFields;

    #[test]
    fn no_index_is_called_as_a_field_of_the_servers() {
        let whole = Projection::Full(ManagedFields::Drop);
        for (group, plural, name, is_free) in [
            ("", "events", "type", false),
            ("", "events", "source", false),
            ("events.k8s.io", "events", "reason", false),
            ("", "secrets", "type", false),
            ("", "secrets", "reason", true),
            ("", "services", "type", true),
            ("example.com", "events", "type", true),
        ] {
            let of = GroupResource::new(group, plural).unwrap();
            let declared = v1alpha1::Index {
                name: name.to_owned(),
                field_path: None,
                label_key: Some("a".into()),
            };
            let checked = parse("here", &[declared], (&of, whole));
            assert_eq!(checked.is_ok(), is_free, "{of} {name}: {checked:?}");
            assert_eq!(of.may_index_as(name), is_free);
        }
    }
}
