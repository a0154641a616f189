//! The read address: what callers may see of what is kept warm, as the Kubernetes API has it.

mod answer;
mod api;
mod body;
mod connection;
mod forward;
mod gzip;
mod listen;
mod schemas;
#[cfg(test)]
mod tests;
mod tunnel;
mod watching;

pub use self::{
    api::{ReadApi, ServerVersion},
    forward::{Forward, Wrote},
    listen::{ReadError, Reading, bind},
    schemas::{Schema, Schemas},
};
