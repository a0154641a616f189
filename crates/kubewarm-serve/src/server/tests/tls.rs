//! Tests the certificate that clients receive, and the rejection of connections without TLS.

use super::*;

#[tokio::test]
async fn the_servers_own_certificate_works_with_both_protocols() {
    let served = TestServer::new(|_| ());
    let mut stream = served.tls("http/1.1").await.unwrap();
    // The client prefers AES-256. The server must still select AES-128, which needs less processor
    // time.
    let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    for _ in 0..2 {
        stream.write_all(OK).await.unwrap();
        one_ok(&mut stream).await;
    }
    let (sender, _connection) = served.h2().await;
    let asking = (0..50).map(|n| {
        let (mut sender, request) =
            (sender.clone(), h2_get(served.address, &format!("/asked?n={n}")));
        async move {
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("GET /asked?n={n} from 127.0.0.1"));
        }
    });
    timeout(MOST, join_all(asking)).await.unwrap();
    let other = ServingCertificate::self_signed(names("here", "ops")).unwrap().der().unwrap();
    let tcp = served.tcp().await;
    assert!(trusting(&other, "h2", "kubewarm.ops.svc", tcp).await.is_err());
    let certificate = served.certificate.der().unwrap();
    let tcp = served.tcp().await;
    assert!(trusting(&certificate, "h2", "kubewarm.other.svc", tcp).await.is_err());
    drop((stream, sender));
    served.end().await;
}

#[tokio::test]
async fn without_tls_nothing_is_answered() {
    let served = TestServer::new(|_| ());
    let mut stream = served.tcp().await;
    stream.write_all(OK).await.unwrap();
    let mut answer = Vec::new();
    let _end = timeout(MOST, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.windows(4).any(|part| part == b"HTTP"), "{answer:?}");
    served.end().await;
}

#[tokio::test]
async fn a_new_certificate_applies_to_new_connections_and_not_to_open_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate_file, key_file) = (path("tls.crt"), path("tls.key"));
    let write = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let wanted = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        fs::write(&certificate_file, wanted.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
    };
    write("kubewarm.ops.svc");
    let served = TestServer::with(
        ServingCertificate::of_files(certificate_file.clone(), key_file.clone()).unwrap(),
        |_| (),
    );
    let before = served.certificate.der().unwrap();
    let mut open = served.tls("http/1.1").await.unwrap();
    write("kubewarm.ops.svc");
    served.certificate.refresh();
    assert_ne!(served.certificate.der().unwrap(), before);
    assert!(served.get("/ok").await.ends_with("ok"));
    let tcp = served.tcp().await;
    assert!(trusting(&before, "http/1.1", "kubewarm.ops.svc", tcp).await.is_err());
    open.write_all(OK).await.unwrap();
    one_ok(&mut open).await;
    served.end().await;
}
