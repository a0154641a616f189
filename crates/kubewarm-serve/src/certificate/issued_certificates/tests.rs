use super::{super::published_authorities, *};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use std::sync::Arc;

const DAY: Duration = Duration::from_hours(24);
const LIFETIMES: CertificateLifetimes =
    CertificateLifetimes { leaf: Duration::from_hours(30 * 24) };
const NAME: &str = "kubernetes.default.svc";

fn day(number: u32) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + DAY * number
}

fn names(domain: &str) -> CertificateNames {
    CertificateNames::new(&["kubewarm".to_owned()], "ops", domain, &[])
}

/// Whether a client with this bundle accepts the leaf as a server of this name.
fn accepts(bundle: &str, certificates: &IssuedCertificates, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(super::super::provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let leaf = CertificateDer::from_pem_slice(certificates.leaf().0.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().cast_unsigned()));
    verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
}

fn created(domain: &str) -> IssuedCertificates {
    IssuedCertificates::create(&names(domain), LIFETIMES, day(0)).unwrap()
}

fn renewed(
    certificates: &IssuedCertificates,
    domain: &str,
    now: Timestamp,
    is_forced: bool,
) -> Option<IssuedCertificates> {
    let rotation = if is_forced { CaRotation::Forced } else { CaRotation::Allowed };
    certificates.renewed(&names(domain), LIFETIMES, now, rotation).unwrap()
}

#[test]
fn a_leaf_is_valid_for_its_names_and_its_lifetime() {
    let certificates = created("cluster.local");
    let bundle = certificates.bundle();
    for name in
        [NAME, "kubernetes", "kubewarm.ops.svc.cluster.local", "localhost", "127.0.0.1", "::1"]
    {
        assert!(accepts(&bundle, &certificates, name, day(0)), "{name}");
    }
    for name in ["example.com", "kubewarm.other.svc", "10.0.0.1"] {
        assert!(!accepts(&bundle, &certificates, name, day(0)), "{name}");
    }
    assert!(
        accepts(&bundle, &certificates, NAME, day(29))
            && !accepts(&bundle, &certificates, NAME, day(31))
    );
    assert!(!accepts(&created("cluster.local").bundle(), &certificates, NAME, day(0)));
}

#[test]
fn a_ca_signs_for_no_other_name_and_no_other_ca() {
    let certificates = created("cluster.local");
    let other = |name: &str| {
        let other = CertificateNames::new(&[], "ops", "cluster.local", &[name.parse().unwrap()]);
        let leaf = certificates.signing.issue(&other, day(0), LIFETIMES.leaf).unwrap();
        IssuedCertificates { leaf, ..certificates.clone() }
    };
    for name in ["example.com", "kubernetes.other.svc", "10.0.0.1", "fe80::1"] {
        assert!(!accepts(&certificates.bundle(), &other(name), name, day(0)), "{name}");
    }
    assert!(accepts(
        &certificates.bundle(),
        &other("a.kubewarm.ops.svc"),
        "a.kubewarm.ops.svc",
        day(0)
    ));
}

#[test]
fn a_client_that_read_the_bundle_in_the_last_90_days_accepts_each_leaf() {
    let mut certificates = created("cluster.local");
    let mut bundles = Vec::new();
    let (mut leaves, mut most_authorities) = (1, 1);
    for number in 0..5_500 {
        let now = day(number);
        // The leader is away now and then, up to a week.
        if number % 50 >= 7
            && let Some(next) = renewed(&certificates, "cluster.local", now, false)
        {
            leaves += u32::from(next.leaf != certificates.leaf);
            certificates = next;
        }
        if number % 10 == 9 {
            bundles.push(certificates.bundle());
        }
        most_authorities = most_authorities.max(certificates.authorities().count());
        if number % 10 == 0 {
            for bundle in &bundles[bundles.len().saturating_sub(9)..] {
                assert!(accepts(bundle, &certificates, NAME, now), "day {number}");
            }
        }
    }
    assert!((250..330).contains(&leaves), "{leaves} leaves in 15 years");
    assert_eq!(most_authorities, 2);
    assert!(!accepts(&bundles[0], &certificates, NAME, day(5_499)), "the first CA has expired");
}

#[test]
fn new_names_are_valid_after_the_publication_of_a_ca_that_permits_them() {
    let (old, new) = ("kubewarm.ops.svc.a.example", "kubewarm.ops.svc.b.example");
    let mut certificates = created("a.example");
    let first = certificates.bundle();
    for number in 0..200 {
        let domain = if number < 10 { "a.example" } else { "b.example" };
        certificates = renewed(&certificates, domain, day(number), false).unwrap_or(certificates);
        let valid = [old, new].map(|name| {
            let bundle = certificates.bundle();
            accepts(&bundle, &certificates, name, day(number))
        });
        assert_eq!(valid, [number < 100, number >= 100], "day {number}");
        assert_eq!(accepts(&first, &certificates, NAME, day(number)), number < 100);
    }
    // The names change back before the next CA has signed anything.
    let one = renewed(&certificates, "c.example", day(201), false).unwrap();
    let back = renewed(&one, "b.example", day(202), false).unwrap();
    assert_eq!(back.bundle(), certificates.bundle());
}

#[test]
fn a_forced_rotation_signs_at_once_and_keeps_the_old_ca_until_its_end() {
    let before = created("cluster.local");
    let after = renewed(&before, "cluster.local", day(1), true).unwrap();
    assert!(!accepts(&before.bundle(), &after, NAME, day(1)));
    assert!(accepts(&after.bundle(), &after, NAME, day(1)));
    assert!(
        accepts(&after.bundle(), &before, NAME, day(1)),
        "another replica still has the old leaf"
    );
    assert!(renewed(&after, "cluster.local", day(2), false).is_none());
    let mut full = after;
    for number in 2..8 {
        full = renewed(&full, "cluster.local", day(number), true).unwrap();
    }
    assert!(full.is_full());
    assert!(renewed(&full, "cluster.local", day(8), true).is_none(), "no further CA");
    let leaf = renewed(&full, "cluster.local", day(30), true).unwrap();
    assert!(leaf.leaf != full.leaf && leaf.signing == full.signing, "leaves are still renewed");
    let later = renewed(&full, "cluster.local", day(65 * 30), true).unwrap();
    assert!(!later.is_full());
}

#[test]
fn a_bundle_shows_when_its_cas_were_published_and_will_sign() {
    let shown = |certificates: &IssuedCertificates| {
        let all = published_authorities(&certificates.bundle());
        all.iter().map(|one| (one.published_at, one.signs_at)).collect::<Vec<_>>()
    };
    let first = created("a.example");
    assert_eq!(shown(&first), [(day(0), day(0))]);
    let next = renewed(&first, "b.example", day(10), false).unwrap();
    assert_eq!(shown(&next), [(day(0), day(0)), (day(10), day(100))]);
    // The new name shows that the CA signs then, and not earlier.
    let signs = renewed(&next, "b.example", day(100), false).unwrap();
    assert_eq!(shown(&signs), [(day(10), day(10))]);
    assert_eq!(published_authorities("no certificate"), []);
}

#[test]
fn a_ca_that_clients_cannot_read_does_not_sign() {
    let first = created("a.example");
    let next = renewed(&first, "b.example", day(1), false).unwrap();
    let suspended =
        next.renewed(&names("b.example"), LIFETIMES, day(100), CaRotation::Suspended).unwrap();
    let suspended = suspended.unwrap();
    assert!(suspended.signing == first.signing && suspended.leaf != first.leaf);
    assert!(renewed(&suspended, "b.example", day(101), false).unwrap().signing != first.signing);
}

#[test]
fn certificates_of_a_clock_in_the_future_are_replaced() {
    let certificates = created("a.example");
    let ahead = renewed(&certificates, "a.example", day(25), false).unwrap();
    let healed = renewed(&ahead, "a.example", day(0), false).unwrap();
    assert_eq!(healed.signing, certificates.signing);
    assert!(accepts(&certificates.bundle(), &healed, NAME, day(0)));
    let born = IssuedCertificates::create(&names("a.example"), LIFETIMES, day(25)).unwrap();
    let healed = renewed(&born, "a.example", day(0), false).unwrap();
    assert!(accepts(&healed.bundle(), &healed, NAME, day(0)));
    // A clock that is late for some minutes changes nothing.
    let late = day(0) - Duration::from_mins(10);
    assert!(renewed(&certificates, "a.example", late, false).is_none());
}

#[test]
fn a_leaf_that_ends_with_its_ca_is_not_replaced_again_and_again() {
    let short = CertificateLifetimes { leaf: DAY };
    let certificates = IssuedCertificates::create(&names("a.example"), short, day(0)).unwrap();
    let once = renewed(&certificates, "a.example", day(55), false).unwrap();
    assert_eq!(renewed(&once, "a.example", day(56), false), None);
}

#[test]
fn a_secret_holds_all_that_the_next_leader_needs() {
    assert_eq!(IssuedCertificates::parse(&BTreeMap::new()).unwrap(), None);
    let first = created("a.example");
    let next = renewed(&first, "b.example", day(1), false).unwrap();
    let rotated = renewed(&next, "b.example", day(2), true).unwrap();
    for certificates in [first, next, rotated] {
        let parsed = IssuedCertificates::parse(&certificates.data()).unwrap();
        assert_eq!(parsed.as_ref(), Some(&certificates));
        assert!(!format!("{parsed:?}").contains("PRIVATE"), "debug output hides keys");
    }
}

#[test]
fn a_damaged_secret_is_an_error_that_names_the_key() {
    let data = created("a.example").data();
    let other_key = String::from_utf8(data["signing-ca.key"].clone()).unwrap();
    for (key, value, expected) in [
        ("tls.crt", None, "its key tls.crt is missing"),
        ("signing-ca.key", None, "its key signing-ca.key is missing"),
        ("signing-ca.crt", None, "its key signing-ca.crt is missing"),
        ("ca.crt", None, "its key ca.crt is missing"),
        ("tls.key", Some("no key"), "its key tls.key cannot be used"),
        ("tls.key", Some(&*other_key), "its key tls.key cannot be used"),
        ("tls.crt", Some("no certificate"), "its key tls.crt cannot be used"),
        ("ca.crt", Some("no certificate"), "its key ca.crt cannot be used"),
    ] {
        let mut damaged = data.clone();
        match value {
            Some(value) => damaged.insert(key.to_owned(), value.into()),
            None => damaged.remove(key),
        };
        let error = IssuedCertificates::parse(&damaged).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
