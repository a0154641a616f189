//! Informers, and the store that they fill.
//!
//! | module | what it is |
//! |---|---|
//! | [`informer`] | lists and watches one kind in one scope, and says how current it is |
//! | [`store`] | holds its objects packed, indexed, and with the events of the last minutes |

pub mod informer;
pub mod store;
