//! Label that selects all manifests of a profile.

use crate::model::ProfileRef;

/// Label of every manifest of a profile.
///
/// Its value is `<namespace>.<profile>` up to 63 bytes. A longer value is cut to 46 bytes, followed
/// by `-` and the 16 hexadecimal digits of its FNV-1a hash. The label only finds the objects; their
/// names identify them.
pub const PROFILE_LABEL: &str = "kubewarm.io/profile";

/// Returns the value of [`PROFILE_LABEL`] for `profile`.
pub(super) fn label_value(profile: &ProfileRef) -> String {
    let full = format!("{}.{}", profile.namespace, profile.name);
    if full.len() <= 63 {
        return full;
    }
    let hash = full.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let head: String = full.chars().take(46).collect();
    format!("{head}-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(namespace: &str, name: &str) -> ProfileRef {
        ProfileRef { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn a_long_name_has_a_valid_unique_label() {
        assert_eq!(label_value(&profile("shop", "web.v2")), "shop.web.v2");
        let long = [&"a".repeat(63), &"a".repeat(64)].map(|name| label_value(&profile("s", name)));
        for value in &long {
            assert_eq!(value.len(), 63);
            assert!(value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)));
        }
        assert_ne!(long[0], long[1]);
    }
}
