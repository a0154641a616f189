//! Tests the import rules of docs/architecture.md within each crate. The test only reads source
//! text. So it finds accidental violations, but not every deliberate one.

#![expect(clippy::expect_used, reason = "a test may panic")]

use super::files::files;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A module, and the other modules of its crate that it may import.
type Layer = (&'static str, &'static [&'static str]);

/// The layers of each crate with several layers, lowest first. Cargo.toml limits the imports
/// between crates.
const ALLOWED: &[(&str, &[Layer])] = &[
    (
        "crates/kubewarm-api",
        &[("v1alpha1", &[]), ("model", &["v1alpha1"]), ("manifests", &["v1alpha1", "model"])],
    ),
    ("crates/kubewarm-cache", &[("store", &[]), ("informer", &["store"])]),
    (
        "crates/kubewarm-serve",
        &[
            ("certificate", &[]),
            ("callers", &["certificate"]),
            ("listen", &[]),
            ("metrics", &["callers"]),
            ("user_reads", &["metrics"]),
            ("reads", &["callers", "metrics"]),
            ("review", &[]),
            ("applier_registry", &["callers", "review"]),
            ("watcher_registry", &["reads"]),
            (
                "server",
                &[
                    "applier_registry",
                    "callers",
                    "certificate",
                    "user_reads",
                    "listen",
                    "metrics",
                    "reads",
                    "review",
                    "watcher_registry",
                ],
            ),
        ],
    ),
    (
        ".",
        &[
            ("access", &[]),
            ("forecast", &[]),
            ("status", &["access", "forecast"]),
            ("metrics", &["access"]),
            ("server", &["metrics"]),
            ("controller", &["access", "forecast", "status", "metrics"]),
            ("commands", &["access", "forecast", "controller"]),
            ("cli", &["commands"]),
            ("telemetry", &["cli"]),
            // The layer `app` assembles the process (composition root). It imports every layer, and
            // no layer imports it.
            (
                "app",
                &[
                    "cli",
                    "telemetry",
                    "access",
                    "forecast",
                    "status",
                    "metrics",
                    "server",
                    "commands",
                    "controller",
                ],
            ),
        ],
    ),
];

/// External crates, or single names of them, that only the listed layers of a package may use.
const RESTRICTED: &[(&str, &[Layer])] = &[
    // These packages read and write text, and may send no requests. So no layer may use a client.
    ("crates/kubewarm-api", &[("kube::Client", &[])]),
    ("crates/kubewarm-wire", &[("kube::Client", &[])]),
    ("crates/kubewarm-serve", &[("kube::Client", &["reads"])]),
    (
        ".",
        &[
            ("actix_http::", &["server"]),
            ("actix_service::", &["server"]),
            ("actix_tls::", &["server"]),
            ("actix_web::", &["server"]),
            ("clap::", &["commands", "cli"]),
            ("clap_complete::", &["cli"]),
            ("kube::Client", &["access", "forecast", "status", "commands", "controller", "app"]),
            ("prometheus::", &["metrics"]),
            ("rustls::", &["server"]),
            ("tracing_subscriber::", &["telemetry"]),
        ],
    ),
];

#[test]
fn layers_import_only_permitted_layers() {
    let mut violations = Vec::new();
    for (package, layers) in ALLOWED {
        for (layer, files) in sources(package) {
            let Some((_, may_import)) = layers.iter().find(|(name, _)| *name == layer) else {
                violations.push(format!("{package}/src/{layer} is not in this table"));
                continue;
            };
            for (path, text) in files {
                for import in imports(&text, "crate::") {
                    let is_layer = layers.iter().any(|(name, _)| *name == import);
                    if is_layer && import != layer && !may_import.contains(&import.as_str()) {
                        violations.push(format!("{} imports {import}", path.display()));
                    }
                }
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn restricted_crates_are_used_only_in_their_layers() {
    let mut violations = Vec::new();
    for (package, restrictions) in RESTRICTED {
        for (layer, files) in sources(package) {
            for (path, text) in files {
                for (restricted, layers) in *restrictions {
                    if mentions(&text, restricted) && !layers.contains(&layer.as_str()) {
                        violations.push(format!("{} mentions {restricted}", path.display()));
                    }
                }
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_table_itself_has_no_cycle() {
    // The rows of the table are in the order of the layers: each layer may import only layers in
    // rows above it.
    for (package, layers) in ALLOWED {
        for (at, (layer, may_import)) in layers.iter().enumerate() {
            for import in *may_import {
                let earlier = layers.iter().take(at).any(|(name, _)| name == import);
                assert!(earlier, "{package}: {layer} may import {import}, which is not above it");
            }
        }
    }
}

#[test]
fn imports_are_found_in_every_form() {
    let text = "use crate::{api::{Spec, Kind}, model::Cell};\ncrate::store::open(); // crate::no\n\
                use kube::{Api, Client};\n    /// [`crate::never`]\n";
    let names: Vec<_> = imports(&code(text), "crate::").into_iter().collect();
    assert_eq!(names, ["api", "model", "store"]);
    assert!(mentions(text, "kube::Client") && !mentions(text, "kube::Config"));
}

/// Whether `text` uses `restricted`: a crate (`zstd::`), or one name of a crate (`kube::Client`).
fn mentions(text: &str, restricted: &str) -> bool {
    match restricted.rsplit_once("::") {
        Some((krate, item)) if !item.is_empty() => {
            imports(text, &format!("{krate}::")).contains(item)
        }
        _ => text.contains(restricted),
    }
}

/// The first path segments after `prefix`, in plain and in braced imports.
fn imports(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut segments = Vec::new();
    for part in text.split(prefix).skip(1) {
        let Some(braced) = part.strip_prefix('{') else {
            segments.push(part.to_owned());
            continue;
        };
        let mut depth = 0_u32;
        let mut segment = String::new();
        for c in braced.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => segments.push(std::mem::take(&mut segment)),
                _ if depth == 0 => segment.push(c),
                _ => {}
            }
        }
        segments.push(segment);
    }
    segments
        .iter()
        .map(|s| s.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .filter(|s: &String| !s.is_empty())
        .collect()
}

/// `text` without comments. Comments may name any crate without an import.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The code of each layer of `package`: `src/<layer>.rs` and all files below `src/<layer>/`.
fn sources(package: &str) -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = root.join(package).join("src");
    let mut layers: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for file in files(&src, is_rust) {
        let inside = file.strip_prefix(&src).expect("found below src");
        let first = inside.iter().next().expect("a path has a first part").to_string_lossy();
        let layer = first.trim_end_matches(".rs").to_owned();
        if layer == "lib" || layer == "main" {
            continue;
        }
        let text = code(&fs::read_to_string(&file).expect("source is readable"));
        layers.entry(layer).or_default().push((Path::new(package).join("src").join(inside), text));
    }
    layers
}

fn is_rust(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|extension| extension == "rs")
}
