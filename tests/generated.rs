//! What is generated and committed must be what the code generates today.

#![expect(clippy::expect_used, reason = "a test may panic")]

use kubewarm::manifests;
use std::{fs, path::Path};

/// Compares `generated` with the committed file; `BLESS=1` rewrites the file instead.
#[track_caller]
fn assert_committed(path: &str, generated: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("BLESS").is_some() {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).expect("the folder can be made");
        }
        fs::write(&file, generated).expect("the file can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == generated, "{path} is stale; run `make generate` and commit the result");
}

#[test]
fn the_crd_is_up_to_date() {
    let crd = manifests::crd_yaml().expect("the CRD serializes");
    assert_committed("crds/kubewarm.io_cacheprofiles.yaml", &crd);
}
