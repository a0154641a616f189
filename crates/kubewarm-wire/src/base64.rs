//! Base64 as continue tokens are written: the URL-safe alphabet, no padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        // A chunk of n bytes is n + 1 digits.
        for digit in 0..=chunk.len() {
            let index = (bits >> (18 - 6 * digit)) & 0x3f;
            text.push(char::from(ALPHABET.get(index as usize).copied().unwrap_or_default()));
        }
    }
    text
}

/// The bytes of `text`.
///
/// # Errors
///
/// The place of the first byte that cannot be there.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for (group, chunk) in text.as_bytes().chunks(4).enumerate() {
        let mut bits = 0;
        for (at, &digit) in chunk.iter().enumerate() {
            bits |= value(digit).ok_or(group * 4 + at)? << (18 - 6 * at);
        }
        let [_, first, second, third] = bits.to_be_bytes();
        match chunk.len() {
            4 => bytes.extend([first, second, third]),
            3 => bytes.extend([first, second]),
            2 => bytes.push(first),
            // Six bits are no byte.
            _ => return Err(group * 4),
        }
    }
    Ok(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_those_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text), Ok(bytes.into()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        for (text, at) in [("Zg==", 2), ("Zm9v+", 4), ("Zm9vZ", 4), ("é", 0), ("Zm9v Zm", 4)] {
            assert_eq!(decode(text), Err(at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_encoded_comes_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = decode(&text);
        }
    }
}
