//! kubewarm.
fn main() {}
