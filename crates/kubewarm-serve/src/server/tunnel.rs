//! A caller's connection that has become one to the API server: bytes both ways, nothing of which is read.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kubewarm_client::KeyedPermit;
use tokio::{io::copy_bidirectional_with_sizes, try_join};

/// Bytes that are held of each direction.
const HELD: usize = 16 << 10;

/// Both ends, once each has answered 101.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) caller: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    pub(super) place: KeyedPermit,
}

impl Tunnel {
    /// Carries bytes until either end closes. Neither connection is used for anything else after that.
    pub(super) async fn carry(self) {
        let Self { caller, upstream, place: _place } = self;
        // An end that is gone: there is nobody to tell.
        let Ok((caller, upstream)) = try_join!(caller, upstream) else { return };
        let (mut caller, mut upstream) = (TokioIo::new(caller), TokioIo::new(upstream));
        let _ended = copy_bidirectional_with_sizes(&mut caller, &mut upstream, HELD, HELD).await;
    }
}
