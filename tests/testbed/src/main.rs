//! `testbed up --dir FOLDER` starts a control plane that stays, and `testbed down --dir FOLDER`
//! ends it. `testbed node` starts a control plane with a node, which runs until its standard input
//! ends.

use std::error::Error;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

use testbed::ControlPlane;

const USAGE: &str = "usage: testbed up --dir FOLDER [--audit] [--kubectl PROGRAM] | \
    testbed down --dir FOLDER | testbed node";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["up", "--dir", folder, options @ ..] => up(Path::new(folder), options),
        ["down", "--dir", folder] => testbed::take_down(Path::new(folder)).map_err(Into::into),
        ["node"] => node(),
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

/// Starts a control plane. Scripts find `FOLDER/admin.kubeconfig` and `FOLDER/bin/kubectl`.
///
/// kube-controller-manager does not run: the demo needs no object that a controller creates, and
/// the first build of this program takes a minute. `--kubectl` saves the build of kubectl.
fn up(folder: &Path, mut options: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut builder = ControlPlane::builder().in_folder(folder);
    while !options.is_empty() {
        (builder, options) = match options {
            ["--audit", rest @ ..] => (builder.with_audit_log(), rest),
            ["--kubectl", program, rest @ ..] => (builder.with_kubectl(program), rest),
            _ => return Err(USAGE.into()),
        };
    }
    let control_plane = builder.start()?;
    std::fs::create_dir_all(folder.join("bin"))?;
    symlink(control_plane.kubectl_program(), folder.join("bin/kubectl"))?;
    symlink(control_plane.kubeconfig(), folder.join("admin.kubeconfig"))?;
    control_plane.detach();
    Ok(())
}

/// Starts a control plane with a node and prints its folder. The folder contains
/// `admin.kubeconfig`, which works on the node's network only:
/// `nsenter --net --target $(pgrep -P $(cat FOLDER/run/namespaces))`.
fn node() -> Result<(), Box<dyn Error>> {
    let node = testbed::Node::start()?;
    let folder = node.cluster().folder();
    symlink(node.cluster().kubeconfig(), folder.join("admin.kubeconfig"))?;
    writeln!(std::io::stdout(), "{}", folder.display())?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
