//! kubewarm keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
pub mod cli;
pub mod cluster;
pub mod informer;
pub mod metrics;
pub mod model;
