//! `testbed up --dir FOLDER` starts a control plane that stays; `testbed down --dir FOLDER` ends it.

use std::error::Error;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

use testbed::ControlPlane;

const USAGE: &str = "usage: testbed up --dir FOLDER [--audit] | testbed down --dir FOLDER";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["up", "--dir", folder] => up(ControlPlane::builder(), Path::new(folder)),
        ["up", "--dir", folder, "--audit"] => {
            up(ControlPlane::builder().with_audit_log(), Path::new(folder))
        }
        ["down", "--dir", folder] => testbed::take_down(Path::new(folder)).map_err(Into::into),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Leaves `FOLDER/admin.kubeconfig` and `FOLDER/bin/kubectl` for scripts.
fn up(builder: testbed::Builder, folder: &Path) -> Result<(), Box<dyn Error>> {
    let control_plane = builder.with_controller_manager().in_folder(folder).start()?;
    std::fs::create_dir_all(folder.join("bin"))?;
    symlink(control_plane.tools().program("kubectl"), folder.join("bin/kubectl"))?;
    symlink(control_plane.kubeconfig(), folder.join("admin.kubeconfig"))?;
    control_plane.detach();
    Ok(())
}
