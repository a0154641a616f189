//! The commands.

mod command_line;
mod plugin;
mod rbac;
mod terminal;
