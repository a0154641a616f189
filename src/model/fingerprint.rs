//! A certificate told by its SHA-256.

use std::{fmt, str::FromStr};

/// The SHA-256 of a certificate in DER.
///
/// Read from 64 hexadecimal digits in either case, with colons between the bytes or without: as
/// `openssl x509 -fingerprint -sha256` and the log of kubewarm write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Not the SHA-256 of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a SHA-256: 64 hexadecimal digits, with colons between the bytes or without")]
pub struct InvalidFingerprint;

impl Fingerprint {
    /// Of these bytes, as a hash function gives them.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let mut digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(InvalidFingerprint);
            };
            *byte = u8::try_from(high << 4 | low).map_err(|_| InvalidFingerprint)?;
        }
        if digits.next().is_some() { Err(InvalidFingerprint) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_and_case_do_not_matter_and_nothing_may_be_missing() {
        let plain = "0123456789abcdef".repeat(4);
        let found: Fingerprint = plain.parse().unwrap();
        let shown = found.to_string();
        assert!(shown.starts_with("01:23:45:67:89:AB:CD:EF:01"), "{shown}");
        assert_eq!(shown.parse(), Ok(found));
        for text in ["", &plain[1..], &format!("{plain}0"), &plain.replace('a', "g")] {
            assert_eq!(text.parse::<Fingerprint>(), Err(InvalidFingerprint), "{text}");
        }
    }
}
