//! This crate contains the informers and the stores that they fill. The binary and `kubewarm-serve`
//! depend on this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`informer`] | lists and watches one resource in one namespace or cluster-wide, and reports how fresh its store is |
//! | [`store`] | keeps the objects compressed and indexed, with an event log of recent changes |

pub mod informer;
pub mod store;
