//! Profiles: what is accepted, what runs, and what their statuses say.

mod examples;
mod indexes;
mod kinds;
mod limits;
mod manifests;
mod many_targets;
mod planned;
mod quota;
mod redefined;
mod refused;
mod schema;
mod selectors;
mod status_writes;
mod upgraded;
