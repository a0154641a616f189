//! `rbac`: the roles that profiles in a file need, without asking any cluster.

use super::{
    documents::{Found, profiles},
    error::{DocumentError, Error},
};
use crate::{
    api::CacheProfile,
    cli::RbacArgs,
    manifests::Access,
    model::{Subject, TargetScope, ValidatedProfile},
};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The longest input, in bytes: far above a file that people write, far below memory.
const MAX_INPUT: u64 = 16 << 20;

/// The manifests for the profiles in `args.file`, as YAML documents in the order of the file; of
/// each profile first those that everybody may apply, then the elevated ones.
///
/// # Errors
///
/// [`Error`] if the file cannot be read, holds no profile, or one that kubewarm would refuse; it
/// names the file, the document and the field.
pub fn rbac(args: &RbacArgs) -> Result<String, Error> {
    let text =
        read(&args.file).map_err(|source| Error::Read { file: args.file.clone(), source })?;
    let failed = |at, source| Error::Document { file: args.file.clone(), at, source };
    let found = profiles(&text).map_err(|(at, source)| failed(at, source))?;
    if found.is_empty() {
        return Err(Error::NoProfile { file: args.file.clone() });
    }
    let manifests = found
        .into_iter()
        .map(|Found { at, profile }| manifests(profile, args).map_err(|source| failed(at, source)));
    manifests.collect()
}

fn manifests(mut profile: CacheProfile, args: &RbacArgs) -> Result<String, DocumentError> {
    let namespace = &mut profile.metadata.namespace;
    if namespace.as_deref().unwrap_or_default().is_empty() {
        *namespace = Some(args.namespace.clone().unwrap_or_else(|| "default".to_owned()));
    }
    let checked = ValidatedProfile::parse(&profile)?;
    if let Some(target) = beyond_reach(&checked, &args.operator_namespace) {
        let operator_namespace = args.operator_namespace.clone();
        return Err(DocumentError::BeyondReach { target, operator_namespace });
    }
    let subject = args.subject.clone().unwrap_or_else(|| Subject::ServiceAccount {
        namespace: args.operator_namespace.as_str().into(),
        name: "kubewarm".into(),
    });
    Ok(Access::of_profile(&checked, subject)?.to_yaml())
}

/// The first target that names more than the profile's own namespace, where that is not the
/// operator's: kubewarm refuses it, so nothing may be granted for it.
fn beyond_reach(profile: &ValidatedProfile, operator_namespace: &str) -> Option<String> {
    let own = &profile.profile.namespace;
    if &**own == operator_namespace {
        return None;
    }
    let reaches = |scope: &TargetScope| match scope {
        TargetScope::OwnNamespace => false,
        TargetScope::Namespaces(names) => names.iter().any(|name| name != own),
        TargetScope::NamespaceSelector(_) | TargetScope::AllNamespaces | TargetScope::Cluster => {
            true
        }
    };
    let target = profile.targets.iter().find(|target| reaches(&target.scope))?;
    Some(target.name.to_string())
}

/// The text of `file`; of standard input for `-`.
fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MAX_INPUT + 1).read_to_string(&mut text)?
    } else {
        File::open(file)?.take(MAX_INPUT + 1).read_to_string(&mut text)?
    };
    if u64::try_from(read).is_ok_and(|read| read > MAX_INPUT) {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write as _, path::PathBuf};

    const PROFILE: &str = "\
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: checkout}
spec:
  targets:
  - name: pods
    resource: {resource: pods}
";

    fn run(text: &str, namespace: Option<&str>) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let args = RbacArgs {
            file: file.path().to_owned(),
            subject: None,
            operator_namespace: "ops".to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        rbac(&args).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let path = file.path().display().to_string();
            format!("{error}: {}", cause.unwrap_or_default()).replace(&path, "FILE")
        })
    }

    #[test]
    fn a_file_becomes_the_roles_of_its_profiles() {
        let yaml = run(&format!("{PROFILE}---\n{}", PROFILE.replace("checkout", "orders")), None);
        let yaml = yaml.unwrap();
        for part in ["kubewarm:default:checkout", "kubewarm:default:orders", "namespace: ops"] {
            assert!(yaml.contains(part), "{part} is not in\n{yaml}");
        }
        for document in yaml.split("---\n").filter(|text| !text.trim().is_empty()) {
            let value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
            assert_eq!(value["apiVersion"], "rbac.authorization.k8s.io/v1");
        }
    }

    #[test]
    fn secrets_come_last_and_apart() {
        let secrets = "  - name: keys\n    resource: {resource: secrets}\n    projection: {type: \
                       MetadataOnly}\n";
        let yaml = run(&format!("{PROFILE}{secrets}"), Some("shop")).unwrap();
        let (plain, elevated) = yaml.split_once("# Elevated").unwrap();
        assert!(!plain.contains("secrets") && elevated.contains("secrets"), "{yaml}");
    }

    #[test]
    fn what_kubewarm_would_refuse_is_an_error_that_names_it() {
        let wide = PROFILE.to_owned() + "    scope: {type: AllNamespaces}\n";
        assert_eq!(
            run(&wide, None).unwrap_err(),
            "cannot use document 1 of FILE: target pods reaches beyond the profile's own namespace, \
             which only profiles in the operator's namespace may; move the profile to ops, or \
             correct --operator-namespace"
        );
        assert!(run(&wide, Some("ops")).is_ok());

        let dotted = PROFILE.replace("{resource: pods}", "{resource: Pods}");
        let error = run(&dotted, None).unwrap_err();
        assert!(error.starts_with("cannot use document 1 of FILE: spec.targets[0]."), "{error}");

        assert!(run("kind: Pod\n", None).unwrap_err().contains("holds no CacheProfile"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let args = RbacArgs {
            file: PathBuf::from("no/such.yaml"),
            subject: None,
            operator_namespace: "ops".to_owned(),
            namespace: None,
        };
        assert_eq!(rbac(&args).unwrap_err().to_string(), "cannot read no/such.yaml");
    }
}
