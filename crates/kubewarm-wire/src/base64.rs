//! Base64 as continue tokens are written: the URL-safe alphabet, no padding.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// As Go's `RawURLEncoding`, which takes any bits behind the last byte.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

/// The bytes of `text`.
///
/// # Errors
///
/// The place of the first byte that cannot be there.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, usize> {
    ENGINE.decode(text).map_err(|_| {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        // Where each may be there, six bits behind the last group of four are no byte.
        text.bytes().position(|byte| !is_digit(byte)).unwrap_or(text.len() / 4 * 4)
    })
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
