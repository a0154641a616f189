//! Writes `Table` responses: one row for each object, and the JSON before and after the rows.

use super::{
    TableForm,
    body::{write_metadata, write_object, write_types},
};
use kubewarm_api::model::ResourceVersion;
use std::sync::Arc;

/// The parts of a `Table` before and after its rows. The caller writes one row at a time, so the
/// complete table is never in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEnvelope {
    /// `apiVersion` of the objects, such as `apps/v1`.
    pub api_version: Arc<str>,
    /// `kind` of the objects.
    pub kind: Arc<str>,
    /// The version of `meta.k8s.io`, and the part of the object that each row contains.
    pub form: TableForm,
    /// The table's `columnDefinitions` as JSON. In a watch, it is `null` in all events except the
    /// first, because clients keep the definitions of the first event.
    pub columns: Arc<str>,
    /// `metadata.resourceVersion` of the table: the version of the list or, in a table for one
    /// object, of the object.
    pub version: ResourceVersion,
    /// The [continue token](super::encode_continue_token) for the next page. `None` on the last
    /// page.
    pub next: Option<String>,
    /// Number of objects on later pages (`remainingItemCount`). `Some` only for lists without
    /// selectors. The response omits this field for the number 0.
    pub remaining: Option<u64>,
    /// Whether a table without rows has `"rows":[]` instead of `"rows":null`. As at the API server,
    /// this depends on the kind.
    pub has_rows_if_empty: bool,
}

impl TableEnvelope {
    /// Writes the text before the first row.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        write_types(self.form.version.api_version(), "Table", out);
        write_metadata(&self.version, self.next.as_deref(), self.remaining, out);
        out.extend_from_slice(br#","columnDefinitions":"#);
        out.extend_from_slice(self.columns.as_bytes());
        out.extend_from_slice(br#","rows":"#);
    }

    /// Writes the opening bracket of `rows` and the first row. `cells` is the result of
    /// `TablePrinter::row` for the object with the JSON `stored`.
    pub fn write_first_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b'[');
        self.write_row(cells, stored, out);
    }

    /// Writes a complete table with one row, without a line feed. Such a table is the object of a
    /// watch event.
    pub fn write_single_row_table(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        self.write_head(out);
        self.write_first_row(cells, stored, out);
        out.extend_from_slice(b"]}");
    }

    /// Writes a comma and a row that is not the first row of the table.
    pub fn write_next_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b',');
        self.write_row(cells, stored, out);
    }

    fn write_row(&self, cells: &str, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(cells.as_bytes());
        out.extend_from_slice(br#","object":"#);
        match self.form.object {
            None => out.extend_from_slice(b"null"),
            Some(part) => write_object(&self.api_version, &self.kind, stored, part, out),
        }
        out.push(b'}');
    }

    /// Writes the end of the table. `is_empty` is `true` if the caller has written no row.
    pub fn write_tail(&self, is_empty: bool, out: &mut Vec<u8>) {
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
    use crate::{MetaVersion, ObjectPart};

    const POD: &str = r#"{"metadata":{"name":"a"},"spec":{}}"#;

    fn frame(object: Option<ObjectPart>, version: MetaVersion, rows: usize) -> TableEnvelope {
        TableEnvelope {
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

    fn table(object: Option<ObjectPart>, version: MetaVersion, rows: usize) -> String {
        let frame = frame(object, version, rows);
        let mut out = Vec::new();
        frame.write_head(&mut out);
        for number in 0..rows {
            let cells = r#""cells":["a"]"#;
            match number {
                0 => frame.write_first_row(cells, POD.as_bytes(), &mut out),
                _ => frame.write_next_row(cells, POD.as_bytes(), &mut out),
            }
        }
        frame.write_tail(rows == 0, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_row_has_cells_and_the_requested_part_of_its_object() {
        let metadata = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        let whole = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
        for (included, object) in [
            (None, "null"),
            (Some(ObjectPart::Metadata(MetaVersion::V1)), metadata),
            (Some(ObjectPart::Full), whole),
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
        let old = table(Some(ObjectPart::Metadata(version)), version, 1);
        assert_eq!(old.matches("meta.k8s.io/v1beta1").count(), 2, "{old}");
    }

    #[test]
    fn a_table_of_any_length_is_valid_json() {
        for rows in 0..3 {
            let text = table(Some(ObjectPart::Full), MetaVersion::V1, rows);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["rows"].as_array().unwrap().len(), rows);
            assert_eq!(read["metadata"]["continue"].is_string(), rows > 1);
        }
        let mut out = Vec::new();
        let frame = TableEnvelope { has_rows_if_empty: false, ..frame(None, MetaVersion::V1, 0) };
        frame.write_tail(true, &mut out);
        assert_eq!(out, b"null}\n");
    }
}
