//! The commands.

mod command_line;
mod inferred_profile;
mod inject;
mod plugin;
mod rbac;
mod terminal;
