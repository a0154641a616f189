//! `status`: how warm profiles are, once or for as long as somebody looks.

use super::{
    Error,
    lines::lines,
    print::{Shape, Terminal, document, print, tell, terminal},
    profiles::{Place, Profiles, Seen},
    text::escape,
    tree::{Look, tree},
    verdict::{Verdict, worst},
};
use crate::{api::CacheProfile, cli::StatusArgs};
use jiff::Timestamp;
use std::{collections::HashSet, time::Duration};
use tokio::{sync::watch, time::MissedTickBehavior};

/// A drawing tells times relative to now, so it is redrawn even if nothing changes.
const REDRAW: Duration = Duration::from_secs(1);
/// Moves to the top left without clearing, so that nothing flickers.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line.
const CLEAR_LINE: &str = "\u{1b}[K";
/// Clears below.
const CLEAR_BELOW: &str = "\u{1b}[J";
/// Clears everything.
const CLEAR: &str = "\u{1b}[2J";

/// Shows profiles; with `--watch` until the process is interrupted. `clock` tells the time.
///
/// # Errors
///
/// [`Error`] if there is no cluster, it refuses or does not answer, there is no profile or target of
/// that name, or the output cannot be written. With `--watch` only the first question may fail; later
/// troubles are shown.
pub async fn status(args: StatusArgs, clock: fn() -> Timestamp) -> Result<Verdict, Error> {
    let place = if args.all_namespaces {
        Place::Everywhere
    } else {
        Place::Namespace(args.namespace.as_deref())
    };
    let source = Profiles::connect(&args.connection, &place, args.name.as_deref())?;
    let profiles = source.fetch().await?;
    if args.name.is_some() && profiles.is_empty() && !args.watch {
        return Err(Error::NotFound(source.title()));
    }
    if let (Some(target), [profile]) = (&args.target, &profiles[..]) {
        return super::target::target(profile, target, &source.title(), clock());
    }
    if args.watch {
        return follow(&source, profiles, clock).await;
    }
    match (args.output, terminal()) {
        (Some(format), _) => print(&document(&profiles, source.shape(), format)?)?,
        (None, _) if profiles.is_empty() => tell(&nothing(&source)),
        (None, Some(terminal)) => {
            print(&tree(&profiles, &look(terminal, clock())))?;
        }
        (None, None) => print(&text(lines(&profiles)))?,
    }
    Ok(worst(&profiles))
}

async fn follow(
    source: &Profiles,
    profiles: Vec<CacheProfile>,
    clock: fn() -> Timestamp,
) -> Result<Verdict, Error> {
    let (sender, receiver) = watch::channel(Seen { profiles, trouble: None });
    tokio::select! {
        () = source.follow(&sender) => Ok(worst(&sender.borrow().profiles)),
        shown = show(source, receiver, clock) => shown,
    }
}

async fn show(
    source: &Profiles,
    mut seen: watch::Receiver<Seen>,
    clock: fn() -> Timestamp,
) -> Result<Verdict, Error> {
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut told = HashSet::new();
    if terminal().is_some() {
        print(CLEAR)?;
    }
    loop {
        let now = seen.borrow_and_update().clone();
        match terminal() {
            Some(terminal) => {
                let look = look(terminal, clock());
                print(&screen(&now, &nothing(source), terminal.height, &look))?;
            }
            None => print(&text(news(&now, &nothing(source), &mut told)))?,
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() {
                return Ok(worst(&now.profiles));
            },
            _ = ticks.tick() => {}
        }
    }
}

/// The whole screen: what does not fit is counted in its last line.
fn screen(seen: &Seen, nothing: &str, height: usize, look: &Look) -> String {
    let mut drawn = match &seen.trouble {
        Some(trouble) => format!("not current: {}\n\n", escape(trouble)),
        None => String::new(),
    };
    if seen.profiles.is_empty() {
        drawn.push_str(nothing);
        drawn.push('\n');
    }
    drawn.push_str(&tree(&seen.profiles, look));
    let count = drawn.lines().count();
    // The last row stays empty: a line feed there would scroll.
    let rows = height.saturating_sub(1).max(1);
    let shown = if count > rows { rows - 1 } else { count };
    let mut screen = HOME.to_owned();
    for line in drawn.lines().take(shown) {
        screen.push_str(line);
        screen.push_str(CLEAR_LINE);
        screen.push('\n');
    }
    if count > shown {
        let more = (count - shown).to_string();
        screen.extend(["… ", &more, " more lines", CLEAR_LINE, "\n"]);
    }
    screen + CLEAR_BELOW
}

/// The lines that were not told last time; `told` becomes what is there now.
fn news(seen: &Seen, nothing: &str, told: &mut HashSet<String>) -> Vec<String> {
    let mut current = lines(&seen.profiles);
    if current.is_empty() {
        current.push(nothing.to_owned());
    }
    current.extend(seen.trouble.as_deref().map(|t| format!("not current: {}", escape(t))));
    let new = current.iter().filter(|line| !told.contains(*line)).cloned().collect();
    *told = current.into_iter().collect();
    new
}

fn nothing(source: &Profiles) -> String {
    match source.shape() {
        Shape::One => format!("there is no CacheProfile {}", source.title()),
        Shape::List => format!("there are no CacheProfiles in {}", source.title()),
    }
}

fn look(terminal: Terminal, now: Timestamp) -> Look {
    Look { width: terminal.width, colour: terminal.colour, now }
}

fn text(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{paint::Colour, sample},
        *,
    };

    #[test]
    fn only_what_changed_is_told_again() {
        let mut told = HashSet::new();
        let mut seen = Seen { profiles: vec![sample::warming()], trouble: None };
        assert_eq!(news(&seen, "none", &mut told).len(), 7);
        assert_eq!(news(&seen, "none", &mut told), Vec::<String>::new());

        seen.trouble = Some("no \u{1b} answer".to_owned());
        assert_eq!(news(&seen, "none", &mut told), [r"not current: no \u{1b} answer"]);

        seen = Seen::default();
        assert_eq!(news(&seen, "none", &mut told), ["none"]);
        seen.profiles.push(sample::warming());
        assert_eq!(news(&seen, "none", &mut told).len(), 7);
    }

    #[test]
    fn a_screen_never_scrolls() {
        let seen = Seen {
            profiles: vec![sample::warming(), sample::ready()],
            trouble: Some("away".to_owned()),
        };
        for height in 1..20 {
            let terminal = Terminal { width: 60, height, colour: Colour::Off };
            let look = look(terminal, sample::now());
            let drawn = screen(&seen, "none", height, &look);
            assert!(drawn.matches('\n').count() < height.max(2), "{height}:\n{drawn}");
        }
    }
}
