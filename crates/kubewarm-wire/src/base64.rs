//! Encodes and decodes base64 with the URL-safe alphabet and without padding, for continue tokens,
//! entity tags and WebSocket bearer tokens.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Accepts the same text as Go's `RawURLEncoding`, with which the API server decodes: in the last
/// character, the bits that belong to no byte can have any value.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

pub(super) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

/// Decodes `text`.
///
/// # Errors
///
/// The index of the first invalid byte. The API server's error message for a continue token
/// contains this index.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, usize> {
    ENGINE.decode(text).map_err(|_| {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        // Decoding failed although all bytes are base64 digits, so the last group of up to four
        // digits has only one digit. A digit has six bits, which are too few for a byte.
        text.bytes().position(|byte| !is_digit(byte)).unwrap_or(text.len() / 4 * 4)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encoding_matches_the_examples_of_rfc_4648() {
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
    fn an_error_is_the_index_of_the_first_invalid_byte() {
        for (text, at) in [("Zg==", 2), ("Zm9v+", 4), ("Zm9vZ", 4), ("é", 0), ("Zm9v Zm", 4)] {
            assert_eq!(decode(text), Err(at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_causes_a_panic(text in ".{0,40}") {
            let _ = decode(&text);
        }
    }
}
