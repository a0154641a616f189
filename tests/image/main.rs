//! The image: its archive, its bill of materials, and what its program finds in an empty root.

mod archive;
mod materials;
mod names;
mod scripts;
