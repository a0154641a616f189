//! Programs that are built once from a Go module and kept in a cache folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Action, Error, Result};
use crate::process::run;

/// A Go module and the programs that are built from it.
pub(crate) struct Module<'a> {
    /// The prefix of the module's folder in the cache.
    pub(crate) name: &'a str,
    /// The text that is printed while the build runs: the programs and the duration.
    pub(crate) title: &'a str,
    /// The content of each file, by its path in the module.
    pub(crate) files: &'a [(&'a str, &'a str)],
    /// Each program, and the Go package that it is built from.
    pub(crate) programs: &'a [(&'a str, &'a str)],
    /// Flags of the linker.
    pub(crate) flags: &'a str,
}

impl Module<'_> {
    /// Returns the folder of the programs in the cache folder (`$KUBEWARM_CACHE`, else
    /// `~/.cache/kubewarm`). Missing programs are built, and concurrent callers wait for one build.
    pub(crate) fn locate_or_build(&self) -> Result<PathBuf> {
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).action(|| format!("create {}", cache.display()))?;
        let name = format!("{}-{:016x}", self.name, self.fingerprint());
        let folder = cache.join(&name);
        if folder.is_dir() {
            return Ok(folder);
        }
        let lock = cache.join(format!("{name}.lock"));
        // The lock ends when this file is closed, at the end of this function or of the process.
        let lock = fs::File::create(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .action(|| format!("lock {}", lock.display()))?;
        if !folder.is_dir() {
            self.build(&cache, &folder)?;
        }
        drop(lock);
        Ok(folder)
    }

    /// An FNV-1a hash of everything that the build depends on, as the name of the cached folder.
    /// The hashes of Rust's standard library can change between releases, and each change would
    /// cost a build.
    fn fingerprint(&self) -> u64 {
        let texts = self.files.iter().map(|(_, text)| *text);
        texts.chain([self.flags]).flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Returns the folder of a required module in Go's module cache, and downloads the module if it
    /// is missing.
    pub(crate) fn dependency(&self, path: &str) -> Result<PathBuf> {
        require_go()?;
        let source = tempfile::tempdir().action(|| "create a temporary folder".to_owned())?;
        self.write(source.path())?;
        run(go(source.path()).args(["mod", "download", path]))?;
        let folder = run(go(source.path()).args(["list", "-m", "-f", "{{.Dir}}", path]))?;
        Ok(folder.trim_end().into())
    }

    fn build(&self, cache: &Path, folder: &Path) -> Result<()> {
        require_go()?;
        // This code writes directly to standard error, because the test harness would capture
        // `eprintln!`. A silent build of minutes would look like a hang.
        let into = folder.display();
        let _ = writeln!(io::stderr(), "building {} into {into} (once, some minutes)", self.title);
        let work = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(cache)
            .action(|| format!("create a folder in {}", cache.display()))?;
        let source = work.path().join("source");
        self.write(&source)?;
        let programs = work.path().join("programs");
        for (program, package) in self.programs {
            // Debuggers alone need DWARF, and it takes a fifth of the compile time.
            run(go(&source)
                .args(["build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"])
                .args(["-ldflags", self.flags, "-o"])
                .arg(programs.join(program))
                .arg(package)
                .env("CGO_ENABLED", "0"))?;
        }
        fs::rename(&programs, folder).action(|| format!("create {}", folder.display()))
    }

    /// Writes the module's files into a folder.
    fn write(&self, source: &Path) -> Result<()> {
        for (file, text) in self.files {
            let path = source.join(file);
            path.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::write(&path, text))
                .action(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

fn require_go() -> Result<()> {
    let golang = Command::new("go").arg("version").output();
    if golang.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Error::Missing {
        program: "go",
        remedy: "install Go 1.26 or newer (https://go.dev/dl) and put it into PATH",
    })
}

/// A command of Go in a module's folder.
fn go(source: &Path) -> Command {
    let mut command = Command::new("go");
    // A `go.work` file in a folder above must not affect the command.
    command.env("GOWORK", "off").current_dir(source);
    command
}

fn cache_folder() -> Result<PathBuf> {
    std::env::var_os("KUBEWARM_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/kubewarm")))
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        .action(|| "find a cache folder: neither KUBEWARM_CACHE nor HOME is set".to_owned())
}
