//! Reads the CA of the read API (kubewarm's HTTP server for clients) from a Secret, a `ConfigMap`
//! or a file.

use super::{super::CommandError, CacheServiceArgs};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kubewarm_client::{ApiServerConnection, ConnectError};
use std::{fmt::Write as _, fs::File, io::Read as _, path::Path};

/// Maximum number of bytes that kubewarm reads from a CA file. A large bundle of CAs has about 250
/// KiB.
const MAX_FILE: u64 = 1 << 20;
/// Keys of the Secret that can contain the CA. kubewarm uses the first key with a certificate.
const KEYS: [&str; 2] = ["ca.crt", "tls.crt"];

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Returns the CA certificates that `args` select, as PEM without keys or comments. The second
/// value is a warning if the CA comes from a `ConfigMap`.
///
/// # Errors
///
/// [`CommandError`] if there is no CA, or if `connect` fails.
pub(in crate::commands) async fn authority(
    args: &CacheServiceArgs,
    connect: impl FnOnce() -> Result<ApiServerConnection, ConnectError>,
) -> Result<(String, Option<String>), CommandError> {
    if let Some(path) = &args.cache_certificate_authority {
        let text = read(path)?;
        let file = path.display();
        let empty = || format!("--cache-certificate-authority: {file} holds no certificate in PEM");
        let certificates = certificates(&text).ok_or_else(|| CommandError::new(empty()))?;
        return Ok((certificates, None));
    }
    let (connection, namespace) = (connect()?, args.operator_namespace.name());
    if let Some(name) = &args.cache_secret {
        return Ok((of_secret(&connection, namespace, name).await?, None));
    }
    // kubewarm's own CA is in a ConfigMap, because nobody needs permission for its key.
    let config_map = format!("{}-ca", args.cache_service);
    if let Some(certificates) = of_config_map(&connection, namespace, &config_map).await {
        return Ok((certificates, Some(remark(&format!("{namespace}/{config_map}")))));
    }
    let secret = of_secret(&connection, namespace, &format!("{}-tls", args.cache_service)).await;
    let certificates = secret.map_err(|error| {
        let absent = format!("there is no ConfigMap {namespace}/{config_map} with a CA that you may get");
        CommandError::caused(
            format!("{absent}; name the Secret of the read API with --cache-secret and --operator-namespace, \
                     or pass --cache-certificate-authority"),
            error,
        )
    })?;
    Ok((certificates, None))
}

async fn of_secret(
    connection: &ApiServerConnection,
    namespace: &str,
    name: &str,
) -> Result<String, CommandError> {
    let title = format!("{namespace}/{name}");
    let secrets = Api::<Secret>::namespaced(connection.client(), namespace);
    let secret = secrets
        .get(name)
        .await
        .map_err(|error| CommandError::of_request(format!("Secret {title}"), error))?;
    let data = secret.data.unwrap_or_default();
    let certificates = KEYS.into_iter().find_map(|key| {
        let bytes = &data.get(key)?.0;
        certificates(&String::from_utf8_lossy(bytes))
    });
    let empty = || {
        format!(
            "Secret {title} holds no certificate in ca.crt or tls.crt; name another with --cache-secret"
        )
    };
    certificates.ok_or_else(|| CommandError::new(empty()))
}

/// Returns the CA from kubewarm's `ConfigMap`, which contains no private key. Returns `None` for
/// any error, because the caller then reads the Secret.
async fn of_config_map(
    connection: &ApiServerConnection,
    namespace: &str,
    name: &str,
) -> Option<String> {
    let config_maps = Api::<ConfigMap>::namespaced(connection.client(), namespace);
    let data = config_maps.get(name).await.ok()?.data?;
    certificates(data.get(KEYS.first().copied()?)?)
}

/// Returns the warning for a CA from a `ConfigMap`: more users can write a `ConfigMap` than a
/// Secret.
fn remark(config_map: &str) -> String {
    format!(
        "took the CA of ConfigMap {config_map}; anyone who may write that ConfigMap decides which server your \
         clients trust"
    )
}

fn read(path: &Path) -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    read.map_err(|error| CommandError::caused(format!("cannot read {}", path.display()), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the certificates in a PEM text, without keys and comments. Returns `None` if the text
/// contains no certificate, or if a certificate is not valid base64.
fn certificates(text: &str) -> Option<String> {
    let mut pem = String::new();
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once(BEGIN) {
        let (body, after) = begun.split_once(END)?;
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=\r\n".contains(c);
        if !body.chars().all(is_base64) {
            return None;
        }
        let _infallible = writeln!(pem, "{BEGIN}{}{END}", body.replace('\r', ""));
        rest = after;
    }
    (!pem.is_empty()).then_some(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_next_to_the_certificates_is_not_copied() {
        let pair = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let certificate = pair.cert.pem().replace("\r\n", "\n");
        let text = format!(
            "subject: a\n{certificate}{}\r\n{certificate}",
            pair.signing_key.serialize_pem()
        );
        let pem = certificates(&text).unwrap();
        assert_eq!(pem, certificate.repeat(2));
    }

    #[test]
    fn texts_without_a_valid_certificate_have_none() {
        let cut = format!("{BEGIN}\nAAAA\n");
        let odd = format!("{BEGIN}\n: {{}}\n{END}\n");
        for text in ["", "AAAA", &cut, &odd] {
            assert_eq!(certificates(text), None, "{text:?}");
        }
    }
}
