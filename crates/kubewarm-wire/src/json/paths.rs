//! Combines field paths into a tree, so that one walk through an object's JSON finds the values of
//! all paths.

use kubewarm_api::model::FieldPath;
use std::collections::BTreeMap;

/// A set of field paths without duplicates. [`JsonCursor::values`] finds the values of all paths in
/// one walk through an object's JSON.
///
/// [`JsonCursor::values`]: super::JsonCursor::values
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPathSet {
    all: Vec<FieldPath>,
    root: FieldPathNode,
    fields: usize,
}

/// A node of the tree, for one position in an object's JSON. The node belongs to the field path
/// that ends at this position, and to the field paths that continue below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPathNode {
    /// Number of this node among the tree's nodes with a member name, counted from 0. A walk uses
    /// the number as an index, to detect duplicate members.
    pub(crate) number: usize,
    /// Index in [`FieldPathSet::all`] of the field path that ends at this position, or `None`.
    pub(crate) end: Option<usize>,
    /// If the value at this position is an object: the nodes of its members that field paths
    /// select, by member name. This map has at most one node for each path of the set.
    pub(crate) fields: BTreeMap<Box<[u8]>, Self>,
    /// If the value at this position is a list: the node for each of its elements.
    pub(crate) elements: Option<Box<Self>>,
}

impl FieldPathSet {
    /// Returns the paths in the order of their insertion.
    pub fn all(&self) -> &[FieldPath] {
        &self.all
    }

    /// Returns whether the set contains no path.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn root(&self) -> &FieldPathNode {
        &self.root
    }

    /// Returns the number of nodes with a member name. Each `FieldPathNode::number` is smaller, so
    /// a walk needs a list of this length.
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
        let set = |texts: &[&str]| -> FieldPathSet {
            texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect()
        };
        let paths = set(&["a.b", "a.c[*].d", "a.b", "a.c", "a.c[*].d.e"]);
        let texts: Vec<_> = paths.all().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a.b", "a.c[*].d", "a.c", "a.c[*].d.e"]);
        assert_eq!(paths.fields(), 5, "the fields are a, b, c, d and e");
        assert_eq!((set(&[]).is_empty(), set(&[]).fields()), (true, 0));
    }
}
