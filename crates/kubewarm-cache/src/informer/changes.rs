//! A signal that some informer changed.

use tokio::sync::watch;

/// Tells the controller that some informer changed phase, or that the namespaces did. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Changes(watch::Sender<()>);

impl Changes {
    /// A receiver that is woken by every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Wakes every receiver.
    pub fn notify(&self) {
        self.0.send_replace(());
    }
}
