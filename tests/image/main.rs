//! Tests the image: its archive, its bill of materials, and the program in an empty root.

mod archive;
mod materials;
mod names;
mod scripts;
