//! Client certificates on the read address: which certificates authenticate a user. No header
//! changes the user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use serde_json::Value;

use crate::api::{HttpReply, Served, account};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Validity of a certificate that expires during a watch.
const SHORT: Duration = Duration::from_secs(20);

/// A certificate authority of the test.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

/// The property that makes a certificate unusual; `Well` for a valid certificate.
enum CertificateFlaw {
    Well,
    Until(SystemTime),
    For(ExtendedKeyUsagePurpose),
}

impl TestAuthority {
    fn new(folder: &Path, name: &str) -> Result<Self, Failure> {
        let mut wanted = CertificateParams::default();
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let file = folder.join(format!("{name}.crt"));
        fs::write(&file, wanted.self_signed(&key)?.pem())?;
        Ok(Self { issuer: Issuer::new(wanted, key), file })
    }

    /// Writes a certificate for a user in groups, and its key. Returns both paths.
    fn sign(
        &self,
        user: &str,
        groups: &[&str],
        made: CertificateFlaw,
    ) -> Result<(PathBuf, PathBuf), Failure> {
        let mut wanted = CertificateParams::default();
        wanted.distinguished_name = DistinguishedName::new();
        wanted.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            wanted.distinguished_name.push(DnType::OrganizationName, *group);
        }
        wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        match made {
            CertificateFlaw::Well => {}
            CertificateFlaw::Until(end) => wanted.not_after = end.into(),
            CertificateFlaw::For(usage) => wanted.extended_key_usages = vec![usage],
        }
        let key = KeyPair::generate()?;
        let certificate = wanted.signed_by(&key, &self.issuer)?;
        let stem = format!("{user}-{}", fastrand::u64(..));
        let folder = self.file.parent().ok_or("no folder")?;
        let pair = (folder.join(format!("{stem}.crt")), folder.join(format!("{stem}.key")));
        fs::write(&pair.0, certificate.pem())?;
        fs::write(&pair.1, key.serialize_pem())?;
        Ok(pair)
    }
}

/// One request with its credentials, and the expected answer.
struct CertificateCase<'a> {
    name: &'a str,
    pair: Option<&'a (PathBuf, PathBuf)>,
    headers: &'a [(&'a str, &'a str)],
    code: u16,
    part: &'a str,
}

fn case<'a>(
    name: &'a str,
    pair: Option<&'a (PathBuf, PathBuf)>,
    headers: &'a [(&'a str, &'a str)],
    code: u16,
    part: &'a str,
) -> CertificateCase<'a> {
    CertificateCase { name, pair, headers, code, part }
}

fn ask(served: &Served, path: &str, case: &CertificateCase<'_>) -> Result<HttpReply, Failure> {
    let client = match case.pair {
        Some(pair) => served.server_for(pair)?,
        None => served.server()?,
    };
    let reply = client.ask("GET", path, case.headers)?;
    assert_eq!(reply.code, case.code, "{}: {reply:?}", case.name);
    assert!(reply.text.contains(case.part), "{}: {reply:?}", case.name);
    Ok(reply)
}

#[test]
fn a_certificate_identifies_the_reader_and_no_header_does() -> Outcome {
    let world = World::lease()?;
    let folder = world.cluster.folder().to_owned();
    let made = |name: &str| TestAuthority::new(&folder, name);
    let (people, others) = (made("people")?, made("others")?);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let flags = ["--forward", "--client-ca-file", &text(&people.file)];
    let mut served = Served::start(&world, &flags)?;
    let team = world.namespace("team")?;
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    let profile = Profile::apply(&world, &team, "settings", spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let kubectl = |arguments: &str| world.cluster.run(arguments.split_whitespace());
    kubectl(&format!("create role reader -n {team} --verb=get,list,watch --resource=configmaps"))?;
    kubectl(&format!(
        "create rolebinding reader -n {team} --role=reader --user=jane --group=readers"
    ))?;
    let denied = format!("Bearer {}", account(&world, &team, "denied")?);
    let reader = account(&world, &team, "reader")?;
    kubectl(&format!(
        "create rolebinding account -n {team} --role=reader --serviceaccount={team}:reader"
    ))?;
    let reader = format!("Bearer {reader}");

    let jane = people.sign("jane", &[], CertificateFlaw::Well)?;
    let john = people.sign("john", &["writers", "readers"], CertificateFlaw::Well)?;
    let mary = people.sign("mary", &[], CertificateFlaw::Well)?;
    let strange = others.sign("jane", &["readers"], CertificateFlaw::Well)?;
    let ended = people.sign("jane", &[], CertificateFlaw::Until(SystemTime::now() - SHORT))?;
    let unfit =
        people.sign("jane", &[], CertificateFlaw::For(ExtendedKeyUsagePurpose::ServerAuth))?;
    let anonymous = people.sign("system:anonymous", &["readers"], CertificateFlaw::Well)?;

    let path = format!("/api/v1/namespaces/{team}/configmaps");
    let as_jane = ("x-remote-user", "jane");
    let in_readers = ("x-remote-group", "readers");
    let (of_reader, of_denied) = (("authorization", &*reader), ("authorization", &*denied));
    let mary_is_not = r#"User \"mary\" cannot list resource"#;
    let jane_is_not = r#"User \"jane\" cannot list resource"#;
    for case in [
        case("a user with permission", Some(&jane), &[], 200, "ConfigMapList"),
        case("a group with permission", Some(&john), &[], 200, "ConfigMapList"),
        case("without permission", Some(&mary), &[], 403, mary_is_not),
        case("another CA", Some(&strange), &[], 401, "Unauthorized"),
        case("expired", Some(&ended), &[], 401, "Unauthorized"),
        case("a server certificate", Some(&unfit), &[], 401, "Unauthorized"),
        case("an anonymous user", Some(&anonymous), &[], 401, "Unauthorized"),
        case("another CA, and a token", Some(&strange), &[of_reader], 200, "ConfigMapList"),
        case("a token has no effect", Some(&jane), &[of_denied], 200, "ConfigMapList"),
        case("a token adds no permission", Some(&mary), &[of_reader], 403, mary_is_not),
        case("impersonation", Some(&jane), &[("impersonate-user", "john")], 403, "CannotForward"),
        case("a header has no effect", Some(&mary), &[as_jane, in_readers], 403, mary_is_not),
        case("another CA, and a header", Some(&strange), &[as_jane], 401, "Unauthorized"),
        case("without a certificate", None, &[as_jane, in_readers], 401, "Unauthorized"),
        case("a token and a header", None, &[as_jane, of_reader], 200, "ConfigMapList"),
    ] {
        ask(&served, &path, &case)?;
    }
    // The user may not read other namespaces. kubewarm cannot forward the request either, because
    // the caller has no token.
    let elsewhere = "/api/v1/configmaps";
    ask(&served, elsewhere, &case("elsewhere", Some(&jane), &[in_readers], 403, jane_is_not))?;
    let services = format!("/api/v1/namespaces/{team}/services");
    for headers in [&[][..], &[of_reader]] {
        let case = case("not forwarded", Some(&jane), headers, 403, "");
        ask(&served, &services, &case)?;
    }
    let written = served.server_for(&john)?.ask("DELETE", &format!("{path}/none"), &[of_reader])?;
    assert_eq!((written.code, &written.json()["reason"]), (403, &"CannotForward".into()));
    ask(&served, "/api", &case("discovery", Some(&jane), &[], 200, "APIVersions"))?;

    expired_and_removed_certificates_are_rejected(&served, (&people, &others), &path)?;
    the_servers_certificate_is_replaced(&world, &mut served, (&team, &path), of_reader)
}

/// Replaces the CAs of `people` by the CAs of `others`. Expired and removed certificates are
/// rejected.
fn expired_and_removed_certificates_are_rejected(
    served: &Served,
    (people, others): (&TestAuthority, &TestAuthority),
    path: &str,
) -> Outcome {
    let jane = people.sign("jane", &[], CertificateFlaw::Well)?;
    let strange = others.sign("jane", &["readers"], CertificateFlaw::Well)?;
    // An expired client certificate ends the watch that it opened.
    let short = people.sign("jane", &[], CertificateFlaw::Until(SystemTime::now() + SHORT))?;
    let short = served.server_for(&short)?;
    let watch = short.watch("", &format!("{path}?watch=true"), "application/json")?;
    assert_eq!(watch.code, 200);
    assert!(!watch.is_over());
    eventually(SOON, || if watch.is_over() { Ok(()) } else { Err("still open".into()) })?;
    assert_eq!(short.ask("GET", path, &[])?.code, 401);

    // kubewarm rejects certificates of a removed CA, on open connections too.
    let before = served.server_for(&jane)?;
    assert_eq!(before.ask("GET", path, &[])?.code, 200);
    let next = people.file.with_extension("next");
    fs::copy(&others.file, &next)?;
    fs::rename(next, &people.file)?;
    eventually(SOON, || match before.ask("GET", path, &[])?.code {
        401 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    assert_eq!(served.server_for(&strange)?.ask("GET", path, &[])?.code, 200);
    Ok(())
}

/// kubewarm shows a replaced certificate to new connections and keeps open connections.
fn the_servers_certificate_is_replaced(
    world: &World,
    served: &mut Served,
    (team, path): (&str, &str),
    of_reader: (&str, &str),
) -> Outcome {
    let token = of_reader.1.trim_start_matches("Bearer ");
    // Each of these clients trusts only the certificate that the server has now, before the
    // replacement.
    let (open, watcher, late) = (served.server()?, served.server()?, served.server()?);
    let watch = watcher.watch(token, &format!("{path}?watch=true"), "application/json")?;
    assert_eq!((watch.code, open.get(token, path)?.code), (200, 200));
    served.renew_certificate()?;
    eventually(SOON, || {
        assert_eq!(open.get(token, path)?.code, 200);
        match served.server()?.get(token, path)?.code {
            200 => Ok(()),
            code => Err(format!("{code}").into()),
        }
    })?;
    let refused = late.get(token, path).map(|reply| reply.code);
    assert!(refused.is_err(), "the old certificate is still shown: {refused:?}");
    assert_eq!(open.get(token, path)?.code, 200);
    world.cluster.run(["create", "configmap", "renewed", "-n", team])?;
    eventually(SOON, || {
        let is_it = |event: &Value| event["object"]["metadata"]["name"] == "renewed";
        if watch.events().iter().any(is_it) { Ok(()) } else { Err("no event".into()) }
    })?;
    assert!(!watch.is_over());
    Ok(())
}

#[test]
fn a_caller_without_a_token_for_reviews_is_rejected_by_name() -> Outcome {
    for more in [&["--auth=caller-token"][..], &["--watch-namespaces=shop"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
            .args(["run", "--client-ca-file=ca.crt"])
            .args(more)
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("--client-ca-file") && stderr.contains("--auth=delegated"),
            "{stderr}"
        );
    }
    Ok(())
}
