//! A signal that the state of some informer changed.

use tokio::sync::watch;

/// Notifies the controller, the access verifier and waiting reads that an informer changed its
/// phase, or that namespaces changed. It does not name the informer. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub struct ChangeNotifier(watch::Sender<()>);

impl ChangeNotifier {
    /// Returns a receiver for every later change. Changes in quick succession can arrive as one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Wakes every receiver. Never blocks.
    pub fn notify(&self) {
        self.0.send_replace(());
    }
}
