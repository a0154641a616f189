use prometheus::{Registry, register_int_gauge_vec_with_registry};

/// Values of the labels of `kubewarm_build_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    pub version: &'static str,
    /// The Git commit, or `unknown`.
    pub revision: &'static str,
    /// The Rust version that the package requires.
    pub rustc: &'static str,
}

impl BuildInfo {
    /// Returns the version, commit and Rust version of this build. The environment variable
    /// `KUBEWARM_REVISION` sets the commit at compile time.
    pub const fn current() -> Self {
        let revision = match option_env!("KUBEWARM_REVISION") {
            Some(revision) => revision,
            None => "unknown",
        };
        Self { version: env!("CARGO_PKG_VERSION"), revision, rustc: env!("CARGO_PKG_RUST_VERSION") }
    }

    pub(super) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let info = register_int_gauge_vec_with_registry!(
            "kubewarm_build_info",
            "Build of this process: always 1.",
            &["version", "revision", "rustc"],
            registry
        )?;
        info.with_label_values(&[self.version, self.revision, self.rustc]).set(1);
        Ok(())
    }
}
