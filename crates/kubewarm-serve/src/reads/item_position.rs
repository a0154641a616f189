//! The position of an item in a response.

/// Whether an item is the first of its list, `Table` or watch. Clients need a different encoding of
/// the first item: it follows no comma, and in a watch of `Table`s it contains the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ItemPosition {
    #[default]
    First,
    Next,
}
