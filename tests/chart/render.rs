//! Renders the chart.

use serde_json::Value;
use testbed::Helm;

use crate::cluster::{Failure, NAMESPACE, chart, file};

/// Helm's output, and the objects in it.
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) objects: Vec<Value>,
}

impl Rendered {
    /// The only object of this kind, or of `KIND/NAME`.
    pub(crate) fn only(&self, wanted: &str) -> Result<&Value, Failure> {
        let (kind, name) =
            wanted.split_once('/').map_or((wanted, None), |(kind, name)| (kind, Some(name)));
        let mut objects = self
            .of_kind(kind)
            .filter(|one| name.is_none_or(|name| one["metadata"]["name"] == name));
        match (objects.next(), objects.next()) {
            (Some(object), None) => Ok(object),
            (None, _) => Err(format!("no {wanted}").into()),
            (Some(_), Some(_)) => Err(format!("several objects of kind {wanted}").into()),
        }
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }
}

/// The objects of a text, including the items of lists.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>, Failure> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let each = all.into_iter().flat_map(|mut document| match document.get_mut("items") {
        Some(Value::Array(items)) => std::mem::take(items),
        Some(_) | None => vec![document],
    });
    Ok(each.filter(|object| !object.is_null()).collect())
}

/// Renders the release `kubewarm` with further arguments, without the objects of `helm test`.
pub(crate) fn render(helm: &Helm, more: &[&str]) -> Result<Rendered, Failure> {
    render_all(helm, &[&["--skip-tests"], more].concat())
}

/// Renders the release, including the objects of `helm test`.
pub(crate) fn render_all(helm: &Helm, more: &[&str]) -> Result<Rendered, Failure> {
    let chart = chart();
    let args = ["template", "kubewarm", &chart, "--namespace", NAMESPACE];
    let text = helm.run(args.iter().chain(more))?;
    let objects = objects(&text)?;
    Ok(Rendered { text, objects })
}

/// A values file: its name, its path and its content.
pub(crate) struct Values {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) content: Value,
}

/// The values files in the chart's `ci` folder.
pub(crate) fn all_values() -> Result<Vec<Values>, Failure> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(file("charts/kubewarm/ci"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = serde_saphyr::from_str(&std::fs::read_to_string(&path)?)?;
        all.push(Values { name, path: path.to_string_lossy().into_owned(), content });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if all.len() < 10 {
        return Err(format!("only {} files of values", all.len()).into());
    }
    Ok(all)
}
