//! What a connection was handed and has not written yet: for as long, answers keep what they take up, since it is
//! held here.

use super::body::Taken;
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// What is on its way of one connection. Cheap to clone; locked by its thread alone, unless the connection becomes a
/// tunnel.
#[derive(Clone, Default)]
pub(super) struct Unwritten(Arc<Mutex<OnTheWay>>);

#[derive(Default)]
struct OnTheWay {
    /// Bytes of answers. Heads and frames are written, too, and not counted here, so it is less by a few
    /// hundredths.
    bytes: u64,
    /// Bytes that were on their way, and are not.
    written: u64,
    /// What whole answers take up, and up to which byte each waits: no more than there is of that.
    answers: VecDeque<(u64, Taken)>,
    /// Whether anything was written since all was.
    is_moving: bool,
}

/// The bytes of a connection, which tell what is written of them.
pub(super) struct Metered<I> {
    io: I,
    unwritten: Unwritten,
}

impl Unwritten {
    /// So many bytes more were handed on.
    pub(super) fn hand(&self, bytes: usize) {
        self.0.lock().bytes += bytes as u64;
    }

    /// Keeps `taken` until all that was handed on so far is written.
    pub(super) fn keep(&self, taken: Taken) {
        let mut on_the_way = self.0.lock();
        let until = on_the_way.written + on_the_way.bytes;
        if on_the_way.bytes > 0 {
            on_the_way.answers.push_back((until, taken));
        }
    }

    fn wrote(&self, bytes: usize) {
        let mut on_the_way = self.0.lock();
        on_the_way.is_moving = true;
        on_the_way.take_off(bytes as u64);
    }

    /// All that may be written was. What is counted nevertheless is of streams that were reset: it is gone.
    fn flushed(&self) {
        let mut on_the_way = self.0.lock();
        // The first time after something was written there may be more of it.
        if !std::mem::take(&mut on_the_way.is_moving) {
            let gone = on_the_way.bytes;
            on_the_way.take_off(gone);
        }
    }
}

impl OnTheWay {
    fn take_off(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.written += bytes;
        while self.answers.front().is_some_and(|(until, _)| *until <= self.written) {
            self.answers.pop_front();
        }
    }
}

impl<I> Metered<I> {
    pub(super) fn new(io: I, unwritten: Unwritten) -> Self {
        Self { io, unwritten }
    }
}

impl<I: Read + Unpin> Read for Metered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl<I: Write + Unpin> Write for Metered<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.unwritten.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(context, parts))?;
        self.unwritten.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.unwritten.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_client::KeyedSemaphore;

    #[test]
    fn a_room_is_kept_until_what_was_handed_on_before_it_is_written() {
        let (rooms, unwritten) = (KeyedSemaphore::new(2, 2), Unwritten::default());
        let taken = || rooms.try_acquire(&1).is_none();
        let [first, second] = [(); 2].map(|()| rooms.try_acquire(&1).unwrap());
        unwritten.hand(100);
        unwritten.keep(Taken::Room { _place: first });
        unwritten.hand(50);
        unwritten.keep(Taken::Room { _place: second });
        unwritten.wrote(99);
        unwritten.flushed();
        assert!(taken());
        unwritten.wrote(1);
        let first = rooms.try_acquire(&1).unwrap();
        assert!(taken());
        unwritten.wrote(70);
        let second = rooms.try_acquire(&1).unwrap();
        unwritten.keep(Taken::Room { _place: first });
        assert!(!taken(), "nothing is on its way");
        drop(second);
    }

    #[test]
    fn what_is_never_written_keeps_no_room_once_nothing_is_left_to_write() {
        let (rooms, unwritten) = (KeyedSemaphore::new(1, 1), Unwritten::default());
        unwritten.hand(100);
        unwritten.keep(Taken::Room { _place: rooms.try_acquire(&1).unwrap() });
        unwritten.wrote(40);
        unwritten.flushed();
        assert!(rooms.try_acquire(&1).is_none(), "there may be more");
        unwritten.flushed();
        assert!(rooms.try_acquire(&1).is_some());
    }
}
