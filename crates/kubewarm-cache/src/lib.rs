//! Informers, and the stores that they fill. The binary and `kubewarm-serve` build on this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`informer`] | lists and watches one resource in one scope, and reports how fresh its store is |
//! | [`store`] | holds the objects packed and indexed, with an event log of the last minutes |

pub mod informer;
pub mod store;
