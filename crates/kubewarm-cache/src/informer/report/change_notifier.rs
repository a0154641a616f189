//! Wakes all receivers of change notifications when the state of any informer changes.

use tokio::sync::watch;

/// Notifies the controller, the access checker and waiting client requests that the state of an
/// informer changed. The notification does not name the informer. All clones notify the same
/// receivers.
#[derive(Clone, Debug, Default)]
pub struct ChangeNotifier(watch::Sender<()>);

impl ChangeNotifier {
    /// Returns a receiver that wakes when the state of any informer changes. One wake-up can stand
    /// for several changes.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Wakes every receiver. Never blocks.
    pub fn notify(&self) {
        self.0.send_replace(());
    }
}
