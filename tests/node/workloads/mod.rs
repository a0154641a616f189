//! Further programs that `kubewarm inject` lets read from kubewarm. `make workloads` runs them:
//! they need minutes, or the clients of other languages from their registries.

mod cert_manager;
mod languages;
mod metrics_server;
