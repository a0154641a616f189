//! Compares the JSON that kubewarm writes from protobuf with the JSON of Kubernetes' own
//! serializers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use kubewarm_wire::protobuf::{
    JsonEncoder, ProtobufError, Unknown, check_message, message_of_kind,
};
use testbed::GoClients;

use crate::world::{Failure, Outcome};

/// The minimum number of kinds in the samples of the Kubernetes release from which the field tables
/// come.
const KINDS: usize = 160;

/// Members that the API server adds to the claims in a `StatefulSet`, but client-go's serializer
/// does not. kubewarm writes them like the API server.
const CLAIM_START: &str = r#""kind":"PersistentVolumeClaim","apiVersion":"v1","#;

/// Returns the JSON of one object. `None` if the field tables lack its kind.
fn written(object: &[u8]) -> Result<Option<Vec<u8>>, ProtobufError> {
    let Unknown { api_version, kind, raw } = Unknown::parse(object)?;
    let Some(message) = message_of_kind(api_version, kind) else { return Ok(None) };
    check_message(message, raw)?;
    let mut members = Vec::new();
    JsonEncoder::default().write_object(message, raw, &mut members)?;
    let mut json = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}""#).into_bytes();
    if members != b"{}" {
        json.push(b',');
    }
    let members = String::from_utf8_lossy(&members[1..]).replace(CLAIM_START, "");
    json.extend_from_slice(members.as_bytes());
    Ok(Some(json))
}

/// Removes the white space between the tokens of JSON. A parser would change escapes and numbers.
fn compact(json: &str) -> String {
    let (mut is_string, mut is_escaped) = (false, false);
    let is_kept = |letter: &char| {
        let is_kept = is_string || !letter.is_ascii_whitespace();
        is_string ^= *letter == '"' && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        is_kept
    };
    json.chars().filter(is_kept).collect()
}

/// The samples of one Kubernetes release: how many are equal, and what stops the others.
#[derive(Default)]
struct Compared {
    equal: usize,
    stopped: BTreeMap<String, ProtobufError>,
}

fn compare(folder: &Path) -> Result<Compared, Failure> {
    let mut compared = Compared::default();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(kind) =
            name.strip_suffix(".pb").filter(|kind| !kind.ends_with(".after_roundtrip"))
        else {
            continue;
        };
        match written(&fs::read(&path)?) {
            Ok(None) => {}
            Ok(Some(json)) => {
                // For a sample of an older release, this file has the object as the field tables'
                // release reads it. The file exists only if it differs from the sample.
                let newer = folder.join(format!("{kind}.after_roundtrip.json"));
                let same = folder.join(format!("{kind}.json"));
                let expected = if newer.exists() { newer } else { same };
                let expected = compact(&fs::read_to_string(expected)?);
                assert_eq!(String::from_utf8(json)?, expected, "{}", path.display());
                compared.equal += 1;
            }
            Err(stop) => {
                compared.stopped.insert(kind.to_owned(), stop);
            }
        }
    }
    Ok(compared)
}

#[test]
fn samples_of_kubernetes_have_the_same_json() -> Outcome {
    let samples = GoClients::kubernetes_testdata()?;
    let mut releases = 0;
    for folder in fs::read_dir(samples)? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        let Compared { equal, stopped } = compare(&folder)?;
        let release = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unknown: Vec<_> =
            stopped.iter().map(|(kind, stop)| format!("{kind}: {stop}")).collect();
        writeln!(io::stderr(), "{release}: {equal} equal; {unknown:#?}")?;
        assert!(equal >= KINDS - 20, "{release}: {equal}");
        let is_unknown = |stop: &ProtobufError| matches!(stop, ProtobufError::UnknownField { .. });
        assert!(stopped.values().all(is_unknown), "{release}: {stopped:?}");
        if release == "HEAD" {
            assert!(equal >= KINDS && stopped.is_empty(), "{equal} {stopped:?}");
        }
        releases += 1;
    }
    assert!(releases >= 4, "{releases} releases");
    Ok(())
}

/// Compares `count` random objects of all kinds.
pub(crate) fn compare_random_objects(count: usize) -> Outcome {
    let program = GoClients::locate_or_build()?.program("protobuf");
    let seed = fastrand::u32(..).to_string();
    let (count, told) = (count.to_string(), format!("seed {seed}"));
    let mut fuzz = Command::new(program)
        .args(["fuzz", "--seed", &seed, "--count", &count])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut frames = BufReader::new(fuzz.stdout.take().ok_or("no output")?);
    let mut frame = || -> Result<Option<Vec<u8>>, Failure> {
        let mut length = [0; 4];
        if frames.read(&mut length[..1])? == 0 {
            return Ok(None);
        }
        frames.read_exact(&mut length[1..])?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        frames.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    };
    let mut compared = 0;
    while let Some(object) = frame()? {
        let expected = frame()?.ok_or("an object without JSON")?;
        let json = written(&object)?.ok_or("the field tables lack a kind")?;
        let [json, expected] = [&json, expected.trim_ascii_end()].map(String::from_utf8_lossy);
        assert_eq!(json, expected, "{told}, object {compared}");
        compared += 1;
    }
    assert!(fuzz.wait()?.success());
    assert_eq!(compared.to_string(), count);
    Ok(())
}

#[test]
fn random_objects_of_all_kinds_have_the_same_json() -> Outcome {
    compare_random_objects(3_000)
}
