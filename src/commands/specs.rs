//! The profiles that a command is about: those of a file, or one of a cluster.

use super::{
    documents::{Found, profiles},
    error::{Cause, Error},
    profiles::{Place, Profiles},
};
use crate::cli::{OperatorArgs, SpecArgs};
use kubewarm_api::{
    model::{Home, Subject, ValidatedProfile, Watched},
    v1alpha1::{self, CacheProfile},
};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// The longest input, in bytes: far above a file that people write, far below memory.
const MAX_INPUT: u64 = 16 << 20;

/// Where a command finds them.
#[derive(Clone, Debug)]
pub(super) struct Specs<'a> {
    args: &'a SpecArgs,
    /// Where kubewarm lives, and whose profiles it runs.
    pub(super) home: Home,
}

impl<'a> Specs<'a> {
    pub(super) fn of(args: &'a SpecArgs) -> Self {
        let OperatorArgs { home, watch_namespaces } = &args.operator;
        let namespace = home.operator_namespace.as_str().into();
        Self { args, home: Home { namespace, watched: Watched::of(watch_namespaces) } }
    }

    /// Reads them. No cluster is asked for those of a file.
    pub(super) async fn read(&self) -> Result<Vec<Found>, Error> {
        let Some(file) = self.args.file.as_deref() else {
            return self.named().await.map(|one| vec![one]);
        };
        let text = self::file(file)?;
        let of_file = |at: String| format!("{at} of {}", shown(file));
        let mut found =
            profiles(&text).map_err(|(at, source)| Error::unusable(&of_file(at), source))?;
        if found.is_empty() {
            let (file, group, version) = (shown(file), v1alpha1::GROUP, v1alpha1::VERSION);
            return Err(Error::new(format!("{file} holds no CacheProfile of {group}/{version}")));
        }
        for one in &mut found {
            one.at = of_file(std::mem::take(&mut one.at));
        }
        Ok(found)
    }

    async fn named(&self) -> Result<Found, Error> {
        let source = {
            let SpecArgs { name, namespace, connection, .. } = self.args;
            Profiles::connect(connection, &Place::Namespace(namespace.as_deref()), name.as_deref())?
        };
        let title = source.title();
        let Some(profile) = source.fetch().await?.pop() else {
            return Err(Error::not_found(&title));
        };
        Ok(Found { at: format!("CacheProfile {title}"), profile })
    }

    /// The profile, if kubewarm would run it.
    pub(super) fn check(&self, mut profile: CacheProfile) -> Result<ValidatedProfile, Cause> {
        let namespace = &mut profile.metadata.namespace;
        if namespace.as_deref().unwrap_or_default().is_empty() {
            *namespace = Some(self.args.namespace.as_deref().unwrap_or("default").to_owned());
        }
        let checked = ValidatedProfile::parse(&profile)?;
        let targets = || checked.targets.iter();
        let refusal = targets().find_map(|target| self.home.scope_refusal(&checked, target));
        if let Some(refusal) = refusal {
            return Err(format!("{}, or correct --operator-namespace", refusal.message).into());
        }
        let watched = &self.home.watched;
        let namespace = &checked.profile.namespace;
        if !watched.includes(namespace) {
            let text = format!(
                "metadata.namespace: profiles in {namespace} are not among those that --watch-namespaces has \
                 kubewarm run; move the profile, or add the namespace there"
            );
            return Err(text.into());
        }
        let refusal = |target| watched.refusal(&checked, target);
        if let Some(refusal) = targets().find_map(refusal) {
            return Err(refusal.message.into());
        }
        Ok(checked)
    }

    /// Who kubewarm usually is: its ServiceAccount.
    pub(super) fn operator(&self) -> Subject {
        let namespace = Arc::clone(&self.home.namespace);
        Subject::ServiceAccount { namespace, name: "kubewarm".into() }
    }
}

/// The text of `file`; of standard input for `-`.
fn file(file: &Path) -> Result<String, Error> {
    text(file).map_err(|source| Error::caused(format!("cannot read {}", shown(file)), source))
}

/// A path as a person calls it.
fn shown(file: &Path) -> String {
    if file == Path::new("-") {
        return "standard input".to_owned();
    }
    file.display().to_string()
}

fn text(file: &Path) -> io::Result<String> {
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
