//! Responses of the scripted server. Each has a head, and a body that the server sends in steps.

use crate::server::{Kind, ReceivedQuery};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::{fmt::Display, time::Duration};
use tokio::sync::mpsc;

/// One step of a body.
pub(crate) enum BodyStep {
    Bytes(Bytes),
    /// The connection closes here, before the end of the body.
    Cut,
}

/// A response. When its body stream ends, the response ends normally.
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) is_chunked: bool,
    pub(crate) body: BoxStream<'static, BodyStep>,
}

/// The sender of a watch's events. Dropping it ends the watch normally.
#[derive(Clone)]
pub(crate) struct Feed(mpsc::UnboundedSender<BodyStep>);

impl Reply {
    /// Status 200 and a chunked body of these steps.
    pub(crate) fn steps(steps: impl futures::Stream<Item = BodyStep> + Send + 'static) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        Self { head: head.to_owned(), is_chunked: true, body: steps.boxed() }
    }

    /// Status 200 and a body in one chunk.
    pub(crate) fn json(text: impl Into<String>) -> Self {
        Self::steps(stream::iter([bytes(text)]))
    }

    /// Status 200 and a body in protobuf.
    pub(crate) fn protobuf(body: Vec<u8>) -> Self {
        Self::steps(stream::iter([BodyStep::Bytes(body.into())])).in_protobuf()
    }

    /// The same response, but its media type is that of protobuf.
    pub(crate) fn in_protobuf(self) -> Self {
        Self { head: self.head.replace(kubewarm_wire::JSON, kubewarm_wire::PROTOBUF), ..self }
    }

    /// Status 200 and a body of lines, which then ends.
    pub(crate) fn lines<T: Display>(lines: impl IntoIterator<Item = T>) -> Self {
        Self::json(lines.into_iter().fold(String::new(), |text, line| format!("{text}{line}\n")))
    }

    /// Status 200 and this text. Then the connection closes in the middle of the body.
    pub(crate) fn cut(text: impl Into<String>) -> Self {
        Self::steps(stream::iter([bytes(text), BodyStep::Cut]))
    }

    /// Status 200 and this text. Then the connection stays open without data.
    pub(crate) fn held(text: impl Into<String>) -> Self {
        Self::steps(stream::iter([bytes(text)]).chain(stream::pending()))
    }

    /// Status 200 without any data.
    pub(crate) fn silent() -> Self {
        Self::steps(stream::pending())
    }

    /// Status 200 and a body whose second half is sent when `wait` ends.
    pub(crate) fn in_two(
        head: String,
        wait: impl Future<Output = ()> + Send + 'static,
        tail: String,
    ) -> Self {
        let tail = stream::once(async move {
            wait.await;
            bytes(tail)
        });
        Self::steps(stream::iter([bytes(head)]).chain(tail))
    }

    /// No byte is ever sent.
    pub(crate) fn never() -> Self {
        Self { head: String::new(), is_chunked: false, body: stream::pending().boxed() }
    }

    /// The connection closes without a byte.
    pub(crate) fn closed() -> Self {
        Self { head: String::new(), is_chunked: false, body: stream::empty().boxed() }
    }

    /// A Status with this code and reason.
    pub(crate) fn refused(code: u16, reason: &str) -> Self {
        Self::status(code, "", status(code, reason))
    }

    /// A response with any code, additional headers (each with its line end) and a body.
    pub(crate) fn status(code: u16, headers: &str, body: String) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} Scripted\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        let body = stream::iter([bytes(body)]).boxed();
        Self { head, is_chunked: false, body }
    }

    /// Sends one byte at a time.
    pub(crate) fn trickle(text: &str, pause: Duration) -> Self {
        let steps: Vec<_> = text.bytes().map(|byte| bytes(char::from(byte))).collect();
        Self::steps(stream::iter(steps).then(move |step| async move {
            tokio::time::sleep(pause).await;
            step
        }))
    }

    /// The same response with one more header.
    pub(crate) fn with_header(self, name: &str, value: &str) -> Self {
        let line = format!("\r\n{name}: {value}\r\n\r\n");
        Self { head: self.head.replacen("\r\n\r\n", &line, 1), ..self }
    }

    /// The same response after a delay.
    pub(crate) fn after(self, pause: Duration) -> Self {
        let Self { head, is_chunked, body } = self;
        let wait = stream::once(async move {
            tokio::time::sleep(pause).await;
            bytes("")
        });
        Self { head, is_chunked, body: wait.chain(body).boxed() }
    }

    /// A watch and the sender of its events.
    pub(crate) fn fed() -> (Feed, Self) {
        let (feed, steps) = mpsc::unbounded_channel();
        let steps = stream::unfold(steps, |mut steps| async move {
            let step = steps.recv().await?;
            Some((step, steps))
        });
        (Feed(feed), Self::steps(steps))
    }
}

impl Feed {
    /// Sends one line.
    pub(crate) fn line(&self, line: impl Display) {
        // If the watch has ended, the event is dropped.
        let _over = self.0.send(bytes(format!("{line}\n")));
    }

    /// Sends any bytes.
    pub(crate) fn raw(&self, bytes: &'static [u8]) {
        let _over = self.0.send(BodyStep::Bytes(Bytes::from_static(bytes)));
    }

    /// Sends an event in protobuf.
    pub(crate) fn frame(&self, event: Vec<u8>) {
        let _over = self.0.send(BodyStep::Bytes(event.into()));
    }

    /// Closes the connection.
    pub(crate) fn cut(&self) {
        let _over = self.0.send(BodyStep::Cut);
    }
}

fn bytes(text: impl Into<String>) -> BodyStep {
    BodyStep::Bytes(Bytes::from(text.into()))
}

/// The JSON of a Status.
pub(crate) fn status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"scripted {reason}","reason":"{reason}","code":{code}}}"#
    )
}

/// An object in namespace `ns`. Its UID contains `uid`, and its body contains its version.
pub(crate) fn object(name: &str, uid: u32, version: impl Display) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"00000000-0000-0000-0000-{uid:012}","resourceVersion":"{version}"}},"data":{{"at":"{version}"}}}}"#
    )
}

/// A list of `items` at `version`, with additional metadata.
pub(crate) fn list_with(version: impl Display, more: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{more}}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// A complete list.
pub(crate) fn list(version: impl Display, items: &[String]) -> String {
    list_with(version, "", items)
}

/// A complete list of 1,001 objects: more than kubewarm compares with a list.
pub(crate) fn large_list(version: impl Display) -> String {
    let objects: Vec<_> = (0..1_001).map(|n| object(&format!("a{n:04}"), n, 3)).collect();
    list(version, &objects)
}

/// A watch event.
pub(crate) fn event(kind: &str, object: impl Display) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

pub(crate) fn bookmark(version: impl Display) -> String {
    let object = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
    event("BOOKMARK", object)
}

/// The bookmark that ends the initial events.
pub(crate) fn end_bookmark(version: impl Display) -> String {
    let object = format!(
        r#"{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
    );
    event("BOOKMARK", object)
}

/// The default response of a healthy server: version 1.36, existing namespaces, high resource
/// versions and no events.
pub(crate) fn quiet(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::Version => Reply::json(
            r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#,
        ),
        Kind::Namespace => Reply::json(r#"{"metadata":{"name":"ns"}}"#),
        Kind::Newest => Reply::json(list(1_000_000, &[])),
        Kind::List | Kind::First | Kind::Next => Reply::json(list(1, &[])),
        Kind::Stream => Reply::held(format!("{}\n", end_bookmark(1))),
        Kind::Watch | Kind::Probe => Reply::silent(),
        Kind::Review => Reply::json(
            r#"{"status":{"incomplete":false,"nonResourceRules":[],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}}"#,
        ),
    }
}
