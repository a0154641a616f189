//! What was read, as it is printed.

use super::malformed;
use crate::{
    cli::{self, GetArgs, Output},
    client::{
        Error,
        print::formatted,
        table::columns,
        text::{escape, length, span},
    },
    cluster::Kind,
    model::Resource,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The cells of a line, and the namespace it is of.
type Line = (String, Vec<String>);

/// Columns, those of the server if it has any.
pub(super) fn table(pages: &[Value], args: &GetArgs, now: Timestamp) -> String {
    let is_wide = args.output == Some(cli::Form::Wide);
    let definitions = pages.first().and_then(|page| page["columnDefinitions"].as_array());
    let (mut head, lines) = match definitions {
        Some(definitions) => of_tables(definitions, pages, is_wide),
        None => of_objects(pages, now),
    };
    if !args.all_namespaces {
        let lines: Vec<_> = lines.into_iter().map(|(_, cells)| cells).collect();
        return columns(&head, &lines);
    }
    head.insert(0, "NAMESPACE".to_owned());
    let lines = lines.into_iter().map(|(namespace, mut cells)| {
        cells.insert(0, namespace);
        cells
    });
    columns(&head, &lines.collect::<Vec<_>>())
}

/// What the server shows; of a lesser priority only on demand.
fn of_tables(definitions: &[Value], pages: &[Value], is_wide: bool) -> (Vec<String>, Vec<Line>) {
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
    (head, rows.map(line).collect())
}

/// Names and ages, for a server that has no tables.
fn of_objects(pages: &[Value], now: Timestamp) -> (Vec<String>, Vec<Line>) {
    let line = |object: &Value| {
        let metadata = &object["metadata"];
        (text(&metadata["namespace"]), vec![text(&metadata["name"]), age(metadata, now)])
    };
    (vec!["NAME".to_owned(), "AGE".to_owned()], objects(pages).map(line).collect())
}

/// The objects as documents, or their names. Items of a list say which kind they are.
///
/// # Errors
///
/// [`Error`] if they cannot be written.
pub(super) fn documents(
    mut pages: Vec<Value>,
    (resource, kind): (&Resource, &Kind),
    args: &GetArgs,
) -> Result<String, Error> {
    let format = match args.output {
        Some(cli::Form::Name) => return Ok(names(&pages, resource, kind)),
        Some(cli::Form::Yaml) => Output::Yaml,
        Some(cli::Form::Json | cli::Form::Wide) | None => Output::Json,
    };
    if args.name.is_some() {
        let missing = || Error::Discovery(malformed("there is no answer"));
        return formatted(pages.pop().ok_or_else(missing)?, format);
    }
    let version = match resource.group() {
        "" => resource.version().to_owned(),
        group => format!("{group}/{}", resource.version()),
    };
    let metadata =
        json!({ "resourceVersion": pages.last().map(|it| &it["metadata"]["resourceVersion"]) });
    let mut items = Vec::new();
    for page in &mut pages {
        let Some(found) = page["items"].as_array_mut() else { continue };
        for mut item in found.drain(..) {
            if let Some(fields) = item.as_object_mut() {
                fields.entry("apiVersion").or_insert_with(|| json!(version));
                fields.entry("kind").or_insert_with(|| json!(&*kind.name));
            }
            items.push(item);
        }
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items });
    formatted(list, format)
}

fn names(pages: &[Value], resource: &Resource, kind: &Kind) -> String {
    let mut kind = kind.name.to_lowercase();
    if !resource.group().is_empty() {
        kind = format!("{kind}.{}", resource.group());
    }
    let line = |object: &Value| format!("{kind}/{}\n", text(&object["metadata"]["name"]));
    objects(pages).map(line).collect()
}

/// Items, or the object itself.
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

/// A cell as text that is safe for a terminal.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => escape(text).into_owned(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            escape(&value.to_string()).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parsed};
    use crate::model::GroupResource;

    fn args(line: &str) -> GetArgs {
        let Command::Get(args) = parsed(&format!("kubewarm get pods {line}")) else {
            panic!("not get");
        };
        args
    }

    fn pod(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" } })
    }

    #[test]
    fn columns_are_the_servers_and_names_where_it_has_none() {
        let table_page = json!({
            "columnDefinitions": [
                { "name": "Name", "priority": 0 }, { "name": "Count" }, { "name": "Node", "priority": 1 }],
            "rows": [{ "cells": ["a\u{1b}[2J", 3, "n1"], "object": { "metadata": { "namespace": "shop" } } }],
        });
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let printed =
            |page: &Value, line: &str| table(std::slice::from_ref(page), &args(line), now);
        assert_eq!(printed(&table_page, ""), "NAME         COUNT\na\\u{1b}[2J   3\n");
        assert_eq!(
            printed(&table_page, "-A -o wide"),
            "NAMESPACE   NAME         COUNT   NODE\nshop        a\\u{1b}[2J   3       n1\n"
        );
        let list = json!({ "items": [pod("a")] });
        assert_eq!(printed(&list, ""), "NAME   AGE\na      3 min 0 s\n");
        assert_eq!(printed(&pod("a"), "a"), "NAME   AGE\na      3 min 0 s\n");
    }

    #[test]
    fn pages_are_one_list_whose_items_say_what_they_are() {
        let of = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
        let kind = Kind { name: "Pod".into(), ..Kind::default() };
        let pages = vec![json!({ "items": [pod("a")] }), json!({ "items": [pod("b")] })];
        let name = documents(pages.clone(), (&of, &kind), &args("-o name")).unwrap();
        assert_eq!(name, "pod/a\npod/b\n");
        let text = documents(pages, (&of, &kind), &args("-o json")).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (list["items"][1]["kind"].as_str(), list["items"].as_array().map(Vec::len)),
            (Some("Pod"), Some(2))
        );
        let one = documents(vec![pod("a")], (&of, &kind), &args("a -o yaml")).unwrap();
        assert!(one.contains("name: a"), "{one}");
    }
}
