//! Decodes each object of the corpus, undamaged and cut off at every length, and splits lists and
//! watches with it at every byte. `make fuzz` adds what it finds.

#[path = "../examples/fuzz/decoding.rs"]
mod decoding;
#[path = "../examples/fuzz/upstream.rs"]
mod upstream;

use std::fs;

/// Maximum number of places at which the test cuts a response in two. Each cut splits the whole
/// response, so more cuts would take too long.
const MAX_CUTS: usize = 100;

#[test]
fn no_object_of_the_corpus_causes_a_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut objects = 0;
    for file in fs::read_dir(corpus).unwrap() {
        let object = fs::read(file.unwrap().path()).unwrap();
        for length in 0..=object.len() {
            decoding::decode(&object[..length]);
        }
        for response in upstream::responses_with(&object) {
            assert!(upstream::split_at_every_byte(&response) > 0);
            for at in (0..response.len()).step_by(1 + response.len() / MAX_CUTS) {
                upstream::split_at(&response, at);
            }
        }
        upstream::split_at_every_byte(&object);
        objects += 1;
    }
    assert!(objects >= 20, "{objects}");
}
