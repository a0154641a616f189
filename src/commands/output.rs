//! The output formats of `-o`.

use super::{
    CommandError,
    report::{CommandReport, ReportFormat, render},
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArgs {
    /// Output format [default: text, or yaml for manifests and kubeconfigs].
    #[arg(id = "output", short = 'o', long = "output", value_name = "FORMAT")]
    pub format: Option<OutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kinds and names, one per line.
    Name,
    /// Text with more columns.
    Wide,
}

/// Converts YAML manifests to the output `format`: unchanged YAML, a JSON List, or kinds and names.
///
/// # Errors
///
/// [`CommandError`] if `format` is the wide format, or if `text` is not YAML.
pub(super) fn manifests(
    text: String,
    format: Option<OutputFormat>,
) -> Result<String, CommandError> {
    let format = match format {
        None | Some(OutputFormat::Yaml) => return Ok(text),
        Some(OutputFormat::Json) => ReportFormat::Json,
        Some(OutputFormat::Name) => ReportFormat::Names,
        Some(OutputFormat::Wide) => {
            return Err(CommandError::new(
                "manifests have no wide format; use -o yaml, json or name",
            ));
        }
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| CommandError::caused("cannot read the manifests back", error))?;
    let items: Vec<_> = documents.into_iter().filter(Value::is_object).collect();
    let names = Some(items.iter().map(name).collect());
    let data = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    render(&CommandReport { data, names, ..CommandReport::default() }, format)
}

/// Returns kind, group and name of `object` as kubectl prints them, such as
/// `role.rbac.authorization.k8s.io/NAME`.
fn name(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind").to_lowercase(), text("/metadata/name"));
    match text("/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_yaml_documents_a_json_list_or_names() {
        let text = "# Generated.\nkind: Namespace\napiVersion: v1\nmetadata: {name: shop}\n---\n\
                    kind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: 'a:b'}\n";
        let written =
            |format| manifests(text.to_owned(), format).map_err(|error| error.to_string());
        assert_eq!(written(None).as_deref(), Ok(text));
        assert_eq!(written(Some(OutputFormat::Yaml)).as_deref(), Ok(text));
        assert_eq!(
            written(Some(OutputFormat::Name)).as_deref(),
            Ok("namespace/shop\nrole.rbac.authorization.k8s.io/a:b\n")
        );
        let list: Value =
            serde_json::from_str(&written(Some(OutputFormat::Json)).unwrap()).unwrap();
        assert_eq!((&list["kind"], &list["items"][1]["kind"]), (&json!("List"), &json!("Role")));
        assert!(written(Some(OutputFormat::Wide)).unwrap_err().contains("-o yaml"));
    }
}
