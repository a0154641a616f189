//! The read address: what callers may see of what is kept warm, as the Kubernetes API has it.

mod answer;
mod api;
mod body;
mod connection;
mod forward;
mod gzip;
mod listen;
#[cfg(test)]
mod tests;
mod unwritten;
mod version;
mod watching;

pub use self::{
    api::ReadApi,
    forward::{Forward, Wrote},
    listen::{ConnectionSlots, Reading, bind},
    version::ServerVersion,
};
