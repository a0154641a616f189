//! Programs that are built once from a Go module and kept in a cache folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Action, Error, Result};
use crate::process::run;

/// A Go module, and what is built of it.
pub(crate) struct Module<'a> {
    /// The beginning of its folder's name in the cache.
    pub(crate) name: &'a str,
    /// What is built and how long that takes, for whoever waits.
    pub(crate) title: &'a str,
    /// The text of each file, by its path in the module.
    pub(crate) files: &'a [(&'a str, &'a str)],
    /// The programs, with the packages they are built from.
    pub(crate) programs: &'a [(&'a str, &'a str)],
    /// For the linker.
    pub(crate) flags: &'a str,
}

impl Module<'_> {
    /// The folder with the programs in the cache folder (`$KUBEWARM_CACHE`, else
    /// `~/.cache/kubewarm`). They are built if they are not there; others that ask at the same time
    /// wait for this build.
    pub(crate) fn locate_or_build(&self) -> Result<PathBuf> {
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).action(|| format!("create {}", cache.display()))?;
        let name = format!("{}-{:016x}", self.name, self.fingerprint());
        let folder = cache.join(&name);
        if folder.is_dir() {
            return Ok(folder);
        }
        let lock = cache.join(format!("{name}.lock"));
        // Held until the file is closed, at the end of this function or of the process.
        let lock = fs::File::create(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .action(|| format!("lock {}", lock.display()))?;
        if !folder.is_dir() {
            self.build(&cache, &folder)?;
        }
        drop(lock);
        Ok(folder)
    }

    /// FNV-1a over everything the build depends on: the standard library's hashes may change between
    /// releases of Rust, and each change would cost a build.
    fn fingerprint(&self) -> u64 {
        let texts = self.files.iter().map(|(_, text)| *text);
        texts.chain([self.flags]).flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    fn build(&self, cache: &Path, folder: &Path) -> Result<()> {
        let go = Command::new("go").arg("version").output();
        if !go.is_ok_and(|output| output.status.success()) {
            return Err(Error::Missing {
                program: "go",
                remedy: "install Go 1.26 or newer (https://go.dev/dl) and put it into PATH",
            });
        }
        // Straight to the stream: the test harness would keep `eprintln!` back, and a silent wait of
        // minutes looks like a hang.
        let into = folder.display();
        let _ = writeln!(io::stderr(), "building {} into {into} (once, some minutes)", self.title);
        let work = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(cache)
            .action(|| format!("create a folder in {}", cache.display()))?;
        let source = work.path().join("source");
        for (file, text) in self.files {
            let path = source.join(file);
            path.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::write(&path, text))
                .action(|| format!("write {}", path.display()))?;
        }
        let programs = work.path().join("programs");
        for (program, package) in self.programs {
            run(Command::new("go")
                .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", self.flags, "-o"])
                .arg(programs.join(program))
                .arg(package)
                .env("CGO_ENABLED", "0")
                // A `go.work` around the cache folder is not ours.
                .env("GOWORK", "off")
                .current_dir(&source))?;
        }
        fs::rename(&programs, folder).action(|| format!("create {}", folder.display()))
    }
}

fn cache_folder() -> Result<PathBuf> {
    std::env::var_os("KUBEWARM_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/kubewarm")))
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        .action(|| "find a cache folder: neither KUBEWARM_CACHE nor HOME is set".to_owned())
}
