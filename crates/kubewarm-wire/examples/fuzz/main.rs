//! Decodes randomly damaged objects, lists and watches for some minutes: `make fuzz`. An input that
//! causes a panic is written to the corpus, which the crate's tests decode.

mod decoding;
mod upstream;

use std::{
    env, fs,
    io::{self, Write as _},
    panic::catch_unwind,
    path::Path,
    time::{Duration, Instant},
};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
/// Maximum size of one input in bytes. Each input is also split at every byte, so a larger input
/// would take too long.
const MAX_INPUT: usize = 64 << 10;

fn main() -> io::Result<()> {
    let minutes = env::var("FUZZ_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let until = Instant::now() + Duration::from_mins(minutes);
    let mut random = fastrand::Rng::new();
    let mut corpus = Vec::new();
    for file in fs::read_dir(CORPUS)? {
        let object = fs::read(file?.path())?;
        corpus.extend(upstream::responses_with(&object));
        corpus.push(object);
    }
    let (mut inputs, mut panics) = (0_u64, 0);
    while Instant::now() < until {
        for _ in 0..1_000 {
            let input = damaged(&corpus, &mut random);
            inputs += 1;
            let at = random.usize(..=input.len());
            let decoded = catch_unwind(|| {
                decoding::decode(&input);
                upstream::split_at_every_byte(&input);
                upstream::split_at(&input, at);
            });
            if decoded.is_err() {
                panics += 1;
                let name = format!("found-{:016x}", random.u64(..));
                fs::write(Path::new(CORPUS).join(name), &input)?;
            }
        }
    }
    writeln!(io::stdout(), "{inputs} inputs, {panics} panics")?;
    if panics > 0 { Err(io::Error::other("see the new files in the corpus")) } else { Ok(()) }
}

/// Returns a random input of the corpus with one to seven random changes.
fn damaged(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(corpus).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=input.len());
        match random.u8(..6) {
            0 => input.truncate(at),
            1 => input.insert(at, random.u8(..)),
            // The longest varint: a length or a number beyond all limits.
            2 => drop(input.splice(at..at, [0xff; 9].into_iter().chain([1]))),
            3 => {
                let other = random.choice(corpus).cloned().unwrap_or_default();
                let from = random.usize(..=other.len());
                let to = random.usize(from..=other.len());
                drop(input.splice(at..at, other[from..to].iter().copied()));
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte =
                        if random.bool() { random.u8(..) } else { *byte ^ (1 << random.u8(..8)) };
                }
            }
        }
    }
    input.truncate(MAX_INPUT);
    input
}
