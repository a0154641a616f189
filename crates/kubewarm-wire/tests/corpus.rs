//! Decodes each object of the corpus, undamaged and cut off at every length. `make fuzz` adds what it finds.

#[path = "../examples/fuzz/decoding.rs"]
mod decoding;

use std::fs;

#[test]
fn no_object_of_the_corpus_causes_a_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut objects = 0;
    for file in fs::read_dir(corpus).unwrap() {
        let object = fs::read(file.unwrap().path()).unwrap();
        for length in 0..=object.len() {
            decoding::decode(&object[..length]);
        }
        objects += 1;
    }
    assert!(objects >= 20, "{objects}");
}
