//! Tests the read API: its responses must equal the API server's responses.

pub(crate) mod abuse;
pub(crate) mod answers;
pub(crate) mod audience;
mod builtin_kinds;
pub(crate) mod cells;
mod clients;
mod consistency;
mod edited;
mod field_tables;
mod followers;
mod forward;
mod forwarded_writes;
mod freshness;
pub(crate) mod indexed;
pub(crate) mod openapi;
mod oracle;
pub(crate) mod protobuf;
pub(crate) mod replay;
mod request_info;
pub(crate) mod strict_reads;
pub(crate) mod tables;
mod unusual;
pub(crate) mod user_limits;
mod watches;
mod without_bookmarks;
