//! The values in custom columns of Tables have the same bytes as the API server's: for each type of
//! column, with values of every type.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::accept::TABLE;
use crate::api::Server;
use crate::world::{Failure, Outcome, SOON, eventually};

/// The minimum number of compared values.
const FEWEST: usize = 100;

/// A kind with a column of each type. All columns show the same field.
pub(crate) const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cells.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cell, plural: cells, singular: cell}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: String, type: string, jsonPath: .spec.value}
    - {name: Integer, type: integer, jsonPath: .spec.value}
    - {name: Number, type: number, jsonPath: .spec.value}
    - {name: Boolean, type: boolean, jsonPath: .spec.value}
    - {name: Date, type: date, jsonPath: .spec.value}
";

/// Texts that Go's `time.Parse` accepts or rejects as times. Each time is more than two years ago
/// or in the future, so that its printed age stays the same during the test.
const TIMES: &[&str] = &[
    "",
    "null",
    "soon",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.5Z",
    "0001-01-01T01:00:00+01:00",
    "0001-01-01T00:00:01Z",
    "0000-01-01T00:00:00Z",
    "0000-12-31T23:00:00-01:00",
    "0000-01-01T00:00:00+24:60",
    "1700-01-01T00:00:00Z",
    "1733-01-01T00:00:00Z",
    "1735-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "2000-02-29T00:00:00Z",
    "2001-02-29T00:00:00Z",
    "2019-06-01T12:00:00Z",
    "2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00+00:00",
    "2020-01-01T00:00:00-00:00",
    "2020-01-01T00:00:00+02:00",
    "2020-01-01T00:00:00-12:30",
    "2020-01-01T00:00:00+24:00",
    "2020-01-01T00:00:00+24:60",
    "2020-01-01T00:00:00+25:00",
    "2020-01-01T00:00:00+24:61",
    "2020-01-01T00:00:00+0200",
    "2020-01-01T00:00:00+02",
    "2020-01-01T00:00:00+2:00",
    "2020-01-01T00:00:00 +02:00",
    "2020-01-01T00:00:00+02:00Z",
    "2020-01-01T00:00:00Z+02:00",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00z",
    "2020-01-01t00:00:00Z",
    "2020-01-01 00:00:00Z",
    "2020-01-01T00:00Z",
    "2020-01-01",
    "2020-01-01T00:00:60Z",
    "2020-01-01T00:60:00Z",
    "2020-01-01T24:00:00Z",
    "2020-01-01T23:59:59Z",
    "2020-01-01T1:00:00Z",
    "2020-01-01T001:00:00Z",
    "2020-01-01T00:0:00Z",
    "2020-01-01T00:00:0Z",
    "2020-1-01T00:00:00Z",
    "2020-01-1T00:00:00Z",
    "2020-00-01T00:00:00Z",
    "2020-13-01T00:00:00Z",
    "2020-01-00T00:00:00Z",
    "2020-01-32T00:00:00Z",
    "2020-04-31T00:00:00Z",
    "2020-01-01T00:00:00.5Z",
    "2020-01-01T00:00:00,5Z",
    "2020-01-01T00:00:00.123456789Z",
    "2020-01-01T00:00:00.1234567890123456789Z",
    "2020-01-01T00:00:00.Z",
    "2020-01-01T00:00:00,Z",
    "2020-01-01T00:00:00.5",
    "2020-01-01T00:00:00.5+01:00",
    "2020-01-01T00:00.5Z",
    " 2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z ",
    "+2020-01-01T00:00:00Z",
    "-2020-01-01T00:00:00Z",
    "12020-01-01T00:00:00Z",
    "020-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-24:00",
    "20200101T000000Z",
    "2020-W01-1T00:00:00Z",
    "2020-01-01T00:00:00[UTC]",
    "2020-01-01T00:00:00Z[UTC]",
];

/// Texts with characters that JSON encoders escape differently.
const TEXTS: &[&str] = &["text", "<a&b>", "é😀", "\u{2028}\u{7f}\u{8}", "\"\\", "1", "true"];

fn values() -> Vec<Value> {
    let floats = [
        0.5,
        -0.5,
        1.25,
        100_000.5,
        123_456.5,
        999_999.5,
        1_000_000.5,
        12_345_678.5,
        1e15,
        1.5e15,
        123_456_789_012_345_680.0,
        1e18,
        9_223_372_036_854_774_784.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        -9_223_372_036_854_777_856.0,
        1e19,
        12_345_678_901_234_567_000.0,
        1e20,
        1.5e20,
        1e21,
        -1e21,
        1e300,
        0.0001,
        0.000_123,
        0.000_01,
        1e-6,
        1.5e-7,
        -1e-7,
        5e-324,
    ];
    let integers = [
        0,
        1,
        -1,
        999_999,
        1_000_000,
        1_764_290_000_000_000_000,
        9_007_199_254_740_993,
        999_999_999_999_999,
        1_000_000_000_000_000,
        i64::MAX,
        i64::MIN,
    ];
    let others = [
        json!(true),
        json!(false),
        json!(null),
        json!([]),
        json!({}),
        json!([1, 2.5, 1e21, 1e-7, 1_764_290_000_000_000_000_i64, 1e19, "<", null, true]),
        json!({"b": {"z": 1e6, "a": []}, "a": "\u{2029}", "<": 1}),
        json!([[{"x": [0.000_001]}]]),
    ];
    let texts = TIMES.iter().chain(TEXTS).map(|text| json!(text));
    let numbers = floats.map(Value::from).into_iter().chain(integers.map(Value::from));
    texts.chain(numbers).chain(others).collect()
}

/// One object for each value.
pub(crate) fn objects(namespace: &str) -> String {
    let object = |(at, value): (usize, Value)| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Cell",
            "metadata": {"name": format!("cell-{at:03}"), "namespace": namespace},
            "spec": {"value": value},
        })
    };
    let items: Vec<_> = values().into_iter().enumerate().map(object).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

pub(crate) fn are_printed_as_in_the_api_server(
    (reads, api): (&Server, &Server),
    token: &str,
    namespace: &str,
) -> Outcome {
    let path = format!("/apis/example.com/v1/namespaces/{namespace}/cells?includeObject=None");
    let cells = |server: &Server| -> Result<Vec<String>, Failure> {
        let text = server.get_as(token, &path, TABLE)?.text;
        let table: RawTable<'_> = serde_json::from_str(&text)?;
        Ok(table.rows.into_iter().map(|row| row.cells.get().to_owned()).collect())
    };
    eventually(SOON, || {
        let (ours, theirs) = (cells(reads)?, cells(api)?);
        assert!(theirs.len() >= FEWEST, "only {} values", theirs.len());
        let pairs = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs);
        let different: Vec<_> =
            pairs.map(|(ours, theirs)| format!("{ours}, not {theirs}")).collect();
        if different.is_empty() && ours.len() == theirs.len() {
            return Ok(());
        }
        Err(format!("{} cells differ:\n{}", different.len(), different.join("\n")).into())
    })
}

#[derive(serde::Deserialize)]
struct RawTable<'a> {
    #[serde(borrow)]
    rows: Vec<RawRow<'a>>,
}

#[derive(serde::Deserialize)]
struct RawRow<'a> {
    #[serde(borrow)]
    cells: &'a RawValue,
}
