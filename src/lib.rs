//! kubewarm keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
pub mod cli;
pub mod informer;
pub mod model;
