//! What is too long for the files it tests.

mod conditions;
mod figures;
mod fixtures;
mod pacer;
mod round;
mod sink;
