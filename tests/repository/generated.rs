//! Tests that the committed generated files match the code's output.

#![expect(clippy::expect_used, reason = "a test may panic")]

use crate::api_reference;

use kube::CustomResourceExt as _;
use kubewarm_api::{
    manifests::{self, ProfilePermissions},
    model::{Subject, ValidatedProfile, WatchedNamespaces},
    v1alpha1::CacheProfile,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The line in a manifest before its generated roles. Everything after this line is generated.
const ROLES: &str =
    "# From here on: what `kubewarm rbac -f` prints for this file; generated, do not edit.\n";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Fails unless the committed file equals `generated`. With `BLESS=1`, writes the file instead.
#[track_caller]
pub(crate) fn assert_committed(path: &str, generated: &str) {
    let file = in_repository(path);
    if std::env::var_os("BLESS").is_some() {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).expect("the folder can be made");
        }
        fs::write(&file, generated).expect("the file can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == generated, "{path} is stale; run `make generate` and commit the result");
}

/// The first sentence of a description.
pub(crate) fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").or_else(|| text.find(".\n")).map_or(text.len(), |dot| dot + 1);
    text.get(..end).unwrap_or(text)
}

/// The output of `kubewarm rbac -f` for the profiles in `text`.
fn roles(text: &str) -> String {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("the example is YAML");
    let profiles = all.into_iter().filter(|document| document["kind"] == "CacheProfile");
    let access = |document| {
        let profile: CacheProfile = serde_json::from_value(document).expect("the kind's shape");
        let profile = ValidatedProfile::parse(&profile).expect("the example is valid");
        let subject = Subject::ServiceAccount {
            namespace: "kubewarm-system".into(),
            name: "kubewarm".into(),
        };
        ProfilePermissions::of_profile(
            &profile,
            &[].into(),
            &subject,
            &WatchedNamespaces::Everywhere,
        )
        .expect("its names fit")
        .to_yaml()
    };
    profiles.map(access).collect()
}

#[test]
fn the_crd_is_up_to_date() {
    let crd = manifests::render_crd().expect("the CRD serializes");
    assert_committed("crds/kubewarm.io_cacheprofiles.yaml", &crd);
}

#[test]
fn the_api_reference_is_up_to_date() {
    let crd = serde_json::to_value(CacheProfile::crd()).expect("the CRD serializes");
    assert_committed("docs/api.md", &api_reference::markdown(&crd));
}

#[test]
fn the_roles_of_an_operator_for_some_namespaces_are_up_to_date() {
    let roles = manifests::render_operator("kubewarm-system", &["shop".to_owned()], &[]);
    let head = "\
# What `kubewarm rbac --operator --operator-namespace kubewarm-system --watch-namespaces shop` prints: all that kubewarm
# itself needs to run with the last flag, without any ClusterRole. Name your own namespaces.
";
    let generated =
        format!("{}{head}{}", manifests::HEADER, roles.expect("the shipped manifest is YAML"));
    assert_committed("deploy/operator-rbac-namespaces.yaml", &generated);
}

// One test for all files, because it also writes the quickstart and must read it afterwards.
#[test]
fn the_roles_of_the_examples_are_up_to_date() {
    for path in ["deploy/examples/quickstart.yaml", "examples/profile.yaml"] {
        let text = fs::read_to_string(in_repository(path)).expect("the file can be read");
        let (by_hand, _) = text.split_once(ROLES).expect("the line that begins the generated part");
        assert_committed(path, &format!("{by_hand}{ROLES}{}", roles(by_hand)));
    }

    for entry in fs::read_dir(in_repository("deploy/examples")).expect("the folder is there") {
        let file = entry.expect("the folder can be read").path();
        let name = file.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let text = fs::read_to_string(&file).expect("the file can be read");
        let generated = format!("{}{}", manifests::HEADER, roles(&text));
        assert_committed(&format!("deploy/rbac/{name}"), &generated);
    }
}
