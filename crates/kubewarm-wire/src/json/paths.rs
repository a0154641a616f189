//! Combines field paths into a tree, so that one walk finds the values of all of them.

use kubewarm_api::model::FieldPath;
use std::collections::BTreeMap;

/// A set of field paths without duplicates. One walk of a body finds the values of all paths
/// ([`Cursor::values`]).
///
/// [`Cursor::values`]: super::JsonCursor::values
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPathSet {
    all: Vec<FieldPath>,
    root: FieldPathNode,
    fields: usize,
}

/// The paths that end at one position of a body, or continue below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldPathNode {
    /// Number of this field among all fields of the tree.
    pub(super) number: usize,
    /// Index of the path that ends here. Its values are the scalars at this position.
    pub(super) end: Option<usize>,
    /// The next fields of the paths, by name, if the value here is an object. There are at most as
    /// many as there are paths.
    pub(super) fields: BTreeMap<Box<[u8]>, Self>,
    /// The rest of the paths for each element, if the value here is a list.
    pub(super) elements: Option<Box<Self>>,
}

impl FieldPathSet {
    /// The paths in the order of their insertion.
    #[must_use]
    pub fn all(&self) -> &[FieldPath] {
        &self.all
    }

    /// Whether there is no path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn root(&self) -> &FieldPathNode {
        &self.root
    }

    /// Number of fields in the tree. `FieldPathNode::number` is always smaller.
    pub(super) fn fields(&self) -> usize {
        self.fields
    }

    fn add(&mut self, path: FieldPath) {
        let Self { all, root, fields } = self;
        let mut node = root;
        for (field, is_list) in path.steps() {
            node = node.fields.entry(field.as_bytes().into()).or_insert_with(|| {
                let number = *fields;
                *fields += 1;
                FieldPathNode { number, ..FieldPathNode::default() }
            });
            if is_list {
                node = node.elements.get_or_insert_default();
            }
        }
        if node.end.is_none() {
            node.end = Some(all.len());
            all.push(path);
        }
    }
}

impl FromIterator<FieldPath> for FieldPathSet {
    fn from_iter<I: IntoIterator<Item = FieldPath>>(paths: I) -> Self {
        let mut these = Self::default();
        for path in paths {
            these.add(path);
        }
        these
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_share_common_fields_and_duplicates_are_dropped() {
        let of = |texts: &[&str]| -> FieldPathSet {
            texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect()
        };
        let paths = of(&["a.b", "a.c[*].d", "a.b", "a.c", "a.c[*].d.e"]);
        let texts: Vec<_> = paths.all().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a.b", "a.c[*].d", "a.c", "a.c[*].d.e"]);
        assert_eq!(paths.fields(), 5, "a, b, c, d, e");
        assert_eq!((of(&[]).is_empty(), of(&[]).fields()), (true, 0));
    }
}
