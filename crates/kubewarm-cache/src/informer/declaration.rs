//! What the controller reads of a profile, cut out of what its author wrote.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most bytes of a status that are kept. kubewarm writes none that is longer: manifests are left
/// out above 256 KiB, and everything else of 32 targets takes less. A longer one is somebody else's,
/// and counts as none.
const MAX_STATUS: usize = 512 << 10;

#[derive(Deserialize, Serialize)]
struct Profile<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    generation: Option<&'a RawValue>,
}

/// Appends `{"metadata":{"creationTimestamp":…,"generation":…},"spec":…,"status":…}` of the profile
/// `text`, each member as the server sent it and only where there is one. Namespace, name, UID and
/// resource version stand beside a body; labels, annotations and `managedFields`, which may take a
/// MiB, nobody reads.
///
/// # Errors
///
/// If a member stands there twice.
pub(super) fn write(into: &mut Vec<u8>, text: &str) -> serde_json::Result<()> {
    let Profile { metadata, spec, status } = serde_json::from_str(text)?;
    let status = status.filter(|status| status.get().len() <= MAX_STATUS);
    serde_json::to_writer(into, &Profile { metadata, spec, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut scratch = Vec::new();
        write(&mut scratch, text).unwrap();
        String::from_utf8_lossy(&scratch).into_owned()
    }

    #[test]
    fn nothing_is_kept_that_the_controller_does_not_read() {
        let large = "x".repeat(64 << 10);
        let text = format!(
            r#"{{"apiVersion":"v","kind":"CacheProfile","metadata":{{"annotations":{{"a":"{large}"}},
            "creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"labels":{{"a":"{large}"}},
            "managedFields":[{{"a":"{large}"}}],"name":"p","uid":"u"}},
            "spec":{{"targets":[]}},"status":{{"objects":1}},"more":"{large}"}}"#
        );
        assert_eq!(
            written(&text),
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3},"spec":{"targets":[]},"status":{"objects":1}}"#
        );
    }

    #[test]
    fn what_is_not_there_is_not_invented() {
        assert_eq!(written(r#"{"metadata":{"name":"p"}}"#), r#"{"metadata":{}}"#);
        let generation = r#"{"spec":{},"metadata":{"generation":1}}"#;
        assert_eq!(written(generation), r#"{"metadata":{"generation":1},"spec":{}}"#);
    }

    #[test]
    fn a_status_that_is_longer_than_any_of_ours_counts_as_none() {
        let status = |length| {
            let text = format!(r#"{{"metadata":{{}},"status":"{}"}}"#, "x".repeat(length));
            written(&text).len() > length
        };
        assert!(status(MAX_STATUS - 2));
        assert!(!status(MAX_STATUS - 1));
    }
}
