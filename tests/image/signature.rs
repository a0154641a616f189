//! The signatures of the image: what they are of, and that nothing else passes for it. With openssl, as the
//! documentation has it, and in the form that cosign looks for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::scripts::{Failure, Outcome, printed, script, static_program};

const NAME: &str = "registry.example.com/team/kubewarm";

/// A new key, and its public half.
fn keys(folder: &Path) -> Result<[PathBuf; 2], Failure> {
    let [key, public] = ["image.key", "image.pub"].map(|name| folder.join(name));
    let make = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"];
    printed(Command::new("openssl").args(make).arg(&key))?;
    printed(
        Command::new("openssl").args(["ec", "-pubout", "-in"]).arg(&key).arg("-out").arg(&public),
    )?;
    Ok([key, public])
}

/// Whether `signature`, in base64, is of `file`.
fn is_of(public: &Path, signature: &str, file: &Path, folder: &Path) -> Outcome {
    let (text, bytes) = (folder.join("signature.txt"), folder.join("signature.bin"));
    fs::write(&text, signature)?;
    printed(
        Command::new("openssl")
            .args(["base64", "-d", "-A", "-in"])
            .arg(&text)
            .arg("-out")
            .arg(&bytes),
    )?;
    let mut verify = Command::new("openssl");
    verify.args(["dgst", "-sha256", "-verify"]).arg(public).arg("-signature").arg(&bytes).arg(file);
    let said = printed(&mut verify)?;
    assert!(said.contains("Verified OK"), "{said}");
    Ok(())
}

fn unpacked(archive: &Path, folder: PathBuf) -> Result<PathBuf, Failure> {
    fs::create_dir(&folder)?;
    printed(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&folder))?;
    Ok(folder)
}

fn document(path: &Path) -> Result<Value, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf, Failure> {
    let digest = descriptor["digest"].as_str().and_then(|text| text.strip_prefix("sha256:"));
    let path = layout.join("blobs/sha256").join(digest.ok_or("no digest")?);
    assert_eq!(descriptor["size"], fs::metadata(&path)?.len());
    Ok(path)
}

#[test]
fn an_image_is_verified_by_its_digest_and_its_archive_as_it_is() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let [key, public] = keys(at)?;
    let archive = at.join("image.tar");
    let mut pack = script("pack.sh");
    pack.arg(static_program(at)?).args(["1.0.0"]).arg(&archive);
    printed(pack.args(["localhost/kubewarm:1", "localhost/kubewarm:dev"]))?;
    printed(script("sign.sh").args([&key, &archive]).arg(NAME))?;

    let signature = fs::read_to_string(at.join("image.tar.sig"))?;
    is_of(&public, &signature, &archive, at)?;
    let mut changed = fs::read(&archive)?;
    changed[600] ^= 1;
    let changed_at = at.join("changed.tar");
    fs::write(&changed_at, changed)?;
    assert!(is_of(&public, &signature, &changed_at, at).is_err(), "another archive");
    let elsewhere = at.join("elsewhere");
    fs::create_dir(&elsewhere)?;
    let [_, another] = keys(&elsewhere)?;
    assert!(is_of(&another, &signature, &archive, at).is_err(), "another key");

    // What a registry keeps beside the image, by the digest of its manifest.
    let image = document(&unpacked(&archive, at.join("image"))?.join("index.json"))?;
    let digest = image["manifests"][0]["digest"].as_str().ok_or("no digest")?;
    let layout = unpacked(&at.join("image.tar.sig.tar"), at.join("signatures"))?;
    let index = document(&layout.join("index.json"))?;
    let tag = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
    assert_eq!(*tag, format!("{}.sig", digest.replace(':', "-")));
    let manifest = document(&blob(&layout, &index["manifests"][0])?)?;
    let layer = &manifest["layers"][0];
    assert_eq!(layer["mediaType"], "application/vnd.dev.cosign.simplesigning.v1+json");
    let payload = blob(&layout, layer)?;
    let expected = json!({"critical": {
        "identity": {"docker-reference": NAME},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }, "optional": null});
    assert_eq!(document(&payload)?, expected);
    let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str();
    is_of(&public, signature.ok_or("no signature")?, &payload, at)
}

#[test]
fn what_cannot_be_signed_is_refused_by_name() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let [key, public] = keys(at)?;
    let archive = at.join("no-image.tar");
    printed(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(at).arg("image.pub"))?;
    for (key, name, words) in [
        (&public, NAME, "is no ECDSA key of P-256"),
        (&key, "registry.example.com/kubewarm:1", "without a tag"),
        (&key, NAME, "does not hold one image"),
    ] {
        let said = printed(script("sign.sh").args([key, &archive]).arg(name));
        let said = said.map_or_else(|error| error.to_string(), |said| format!("accepted: {said}"));
        assert!(said.contains(words), "{said}");
    }
    Ok(())
}
