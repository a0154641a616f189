//! Tables: what is stored as rows, with what the API server writes around them.

use super::{
    TableForm,
    body::{write_metadata, write_object, write_types},
};
use kubewarm_api::model::ResourceVersion;
use std::sync::Arc;

/// What stands around the rows of a table. Written in pieces, so that a list is never held whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFrame {
    /// Of an object, such as `apps/v1`.
    pub api_version: Arc<str>,
    /// Of an object.
    pub kind: Arc<str>,
    /// Which table.
    pub form: TableForm,
    /// `columnDefinitions`, as JSON; `null` where they have been sent before, as in all but the first event
    /// of a watch.
    pub columns: Arc<str>,
    /// The version that it is true at: of one object, its own.
    pub version: ResourceVersion,
    /// A [continue token](super::continue_token); `None` behind the last object.
    pub next: Option<String>,
    /// How many objects stand behind these; only without selectors.
    pub remaining: Option<u64>,
    /// Whether a table without rows has an empty list of them, not `null`.
    pub has_rows_if_empty: bool,
}

impl TableFrame {
    /// What stands before the first row.
    pub fn head(&self, out: &mut Vec<u8>) {
        write_types(self.form.version.api_version(), "Table", out);
        write_metadata(&self.version, self.next.as_deref(), self.remaining, out);
        out.extend_from_slice(br#","columnDefinitions":"#);
        out.extend_from_slice(self.columns.as_bytes());
        out.extend_from_slice(br#","rows":"#);
    }

    /// The first row: `cells` is what a printer wrote of what is `stored`.
    pub fn first_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b'[');
        self.row(cells, stored, out);
    }

    /// All of it, with one row, as an event has it: without a line end.
    pub fn one_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        self.head(out);
        self.first_row(cells, stored, out);
        out.extend_from_slice(b"]}");
    }

    /// A row behind another one.
    pub fn further_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b',');
        self.row(cells, stored, out);
    }

    fn row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(cells.as_bytes());
        out.extend_from_slice(br#","object":"#);
        match self.form.object {
            None => out.extend_from_slice(b"null"),
            Some(part) => write_object(&self.api_version, &self.kind, stored, part, out),
        }
        out.push(b'}');
    }

    /// What stands behind the last row, or behind the head if there is none.
    pub fn tail(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match (is_empty, self.has_rows_if_empty) {
            (false, _) => b"]}\n".as_slice(),
            (true, true) => b"[]}\n",
            (true, false) => b"null}\n",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MetaVersion, Part};

    const POD: &str = r#"{"metadata":{"name":"a"},"spec":{}}"#;

    fn frame(object: Option<Part>, version: MetaVersion, rows: usize) -> TableFrame {
        TableFrame {
            api_version: "v1".into(),
            kind: "Pod".into(),
            form: TableForm { version, object },
            columns: "[1]".into(),
            version: 7.into(),
            next: (rows > 1).then(|| "dG9rZW4".to_owned()),
            remaining: (rows > 1).then_some(5),
            has_rows_if_empty: true,
        }
    }

    fn table(object: Option<Part>, version: MetaVersion, rows: usize) -> String {
        let frame = frame(object, version, rows);
        let mut out = Vec::new();
        frame.head(&mut out);
        for number in 0..rows {
            let cells = r#""cells":["a"]"#;
            match number {
                0 => frame.first_row(cells, POD.as_bytes(), &mut out),
                _ => frame.further_row(cells, POD.as_bytes(), &mut out),
            }
        }
        frame.tail(rows == 0, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_row_has_its_cells_and_what_is_asked_for_of_its_object() {
        let metadata = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        let whole = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
        for (included, object) in [
            (None, "null"),
            (Some(Part::Metadata(MetaVersion::V1)), metadata),
            (Some(Part::Full), whole),
        ] {
            assert_eq!(
                table(included, MetaVersion::V1, 1),
                format!(
                    "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":\
                     {{\"resourceVersion\":\"7\"}},\"columnDefinitions\":[1],\"rows\":[{{\"cells\":[\"a\"],\
                     \"object\":{object}}}]}}\n"
                )
            );
        }
        let version = MetaVersion::V1Beta1;
        let old = table(Some(Part::Metadata(version)), version, 1);
        assert_eq!(old.matches("meta.k8s.io/v1beta1").count(), 2, "{old}");
    }

    #[test]
    fn a_table_of_any_length_is_one_document() {
        for rows in 0..3 {
            let text = table(Some(Part::Full), MetaVersion::V1, rows);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["rows"].as_array().unwrap().len(), rows);
            assert_eq!(read["metadata"]["continue"].is_string(), rows > 1);
        }
        let mut out = Vec::new();
        let frame = TableFrame { has_rows_if_empty: false, ..frame(None, MetaVersion::V1, 0) };
        frame.tail(true, &mut out);
        assert_eq!(out, b"null}\n");
    }
}
