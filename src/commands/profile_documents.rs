//! Reads the profiles in a file of YAML or JSON documents.

use super::error::CommandErrorSource;
use kubewarm_api::v1alpha1::{self, CacheProfile};
use serde_json::Value;

/// A profile from a file or a cluster, and its position in the input for error messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProfileDocument {
    /// The profile's position, such as `document 2`, `document 2 of a.yaml` or
    /// `CacheProfile web -n shop`.
    pub(super) at: String,
    /// The profile as parsed, before its validation.
    pub(super) profile: CacheProfile,
}

/// Returns the profiles in `text`, in file order, including the items of List documents. Skips
/// documents that are not CacheProfiles.
///
/// # Errors
///
/// Returns position and cause of the first invalid document. A document is invalid if it is not
/// YAML. A CacheProfile is also invalid if it has an API version other than `v1alpha1` or an
/// invalid field.
pub(super) fn profiles(text: &str) -> Result<Vec<ProfileDocument>, (String, CommandErrorSource)> {
    let mut profiles = Vec::new();
    for (index, document) in split(text).iter().enumerate() {
        let at = format!("document {}", index + 1);
        let value: Value =
            serde_saphyr::from_str(document).map_err(|error| (at.clone(), unreadable(&error)))?;
        if let Some(items) = items(&value) {
            for (item, value) in items.iter().enumerate().filter(|(_, item)| is_profile(item)) {
                let at = format!("{at}, items[{item}]");
                let profile = read(value, || serde_json::from_value(value.clone()))
                    .map_err(|error| (at.clone(), error))?;
                profiles.push(ProfileDocument { at, profile });
            }
        } else if is_profile(&value) {
            // The document is parsed a second time, because only `serde_saphyr` reports the line
            // and column of an error.
            let profile = read(&value, || serde_saphyr::from_str(document))
                .map_err(|error| (at.clone(), error))?;
            profiles.push(ProfileDocument { at, profile });
        }
    }
    Ok(profiles)
}

fn is_profile(value: &Value) -> bool {
    group_of(value) == Some(v1alpha1::GROUP) && value["kind"] == "CacheProfile"
}

fn group_of(value: &Value) -> Option<&str> {
    value["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group)
}

/// Returns the items of a List document, such as the output of `kubectl get -o yaml`. Returns
/// `None` for any other document.
fn items(value: &Value) -> Option<&Vec<Value>> {
    let kind = value["kind"].as_str()?;
    (kind == "List" || kind == "CacheProfileList").then(|| value["items"].as_array()).flatten()
}

/// Checks the API version in `value`, a parsed document, and then returns the profile that `parse`
/// creates from the same document.
fn read<E: std::error::Error>(
    value: &Value,
    parse: impl FnOnce() -> Result<CacheProfile, E>,
) -> Result<CacheProfile, CommandErrorSource> {
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version.split_once('/').is_none_or(|(_, version)| version != v1alpha1::VERSION) {
        let (group, known) = (v1alpha1::GROUP, v1alpha1::VERSION);
        return Err(
            format!("apiVersion is {version}; this version supports {group}/{known}").into()
        );
    }
    parse().map_err(|error| unreadable(&error))
}

/// Returns an error with the message of the parser error `error`, but without `error` as its cause.
/// The message already contains the complete text, which has several lines and quotes the file.
fn unreadable(error: &dyn std::error::Error) -> CommandErrorSource {
    error.to_string().into()
}

/// Splits `text` into YAML documents. Empty lines replace all lines of the file before a document,
/// so that the document's error messages contain the line numbers of the file.
///
/// A line that is `---`, or begins with `---` and a space or tab, always separates documents. YAML
/// does not allow such a line inside a document.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        let is_marker = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if is_marker {
            let is_begun = documents.last().is_some_and(|text| has_content(text));
            if !is_begun {
                documents.pop();
            }
            let rest = line.get(3..).unwrap_or_default();
            documents.push("\n".repeat(number) + rest + "\n");
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|text| has_content(text));
    documents
}

fn has_content(document: &str) -> bool {
    document.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: NAME}
spec:
  targets:
  - name: pods
    resource: pods
";

    fn profile(name: &str) -> String {
        PROFILE.replace("NAME", name)
    }

    fn names(text: &str) -> Vec<(String, String)> {
        let documents = profiles(text).unwrap();
        documents
            .into_iter()
            .map(|document| (document.at, document.profile.metadata.name.unwrap()))
            .collect()
    }

    #[test]
    fn documents_of_other_kinds_are_skipped() {
        let text = format!(
            "# head\n---\n{}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: x}}\n---\n---\n# \
             nothing\n--- # third\n{}",
            profile("a"),
            profile("b"),
        );
        let expected = [("document 1", "a"), ("document 3", "b")];
        assert_eq!(names(&text), expected.map(|(at, name)| (at.to_owned(), name.to_owned())));
    }

    #[test]
    fn json_and_lists_are_accepted() {
        let value: Value = serde_saphyr::from_str(&profile("a")).unwrap();
        let list = serde_json::json!({
            "apiVersion": "v1", "kind": "List", "items": [{ "kind": "Pod" }, value],
        });
        assert_eq!(names(&list.to_string()), [("document 1, items[1]".into(), "a".into())]);
        assert_eq!(names(&value.to_string()), [("document 1".into(), "a".into())]);
    }

    #[test]
    fn files_without_profiles_have_no_result() {
        for text in ["", "# only\n", "---\n", "a: 1\n", "- 1\n", "null\n", "word\n"] {
            assert_eq!(names(text), [], "{text:?}");
        }
        let other = profile("a").replace("kubewarm.io", "example.com");
        assert_eq!(names(&other), []);
    }

    #[test]
    fn errors_name_the_document_and_the_line_of_the_file() {
        let wrong = profile("b").replace("resource: pods", "resource: []");
        let (at, error) = profiles(&format!("{}---\n{wrong}", profile("a"))).unwrap_err();
        assert_eq!(at, "document 2");
        assert!(error.to_string().contains("15"), "{error}");

        let (at, _) = profiles("a: 1\n---\nb: [1\n").unwrap_err();
        assert_eq!(at, "document 2");
    }

    #[test]
    fn another_api_version_is_an_error() {
        let newer = profile("a").replace("v1alpha1", "v2");
        assert_eq!(
            profiles(&newer).unwrap_err().1.to_string(),
            "apiVersion is kubewarm.io/v2; this version supports kubewarm.io/v1alpha1"
        );
    }
}
