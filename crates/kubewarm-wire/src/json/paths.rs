//! Field paths that are looked for together, as a tree: what they have in common is walked once.

use kubewarm_api::model::FieldPath;
use std::collections::BTreeMap;

/// Paths, each once. A walk of a body finds the values of all of them ([`Cursor::values`]).
///
/// [`Cursor::values`]: super::Cursor::values
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    all: Vec<FieldPath>,
    root: Node,
    fields: usize,
}

/// What is looked for at one place of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Of a field: its number among all fields of the tree.
    pub(super) number: usize,
    /// The path that ends here, by its place among all: its values are the scalars here.
    pub(super) end: Option<usize>,
    /// Where an object is here: the fields by which paths go on, by their names. At the most as many as there
    /// are paths.
    pub(super) fields: BTreeMap<Box<[u8]>, Self>,
    /// Where a list is here: what is looked for in each of its elements.
    pub(super) elements: Option<Box<Self>>,
}

impl Paths {
    /// In the order in which they were given.
    #[must_use]
    pub fn all(&self) -> &[FieldPath] {
        &self.all
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What is looked for in a body.
    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    /// How many fields the tree has: their numbers are below that.
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
                Node { number, ..Node::default() }
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

impl FromIterator<FieldPath> for Paths {
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
    fn paths_share_what_they_have_in_common_and_each_is_there_once() {
        let of = |texts: &[&str]| -> Paths {
            texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect()
        };
        let paths = of(&["a.b", "a.c[*].d", "a.b", "a.c", "a.c[*].d.e"]);
        let texts: Vec<_> = paths.all().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a.b", "a.c[*].d", "a.c", "a.c[*].d.e"]);
        assert_eq!(paths.fields(), 5, "a, b, c, d, e");
        assert_eq!((of(&[]).is_empty(), of(&[]).fields()), (true, 0));
    }
}
