//! The packed chart, signed with a key that is made for the test and thrown away.

use std::path::Path;
use std::process::Command;

use testbed::Helm;

use crate::cluster::{Failure, Outcome, file, helms};

const NAME: &str = "kubewarm-test";

fn run(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{command:?}: {said}").into()) }
}

/// A keyring with a new key's secret half, and one with its public half.
fn keyrings(folder: &Path) -> Result<[String; 2], Failure> {
    let home = folder.join("gnupg");
    std::fs::create_dir_all(&home)?;
    run(Command::new("chmod").arg("700").arg(&home))?;
    let gpg = |args: &[&str]| {
        let mut command = Command::new("gpg");
        command.arg("--homedir").arg(&home).args(["--batch", "--yes", "--pinentry-mode=loopback"]);
        run(command.args(["--passphrase="]).args(args))
    };
    gpg(&["--quick-generate-key", NAME, "rsa3072", "sign", "never"])?;
    let [secret, public] =
        ["secret.gpg", "public.gpg"].map(|name| folder.join(name).to_string_lossy().into_owned());
    gpg(&["--output", &secret, "--export-secret-keys", NAME])?;
    gpg(&["--output", &public, "--export", NAME])?;
    // It keeps the key for others, and outlives the folder.
    let agent =
        Command::new("gpgconf").arg("--homedir").arg(&home).args(["--kill", "all"]).status();
    assert!(agent?.success());
    Ok([secret, public])
}

fn packed(helm: &Helm, folder: &Path, secret: &str) -> Result<String, Failure> {
    let mut command = Command::new(file("deploy/chart/package.sh"));
    let program = helm.command().get_program().to_owned();
    run(command
        .arg(folder)
        .env("HELM", program)
        .env("CHART_KEY", NAME)
        .env("CHART_KEYRING", secret)
        .env("CHART_KEY_URL", "https://example.com/kubewarm.asc"))?;
    let name = format!("kubewarm-{}.tgz", env!("CARGO_PKG_VERSION"));
    Ok(folder.join(name).to_string_lossy().into_owned())
}

#[test]
fn a_signed_chart_is_verified_and_a_changed_one_is_not() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [secret, public] = keyrings(folder.path())?;
    let elsewhere = tempfile::tempdir()?;
    let [_, another] = keyrings(elsewhere.path())?;
    let [three, four] = helms()?;
    for (helm, other) in [(&three, &four), (&four, &three)] {
        let at = folder.path().join(helm.name());
        let chart = packed(helm, &at, &secret)?;
        // Each verifies what the other has signed.
        let verify = |keyring: &str| other.run(["verify", &chart, "--keyring", keyring]);
        let said = verify(&public)?;
        assert!(said.contains(NAME) && said.contains("sha256:"), "{said}");
        assert!(verify(&another).is_err(), "another key");
        let annotation = other.run(["show", "chart", &chart])?;
        assert!(annotation.contains("artifacthub.io/signKey"), "{annotation}");
        assert!(annotation.contains("url: https://example.com/kubewarm.asc"), "{annotation}");
        other.run(["template", "kubewarm", &chart, "--verify", "--keyring", &public])?;

        let mut bytes = std::fs::read(&chart)?;
        bytes.push(0);
        std::fs::write(&chart, bytes)?;
        let said = verify(&public).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("sha256 sum does not match"), "{said}");
    }
    Ok(())
}
