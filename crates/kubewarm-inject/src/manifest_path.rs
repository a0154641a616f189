//! Paths of fields in an object.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The path of a field, such as `spec.template.spec.containers[app].env`. A name in brackets
/// selects the list item with this `name`, because positions change when a user adds a container.
/// The empty path is the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ManifestPath(Vec<PathStep>);

/// A step from an object or list to one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    /// The value of a key.
    Key(String),
    /// The list item whose `name` is this.
    Named(String),
    /// The list item at this position. Only for items of a `List`, which can lack a name.
    Position(usize),
}

impl ManifestPath {
    /// Parses keys with dots between them. Each key can end with a name in brackets.
    pub(crate) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.').filter(|part| !part.is_empty()) {
            match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
                Some((key, name)) => {
                    steps.push(PathStep::Key(key.to_owned()));
                    steps.push(PathStep::Named(name.to_owned()));
                }
                None => steps.push(PathStep::Key(part.to_owned())),
            }
        }
        Self(steps)
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(PathStep::Key(key.to_owned()))
    }

    pub(crate) fn named(&self, key: &str, name: &str) -> Self {
        self.key(key).step(PathStep::Named(name.to_owned()))
    }

    pub(crate) fn position(&self, position: usize) -> Self {
        self.step(PathStep::Position(position))
    }

    /// This path below `base`.
    pub(crate) fn below(&self, base: &Self) -> Self {
        Self(base.0.iter().chain(&self.0).cloned().collect())
    }

    pub(crate) fn steps(&self) -> &[PathStep] {
        &self.0
    }

    /// The last step, if it is a key.
    pub(crate) fn last_key(&self) -> Option<&str> {
        match self.0.last()? {
            PathStep::Key(key) => Some(key),
            PathStep::Named(_) | PathStep::Position(_) => None,
        }
    }

    fn step(&self, step: PathStep) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The value at this path of `object`.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            PathStep::Key(key) => value.get(key),
            PathStep::Named(name) => value.as_array()?.iter().find(|item| has_name(item, name)),
            PathStep::Position(position) => value.get(position),
        })
    }

    /// The same for a change.
    pub(crate) fn find_mut<'a>(&self, object: &'a mut Value) -> Option<&'a mut Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            PathStep::Key(key) => value.get_mut(key),
            PathStep::Named(name) => {
                value.as_array_mut()?.iter_mut().find(|item| has_name(item, name))
            }
            PathStep::Position(position) => value.get_mut(position),
        })
    }
}

fn has_name(item: &Value, name: &str) -> bool {
    item.get("name").and_then(Value::as_str) == Some(name)
}

impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if index == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Named(name) => write!(f, "[{name}]")?,
                PathStep::Position(position) => write!(f, "[{position}]")?,
            }
        }
        Ok(())
    }
}

impl From<String> for ManifestPath {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<ManifestPath> for String {
    fn from(path: ManifestPath) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_is_its_text() {
        for text in ["", "spec", "spec.template.spec.containers[app].env", "spec.volumes"] {
            assert_eq!(ManifestPath::parse(text).to_string(), text);
        }
    }

    #[test]
    fn a_name_selects_an_item_wherever_it_stands() {
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [1]}]}});
        let find = |text: &str| ManifestPath::parse(text).find(&object).cloned();
        assert_eq!(find("spec.containers[b].env"), Some(json!([1])));
        assert_eq!(find("spec.containers[c].env"), None);
        assert_eq!(find("").as_ref(), Some(&object));
        let second = ManifestPath::parse("spec.containers").position(1).key("name");
        assert_eq!(second.find(&object), Some(&json!("b")));
    }
}
