//! `explain`: why a target is not warm, and the missing line of YAML.

mod missing;
mod written;

use super::{
    Error,
    cells::Replica,
    paint::{Colour, Line},
    print::{print, terminal},
    profiles::{Place, Profiles},
    text::escape,
    verdict::{Verdict, condition},
};
use crate::{
    api::{CacheProfile, TargetStatus},
    cli::{ExplainArgs, program},
};
use jiff::Timestamp;
use written::Story;

/// Prints what the status says of a target, or of each, and with `--operator` what that replica says of
/// its cells. `clock` tells the time.
///
/// # Errors
///
/// [`Error`] if there is no cluster, no such profile or target, or the replica does not answer.
pub async fn explain(args: &ExplainArgs, clock: fn() -> Timestamp) -> Result<Verdict, Error> {
    let place = Place::Namespace(args.namespace.as_deref());
    let source = Profiles::connect(&args.connection, &place, Some(&args.subject.profile))?;
    let Some(profile) = source.fetch().await?.pop() else {
        return Err(Error::NotFound(source.title()));
    };
    let names = names(&profile, args.subject.target.as_deref(), &source.title())?;
    let cells = match &args.operator {
        Some(url) => Some(Replica::of(url, &args.trust).await?.cells().await?),
        None => None,
    };
    let (width, colour) = terminal().map_or((0, Colour::Off), |found| (found.width, found.colour));
    let story = Story {
        profile: &profile,
        cells: cells.as_deref(),
        width,
        now: clock(),
        program: program(),
    };
    let stories: Vec<String> = names
        .iter()
        .map(|name| story.of(name).iter().map(|line: &Line| line.paint(0, colour)).collect())
        .collect();
    print(&stories.join("\n"))?;
    Ok(verdict(&profile, &names))
}

/// The targets that are explained.
fn names(profile: &CacheProfile, wanted: Option<&str>, title: &str) -> Result<Vec<String>, Error> {
    let all: Vec<_> = profile.spec.targets.iter().map(|target| target.name.clone()).collect();
    match wanted {
        None => Ok(all),
        Some(wanted) if all.iter().any(|name| name == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => Err(Error::NoTarget {
            title: title.to_owned(),
            target: wanted.to_owned(),
            has: escape(&all.join(", ")).into_owned(),
        }),
    }
}

/// Whether all of them are warm and current, by a status of the newest generation.
fn verdict(profile: &CacheProfile, names: &[String]) -> Verdict {
    let Some(status) = &profile.status else { return Verdict::NotReady };
    let is_current = status.observed_generation >= profile.metadata.generation;
    let found = |name: &String| status.targets.iter().find(|target| target.name == *name);
    let is_well = |target: &TargetStatus| {
        ["Warm", "Fresh"].into_iter().all(|type_| {
            condition(&target.conditions, type_).is_some_and(|found| found.status == "True")
        })
    };
    let all = names.iter().all(|name| found(name).is_some_and(is_well));
    if is_current && all { Verdict::Ready } else { Verdict::NotReady }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    #[test]
    fn a_target_that_is_not_there_is_named_beside_those_that_are() {
        let mut profile = sample::ready();
        assert_eq!(names(&profile, None, "shop/checkout").unwrap(), ["pods"]);
        let error = names(&profile, Some("nodes"), "shop/checkout").unwrap_err();
        assert_eq!(
            error.to_string(),
            "CacheProfile shop/checkout has no target nodes; it has pods"
        );
        let pods = ["pods".to_owned()];
        assert_eq!(verdict(&profile, &pods), Verdict::Ready);
        profile.metadata.generation = Some(3);
        assert_eq!(verdict(&profile, &pods), Verdict::NotReady);
    }
}
