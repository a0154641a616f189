//! Declared indexes: what each is called, and what it looks up by.

use super::{
    FieldPath, GroupResource, Invalid, LabelRequirement, Operator, Projection,
    invalid::counted,
    target::{duplicate, label, malformed},
};
use crate::{model::is_dns_label, v1alpha1};
use std::sync::Arc;

/// The field labels of the API server that an index could be called by, as they are DNS labels, by group and
/// plural: `ToSelectableFields` of each kind's strategy in kubernetes/pkg/registry, 1.36. All others have a
/// dot or a capital.
const SERVERS: &[(&str, &str, &[&str])] = &[
    ("", "events", &["reason", "source", "type"]),
    ("events.k8s.io", "events", &["reason", "type"]),
    ("", "secrets", &["type"]),
];

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

impl GroupResource {
    /// Whether an index of this kind may be called `name`: all that is selected by such a name is selected
    /// by an index, or by a field of a `CustomResourceDefinition` without a dot.
    #[must_use]
    pub fn may_index_as(&self, name: &str) -> bool {
        let is_servers = |(group, plural, labels): &(&str, &str, &[&str])| {
            *group == self.group() && *plural == self.resource() && labels.contains(&name)
        };
        is_dns_label(name) && !SERVERS.iter().any(is_servers)
    }
}

/// Checks the indexes at the JSON path `path`.
pub(super) fn parse(
    path: &str,
    indexes: &[v1alpha1::Index],
    of: (&GroupResource, Projection),
) -> Result<Arc<[Index]>, Invalid> {
    counted(path, indexes.len(), 0, 16)?;
    let mut checked = Vec::<Index>::new();
    for (at, declared) in indexes.iter().enumerate() {
        let name = label(format!("{path}[{at}].name"), &declared.name)?;
        if !of.0.may_index_as(&name) {
            let path = format!("{path}[{at}].name");
            return Err(Invalid::IndexName { path, found: name.to_string() });
        }
        if let Some(earlier) = checked.iter().position(|index| index.name == name) {
            return Err(duplicate(path, ".name", at, &name, Some(earlier)));
        }
        let by = index_by(&format!("{path}[{at}]"), declared, of)?;
        checked.push(Index { name, by });
    }
    Ok(checked.into())
}

fn index_by(
    path: &str,
    index: &v1alpha1::Index,
    (of, projection): (&GroupResource, Projection),
) -> Result<IndexBy, Invalid> {
    let source = |advice| Invalid::IndexSource { path: path.to_owned(), advice };
    match (&index.field_path, &index.label_key) {
        (Some(_), Some(_)) => Err(source("remove one")),
        (None, None) => Err(source("add one")),
        (None, Some(key)) => {
            let checked = LabelRequirement::new(key, Operator::Exists, []);
            checked.map_err(malformed(|| format!("{path}.labelKey")))?;
            Ok(IndexBy::Label(key.as_str().into()))
        }
        (Some(text), None) => {
            let field =
                FieldPath::parse(text).map_err(malformed(|| format!("{path}.fieldPath")))?;
            if matches!(projection, Projection::MetadataOnly(_)) && !field.is_metadata() {
                let path = format!("{path}.fieldPath");
                return Err(Invalid::IndexOutsideMetadata { path, found: text.clone() });
            }
            // The values of an index are asked for by name.
            if of.is_secrets() && !field.is_metadata() {
                let path = format!("{path}.fieldPath");
                return Err(Invalid::IndexOfPayload { path, found: text.clone() });
            }
            Ok(IndexBy::Field(field))
        }
    }
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
