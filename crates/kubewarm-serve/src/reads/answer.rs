//! An answer: one object, or a list that is written while it is sent.

use super::{allowed::Allowed, cover::Candidate, frame::Frame};
use kubewarm_api::model::CellKey;
use kubewarm_cache::store::{Selected, Turn};
use kubewarm_wire::Objects;
use std::{fmt, ops::ControlFlow, time::Duration};

/// What is answered.
#[derive(Debug)]
pub struct Answer {
    /// The body.
    pub body: Body,
    /// From where.
    pub source: Source,
    /// Whether something had to be waited for.
    pub waited: bool,
}

/// Where an answer is from: for a watch, as it stood when that began.
#[derive(Clone, Debug)]
pub struct Source {
    /// Whose table it is; not for callers.
    pub cell: CellKey,
    /// How long ago that was last known to be current; `None`: it never was.
    pub age: Option<Duration>,
    /// Whether that is longer than its profile has it be.
    pub is_late: bool,
}

/// The most of a piece that is handed to a connection at once: with the 8 bytes that HTTP/1.1 writes around a part
/// it fills a record of TLS, of 16 KiB.
pub const PART_BYTES: usize = (16 << 10) - 8;
/// From here on a piece is sent as it is: what is unpacked, written and encrypted is then still in the
/// processor's cache. So many parts are what a connection writes at once; what little a piece had beyond them would
/// be a write of its own.
pub const PIECE_BYTES: usize = 4 * PART_BYTES;
/// What is set aside for an object of a piece that is just begun, and for the last one of each.
const OBJECT_BYTES: usize = 4 << 10;

/// A body, as JSON.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// A piece after the other.
    Pages(Box<Pages>),
}

/// A list, written a piece at a time: unpacked for that alone.
pub struct Pages {
    /// `None` once all is written.
    frame: Option<Frame>,
    chosen: Selected,
    allowed: Allowed,
    /// Whether no object has been written.
    is_empty: bool,
    /// Written, and not enough for a piece.
    left: Vec<u8>,
    turn: Turn,
    /// Whether the cell may still be read. Checked before each piece.
    may_go_on: MayGoOn,
}

pub(super) type MayGoOn = Box<dyn Fn() -> bool + Send + Sync>;

/// What a list ends with whose cell may not be read any more: half of it must not look like all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access to what is listed was lost while it was sent")]
pub struct Cut;

impl Answer {
    pub(super) fn new(body: Body, candidate: &Candidate<'_>, bound: Duration) -> Self {
        Self { body, source: Source::of(candidate, bound), waited: false }
    }
}

impl Source {
    pub(super) fn of(candidate: &Candidate<'_>, bound: Duration) -> Self {
        Self {
            cell: candidate.key.clone(),
            age: candidate.age,
            is_late: candidate.age.is_none_or(|age| age > bound),
        }
    }
}

impl Pages {
    pub(super) fn new(frame: Frame, chosen: Selected, asked: &Objects, may_go_on: MayGoOn) -> Self {
        let mut left = Vec::new();
        frame.head(&mut left);
        let (allowed, turn) = (Allowed::of(asked), Turn::default());
        Self { frame: Some(frame), chosen, allowed, is_empty: true, left, turn, may_go_on }
    }

    /// The first piece: all of it, or about `bytes` bytes and more; and whether anything may be left.
    ///
    /// # Errors
    ///
    /// [`Cut`].
    pub async fn begin(&mut self, bytes: usize) -> Result<(Vec<u8>, bool), Cut> {
        let mut out = Vec::new();
        let goes_on = self.fill(bytes + 1, &mut out).await?;
        Ok((out, goes_on))
    }

    /// The next piece; `None` at the end. To be driven to its end, as a stream does it: with a call that is dropped
    /// midway goes what it has written, and the list would lack that.
    ///
    /// # Cost
    ///
    /// About 2 µs an object, and more of large ones. Little may be written of much that is looked into, of whole
    /// objects their metadata: others have their turn meanwhile.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Cut>> {
        self.frame.as_ref()?;
        let most = self.chosen.objects().saturating_mul(OBJECT_BYTES);
        let mut out = Vec::with_capacity(most.min(PIECE_BYTES) + OBJECT_BYTES);
        let written = self.fill(PIECE_BYTES, &mut out).await;
        if written.is_err() {
            self.frame = None;
        }
        Some(written.map(|_| out))
    }

    /// Writes objects until `out` has so many bytes; answers whether any may be left. Then of the last piece the
    /// next one gets what is beyond [`PIECE_BYTES`].
    async fn fill(&mut self, bytes: usize, out: &mut Vec<u8>) -> Result<bool, Cut> {
        out.append(&mut self.left);
        loop {
            self.turn.give_way().await;
            let goes_on = self.write(bytes, out)?;
            if goes_on && out.len() < bytes {
                continue;
            }
            if goes_on && out.len() > PIECE_BYTES {
                self.left = out.split_off(out.len() - out.len() % PIECE_BYTES);
            }
            return Ok(goes_on);
        }
    }

    /// The same, but no longer than the turn lasts.
    fn write(&mut self, bytes: usize, out: &mut Vec<u8>) -> Result<bool, Cut> {
        if !(self.may_go_on)() {
            return Err(Cut);
        }
        let Self { frame: unfinished, chosen, allowed, is_empty, turn, .. } = self;
        let Some(frame) = &*unfinished else { return Ok(false) };
        let goes_on = chosen.show(|seen| {
            if !allowed.has(seen.namespace, seen.name) {
                tracing::error!("an object was selected that was not asked for; left out");
            } else if frame.write(seen.body, *is_empty, out) {
                *is_empty = false;
            }
            turn.count(seen.body.len());
            let goes_on = out.len() < bytes && !turn.is_over();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if !goes_on {
            frame.tail(*is_empty, out);
            *unfinished = None;
        }
        Ok(goes_on)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("chosen", &self.chosen).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::{asked, cell};
    use futures::FutureExt as _;
    use kubewarm_api::model::{Delta, DeltaSink as _, Item, ResourceVersion, Uid};
    use kubewarm_cache::store::{Catalog, Wanted};
    use kubewarm_wire::{ListFrame, MetaVersion, Part};
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    /// The list that is answered to a request, if everything of a table is selected for it.
    async fn answered(objects: &[(&str, &str)], path: &str, query: &str) -> serde_json::Value {
        let mut pages = pages(objects, (path, query), Box::new(|| true));
        let mut body = Vec::new();
        while let Some(piece) = pages.next().await {
            body.extend(piece.unwrap());
        }
        serde_json::from_slice(&body).unwrap()
    }

    fn pages(objects: &[(&str, &str)], asked: (&str, &str), may_go_on: MayGoOn) -> Pages {
        pages_of("", objects, asked, may_go_on)
    }

    /// The same of objects that say `text`, of which only the metadata are written.
    fn pages_of(
        text: &str,
        objects: &[(&str, &str)],
        (path, query): (&str, &str),
        may_go_on: MayGoOn,
    ) -> Pages {
        let (catalog, key) = (Catalog::new(), cell("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let version = ResourceVersion::from(9);
        for (namespace, name) in objects {
            let body = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"text":"{text}"}}"#
            );
            writer.apply(Delta::Upsert(Item {
                namespace: (*namespace).into(),
                name: (*name).into(),
                uid: Uid::parse(name),
                version: Some(version.clone()),
                body: body.as_bytes(),
            }));
        }
        let wanted = Wanted::default();
        let selected = catalog.reader(&key).unwrap().select(&wanted, None, None);
        let frame = ListFrame {
            api_version: "v1".into(),
            kind: "Pod".into(),
            list_kind: "PodList".into(),
            is_custom: false,
            of: if text.is_empty() { Part::Full } else { Part::Metadata(MetaVersion::V1) },
            version,
            next: None,
            remaining: None,
        };
        Pages::new(Frame::List(frame), selected, &asked(path, query).0, may_go_on)
    }

    #[tokio::test]
    async fn a_list_is_cut_where_access_is_lost_and_never_looks_whole() {
        // Of more than one piece.
        let names: Vec<_> = (0..3_000).map(|n| format!("x{n:04}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let held = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&held);
        let may_go_on = Box::new(move || asked.load(Ordering::Relaxed));
        let mut pages = pages(&objects, ("/api/v1/pods", ""), may_go_on);
        let first = pages.next().await.unwrap().unwrap();
        assert!(!first.is_empty());
        held.store(false, Ordering::Relaxed);
        assert_eq!(pages.next().await, Some(Err(Cut)));
        // Not even if it comes back.
        held.store(true, Ordering::Relaxed);
        assert_eq!(pages.next().await, None);
    }

    #[tokio::test]
    async fn nothing_is_written_that_was_not_asked_for() {
        let objects = [("a", "x"), ("a", "y"), ("b", "x")];
        for (path, query, expected) in [
            ("/api/v1/pods", "", &["a/x", "a/y", "b/x"] as &[&str]),
            ("/api/v1/namespaces/a/pods", "", &["a/x", "a/y"]),
            ("/api/v1/namespaces/c/pods", "", &[]),
            ("/api/v1/namespaces/a/pods", "fieldSelector=metadata.name%3Dy", &["a/y"]),
            ("/api/v1/pods", "fieldSelector=metadata.name%3Dx", &["a/x", "b/x"]),
        ] {
            let list = answered(&objects, path, query).await;
            let of = |item: &serde_json::Value, field: &str| {
                item["metadata"][field].as_str().unwrap().to_owned()
            };
            let items = list["items"].as_array().unwrap().iter();
            let names = items.map(|it| format!("{}/{}", of(it, "namespace"), of(it, "name")));
            assert_eq!(names.collect::<Vec<_>>(), expected, "{path}?{query}");
        }
    }

    #[tokio::test]
    async fn a_list_of_any_length_is_one_document() {
        for count in [0, 1, 127, 128, 129, 3_000] {
            let names: Vec<_> = (0..count).map(|n| format!("x{n:04}")).collect();
            let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
            let list = answered(&objects, "/api/v1/pods", "").await;
            assert_eq!(list["items"].as_array().unwrap().len(), count);
            assert_eq!(list["metadata"]["resourceVersion"], "9");
        }
    }

    #[tokio::test]
    async fn all_pieces_but_the_last_are_as_long_as_what_a_connection_writes_at_once() {
        let names: Vec<_> = (0..6_000).map(|n| format!("x{n:04}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let mut pages = pages(&objects, ("/api/v1/pods", ""), Box::new(|| true));
        let (first, goes_on) = pages.begin(2 * PIECE_BYTES).await.unwrap();
        assert!(goes_on);
        let mut pieces = vec![first];
        while let Some(piece) = pages.next().await {
            pieces.push(piece.unwrap());
        }
        let list: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), objects.len());
        let end = pieces.pop().unwrap();
        let lengths: Vec<_> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2 * PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES]);
        assert!((1..=PIECE_BYTES).contains(&end.len()), "{}", end.len());
    }

    #[tokio::test]
    async fn others_have_their_turn_while_little_is_written_of_large_objects() {
        let names: Vec<_> = (0..20).map(|n| format!("x{n:02}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let text = "x".repeat(256 << 10);
        let all = || pages_of(&text, &objects, ("/api/v1/pods", ""), Box::new(|| true));
        assert!(all().next().now_or_never().is_none(), "four of them are a turn");
        assert!(all().begin(PIECE_BYTES).now_or_never().is_none());
        let (first, goes_on) = all().begin(PIECE_BYTES).await.unwrap();
        let list: serde_json::Value = serde_json::from_slice(&first).unwrap();
        assert_eq!((list["items"].as_array().unwrap().len(), goes_on), (20, false));
        // What is written of small ones is no longer than a turn.
        let objects = [("a", "x"), ("a", "y")];
        let few = pages(&objects, ("/api/v1/pods", ""), Box::new(|| true)).next().now_or_never();
        assert!(few.is_some());
    }
}
