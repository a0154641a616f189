//! Rows under headings, lined up, for people and for `awk`.

use std::fmt::Write as _;

/// A table: the first column to the left, the others to the right. What is in it must be escaped; an
/// empty cell is `-`, so that columns can be counted.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, at: usize| match row.get(at).map_or("", String::as_str) {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    let width = |at: usize| {
        let of_rows = rows.iter().map(|row| cell(row, at).chars().count());
        of_rows.chain(head.get(at).map(|name| name.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let heading = head.iter().map(|&name| name.to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        for (at, width) in widths.iter().enumerate() {
            let (gap, cell) = (if at == 0 { "" } else { "  " }, cell(row, at));
            let _infallible = match at {
                0 => write!(text, "{gap}{cell:<width$}"),
                _ => write!(text, "{gap}{cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// The same with all columns to the left, as kubectl has them.
pub(super) fn columns(head: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let width = |at: usize| {
        let cells = lines().filter_map(|line| line.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_none_is_empty() {
        let rows = [vec!["a-name".to_owned(), "1".to_owned()], vec!["b".to_owned(), String::new()]];
        assert_eq!(
            table(&["NAME", "OBJECTS"], &rows),
            "NAME    OBJECTS\na-name        1\nb             -\n"
        );
        assert_eq!(table(&["NAME", "AGE"], &[]), "NAME  AGE\n");
    }
}
