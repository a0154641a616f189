//! The label that kubewarm sets on each RBAC object that it generates for a profile.

use crate::model::ProfileRef;

/// Key of the label that kubewarm sets on each RBAC object that it generates for a profile.
///
/// The label's value is `<namespace>.<profile>`. Kubernetes permits at most 63 bytes. So a longer
/// text becomes its first 46 bytes, `-`, and 16 hexadecimal digits: the FNV-1a hash of the whole
/// text, so that values of different profiles differ.
pub const PROFILE_LABEL: &str = "kubewarm.io/profile";

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
