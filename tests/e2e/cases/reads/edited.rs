//! Edited targets: the old informer's store serves reads until the new informer's store is
//! complete.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::informers;
use crate::filling::fill;
use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const OBJECTS: u64 = 3_000;
/// All objects: no selector, and their number. Every namespace contains one `ConfigMap` more than
/// the test's, `kube-root-ca.crt`, which has no labels.
const ALL: (&str, u64) = ("", OBJECTS + 1);
const HALF: (&str, u64) = ("half in (a)", OBJECTS / 2);

/// One version of the target.
#[derive(Clone, Copy, Debug)]
struct TargetEdit {
    /// The label selector of the target, and the number of objects that it selects.
    part: (&'static str, u64),
    projection: &'static str,
}

impl TargetEdit {
    fn spec(self) -> String {
        let Self { part: (selector, _), projection } = self;
        let labels =
            if selector.is_empty() { "" } else { "labelSelector: {matchLabels: {half: a}}," };
        format!(
            "{{targets: [
               {{name: settings, {labels} projection: {{type: {projection}}},
                 resource: configmaps}}]}}"
        )
    }

    /// Returns whether this is the target's informer and its store is complete, so that it can
    /// serve reads.
    fn is_answered_by(self, informer: &Value) -> bool {
        self.is(informer)
            && informer["objects"] == self.part.1
            && !informer["syncedTime"].is_null()
            && informer["accessLostTime"].is_null()
    }

    fn is(self, informer: &Value) -> bool {
        informer["labelSelector"] == self.part.0 && informer["projection"] == self.projection
    }
}

/// Polls the informers of a namespace until only the informer of `new` is left. In each poll, one
/// informer must be able to serve reads, and only the informers of `old` and `new` may exist.
/// Returns in how many polls the old informer served reads next to the incomplete new one.
fn see_replaced(
    operator: &Operator,
    namespace: &str,
    old: TargetEdit,
    new: TargetEdit,
    method: &str,
) -> Result<usize, Failure> {
    let deadline = Instant::now() + SOON;
    let mut together = 0;
    loop {
        let mut informers = informers(operator)?;
        informers.retain(|informer| {
            informer["namespace"] == namespace && informer["resource"] == "configmaps"
        });
        let answers = |by: TargetEdit| informers.iter().any(|informer| by.is_answered_by(informer));
        let is_known = |informer: &Value| old.is(informer) || new.is(informer);
        if !(answers(old) || answers(new)) || informers.len() > 2 || !informers.iter().all(is_known)
        {
            return Err(format!("{old:?} becomes {new:?}: {informers:#?}").into());
        }
        if answers(new) && informers.len() == 1 {
            let used = informers.first().and_then(|informer| informer.pointer("/warmed/strategy"));
            assert_eq!(used, Some(&method.into()), "{informers:#?}");
            return Ok(together);
        }
        together += usize::from(informers.len() == 2 && !answers(new));
        if Instant::now() > deadline {
            return Err(format!("{new:?} is not alone within {SOON:?}: {informers:#?}").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_target_is_served_from_its_old_store_until_the_new_one_is_complete() -> Outcome {
    let world = World::lease()?;
    Operator::grant_reading(&world)?;
    let namespace = world.namespace("edited")?;
    fill(&world, &namespace, usize::try_from(OBJECTS)?).await?;
    for (strategy, method) in [("watch-list", "WatchList"), ("paged-list", "PagedList")] {
        let flags = ["--list-strategy", strategy, "--list-page-size", "50"];
        let operator = Operator::start_with(&world, &flags)?;
        edit(&world, &operator, &namespace, method)?;
        operator.process.term()?;
    }
    Ok(())
}

/// Edits the selector and the projection of a target, and polls its informers meanwhile.
fn edit(world: &World, operator: &Operator, namespace: &str, method: &str) -> Outcome {
    let asked = |part, projection| TargetEdit { part, projection };
    let mut old = asked(ALL, "Full");
    let profile = Profile::apply(world, namespace, "p", &old.spec())?;
    // The test does not wait for the profile's status, which may still be from an earlier operator.
    eventually(SOON, || {
        let mut informers = informers(operator)?;
        informers.retain(|informer| {
            informer["namespace"] == namespace && informer["resource"] == "configmaps"
        });
        let is_warm = matches!(informers.as_slice(), [informer] if old.is_answered_by(informer));
        if is_warm { Ok(()) } else { Err(format!("{informers:#?}").into()) }
    })?;
    for new in
        [asked(HALF, "Full"), asked(HALF, "Metadata"), asked(ALL, "Metadata"), asked(ALL, "Full")]
    {
        let edit = || {
            let edited = Profile::apply(world, namespace, "p", &new.spec());
            edited.map(drop).map_err(|error| error.to_string())
        };
        let together = thread::scope(|scope| {
            let edited = scope.spawn(edit);
            let together = see_replaced(operator, namespace, old, new, method);
            edited.join().map_err(|_| "the editing thread panicked")??;
            together
        })?;
        assert!(together > 0, "{new:?} was complete at the first look");
        old = new;
    }
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}
