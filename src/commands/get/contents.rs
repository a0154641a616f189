//! Converts the objects that `get` reads to the output formats of `-o`.

use super::GetArgs;
use crate::commands::{
    output::OutputFormat,
    report::{
        CommandReport, ReportFact, ReportFormat, ReportRow, ReportSection, TerminalLayout, TextTone,
    },
    text::{length, span},
};
use jiff::Timestamp;
use kubewarm_api::model::ResourceInfo;
use serde_json::{Value, json};

/// Text that is never cut at the terminal's width, because programs need complete columns.
const WHOLE: ReportFormat =
    ReportFormat::Text(TerminalLayout { width: 0, height: 0, has_colours: false });

/// Returns a report on the objects in `pages`, and the format that `-o` selects.
pub(super) fn contents(
    pages: Vec<Value>,
    kind: &ResourceInfo,
    args: &GetArgs,
    now: Timestamp,
) -> (CommandReport, ReportFormat) {
    let format = match args.output.format {
        None | Some(OutputFormat::Wide) => {
            let section =
                ReportSection { rows: table(&pages, args, now), ..ReportSection::default() };
            return (CommandReport { sections: vec![section], ..CommandReport::default() }, WHOLE);
        }
        Some(OutputFormat::Name) => {
            let names = Some(names(&pages, kind));
            return (CommandReport { names, ..CommandReport::default() }, ReportFormat::Names);
        }
        Some(OutputFormat::Json) => ReportFormat::Json,
        Some(OutputFormat::Yaml) => ReportFormat::Yaml,
    };
    (CommandReport { data: document(pages, kind, args), ..CommandReport::default() }, format)
}

/// Returns the rows of the server's Tables. If the server sends objects instead, the rows contain
/// their names and ages.
fn table(pages: &[Value], args: &GetArgs, now: Timestamp) -> Vec<ReportRow> {
    let is_wide = args.output.format == Some(OutputFormat::Wide);
    let definitions = pages.first().and_then(|page| page["columnDefinitions"].as_array());
    let lines = match definitions {
        Some(definitions) => of_tables(definitions, pages, is_wide),
        None => of_objects(pages, now),
    };
    let row = |(namespace, columns): (String, Vec<String>)| {
        let first = args.all_namespaces.then_some(namespace);
        let facts =
            first.into_iter().chain(columns).map(|text| ReportFact::new(TextTone::Plain, text));
        ReportRow::of(facts.collect())
    };
    lines.into_iter().map(row).collect()
}

/// Returns the headings and the rows of the server's Tables, each with a text for the namespace
/// column. The API server gives less important columns a priority other than 0. Such columns are
/// omitted unless `is_wide` is true.
fn of_tables(definitions: &[Value], pages: &[Value], is_wide: bool) -> Vec<(String, Vec<String>)> {
    let is_shown = |column: &Value| is_wide || column["priority"].as_i64().unwrap_or_default() == 0;
    let shown: Vec<bool> = definitions.iter().map(is_shown).collect();
    let head = definitions.iter().zip(&shown).filter(|(_, shown)| **shown);
    let head = head.map(|(column, _)| text(&column["name"]).to_uppercase()).collect();
    let rows = pages.iter().flat_map(|page| page["rows"].as_array().into_iter().flatten());
    let line = |row: &Value| {
        let cells = row["cells"].as_array().into_iter().flatten().zip(&shown);
        let cells = cells.filter(|(_, shown)| **shown).map(|(cell, _)| text(cell)).collect();
        (text(&row["object"]["metadata"]["namespace"]), cells)
    };
    [("NAMESPACE".to_owned(), head)].into_iter().chain(rows.map(line)).collect()
}

fn of_objects(pages: &[Value], now: Timestamp) -> Vec<(String, Vec<String>)> {
    let line = |object: &Value| {
        let metadata = &object["metadata"];
        (text(&metadata["namespace"]), vec![text(&metadata["name"]), age(metadata, now)])
    };
    let head = ("NAMESPACE".to_owned(), vec!["NAME".to_owned(), "AGE".to_owned()]);
    [head].into_iter().chain(objects(pages).map(line)).collect()
}

/// Returns the named object, or a `v1` List of the objects of all pages. Each item gets
/// `apiVersion` and `kind`, which servers omit in lists.
fn document(mut pages: Vec<Value>, kind: &ResourceInfo, args: &GetArgs) -> Value {
    if args.name.is_some() {
        return pages.pop().unwrap_or_default();
    }
    let version = kind.resource.api_version();
    let metadata =
        json!({ "resourceVersion": pages.last().map(|page| &page["metadata"]["resourceVersion"]) });
    let mut items = Vec::new();
    for page in &mut pages {
        let Some(page_items) = page["items"].as_array_mut() else { continue };
        for mut item in page_items.drain(..) {
            if let Some(fields) = item.as_object_mut() {
                fields.entry("apiVersion").or_insert_with(|| json!(version));
                fields.entry("kind").or_insert_with(|| json!(&*kind.kind));
            }
            items.push(item);
        }
    }
    json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items })
}

fn names(pages: &[Value], kind: &ResourceInfo) -> Vec<String> {
    let ResourceInfo { kind, resource, .. } = kind;
    let mut kind = kind.to_lowercase();
    if !resource.group().is_empty() {
        kind = format!("{kind}.{}", resource.group());
    }
    let name = |object: &Value| format!("{kind}/{}", text(&object["metadata"]["name"]));
    objects(pages).map(name).collect()
}

/// Returns the items of all pages. A page without `items` is a single object.
fn objects(pages: &[Value]) -> impl Iterator<Item = &Value> {
    pages.iter().flat_map(|page| match page["items"].as_array() {
        Some(items) => items.as_slice(),
        None => std::slice::from_ref(page),
    })
}

fn age(metadata: &Value, now: Timestamp) -> String {
    let made = metadata["creationTimestamp"].as_str().and_then(|text| text.parse().ok());
    made.map_or_else(String::new, |made| length(span(made, now)))
}

/// Formats a JSON value for a column. Null becomes an empty text.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fixtures::parse;
    use crate::commands::report::render;
    use kubewarm_api::model::{GroupResource, Resource};

    fn written(pages: Vec<Value>, line: &str) -> String {
        let resource = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
        let kind = ResourceInfo::new(resource, "Pod");
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let (report, format) = contents(pages, &kind, &args(line), now);
        render(&report, format).unwrap()
    }

    fn args(line: &str) -> GetArgs {
        parse(&format!("pods {line}")).unwrap()
    }

    fn pod(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" } })
    }

    #[test]
    fn columns_come_from_the_server_or_are_names_and_ages() {
        let table_page = json!({
            "columnDefinitions": [
                { "name": "Name", "priority": 0 }, { "name": "Count" }, { "name": "Node", "priority": 1 }],
            "rows": [{ "cells": ["a\u{1b}[2J", 3, "n1"], "object": { "metadata": { "namespace": "shop" } } }],
        });
        let printed = |page: &Value, line: &str| written(vec![page.clone()], line);
        assert_eq!(printed(&table_page, ""), "NAME        COUNT\na\\u{1b}[2J  3\n");
        assert_eq!(
            printed(&table_page, "-A -o wide"),
            "NAMESPACE  NAME        COUNT  NODE\nshop       a\\u{1b}[2J  3      n1\n"
        );
        let list = json!({ "items": [pod("a")] });
        assert_eq!(printed(&list, ""), "NAME  AGE\na     3 min 0 s\n");
        assert_eq!(printed(&pod("a"), "a"), "NAME  AGE\na     3 min 0 s\n");
    }

    #[test]
    fn pages_become_one_list_of_items_with_kinds() {
        let pages = || vec![json!({ "items": [pod("a")] }), json!({ "items": [pod("b")] })];
        assert_eq!(written(pages(), "-o name"), "pod/a\npod/b\n");
        let list: Value = serde_json::from_str(&written(pages(), "-o json")).unwrap();
        assert_eq!(
            (list["items"][1]["kind"].as_str(), list["items"].as_array().map(Vec::len)),
            (Some("Pod"), Some(2))
        );
        let yaml = written(vec![pod("a")], "a -o yaml");
        assert!(yaml.contains("name: a"), "{yaml}");
    }
}
