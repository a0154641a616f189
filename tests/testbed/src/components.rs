//! The command lines of etcd, kube-apiserver and kube-controller-manager.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::control_plane::{Builder, Ports};
use crate::error::{Action, Result};
use crate::layout::Layout;

/// The address of the `kubernetes` Service: the first address of the range for Services.
pub(crate) const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The URL of etcd on this host: plain HTTP without authentication. A local user who can connect to
/// etcd can also read the test's files, so authentication would protect nothing.
pub(crate) fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

pub(crate) fn etcd(layout: &Layout, ports: Ports, asked: &Builder) -> Vec<OsString> {
    let (client, peer) = (url(ports.client), url(ports.peer));
    let mut args = vec![
        flag("--data-dir", layout.etcd()),
        flag("--listen-client-urls", &client),
        flag("--advertise-client-urls", &client),
        flag("--listen-peer-urls", &peer),
        flag("--initial-advertise-peer-urls", &peer),
        flag("--initial-cluster", format!("default={peer}")),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    if !asked.has_rare_progress {
        // Real clusters set this interval. The API server needs etcd's progress notifications for
        // bookmarks and for consistent reads from its watch cache.
        args.push("--watch-progress-notify-interval=5s".into());
    }
    args
}

pub(crate) fn apiserver(
    layout: &Layout,
    ports: Ports,
    asked: &Builder,
    service_account_admission: bool,
) -> Result<Vec<OsString>> {
    let mut args = vec![
        flag("--etcd-servers", url(ports.client)),
        flag("--secure-port", ports.api.to_string()),
        "--bind-address=127.0.0.1".into(),
        flag("--cert-dir", layout.pki("")),
        flag("--client-ca-file", layout.pki("ca.crt")),
        flag("--tls-cert-file", layout.pki("server.crt")),
        flag("--tls-private-key-file", layout.pki("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        flag("--service-account-key-file", layout.pki("sa.pub")),
        flag("--service-account-signing-key-file", layout.pki("sa.key")),
        flag("--service-cluster-ip-range", format!("{SERVICE_ADDRESS}/24")),
        "--allow-privileged".into(),
        "--endpoint-reconciler-type=none".into(),
    ];
    if !service_account_admission {
        // Without a controller manager, no `default` ServiceAccount exists, and this admission
        // plugin would reject each pod.
        args.push("--disable-admission-plugins=ServiceAccount".into());
    }
    if let Some(policy) = asked.audited.policy() {
        let file = layout.root().join("audit-policy.yaml");
        fs::write(&file, policy).action(|| format!("write {}", file.display()))?;
        args.push(flag("--audit-policy-file", file));
        args.push(flag("--audit-log-path", asked.audited.log(layout)));
        // The maximum size of the audit log, in megabytes. The log must not rotate, because tests
        // read one file.
        args.push("--audit-log-maxsize=100000".into());
    }
    args.extend(asked.apiserver_args.iter().cloned());
    // Each of these flags adds an authorizer. RBAC is the last one, as in most clusters, because
    // another one can only deny before RBAC allows.
    args.push("--authorization-mode=RBAC".into());
    Ok(args)
}

pub(crate) fn controller_manager(layout: &Layout, kubeconfig: &Path) -> Vec<OsString> {
    vec![
        flag("--kubeconfig", kubeconfig),
        flag("--root-ca-file", layout.pki("ca.crt")),
        flag("--service-account-private-key-file", layout.pki("sa.key")),
        "--use-service-account-credentials".into(),
        "--leader-elect=false".into(),
        // At its start, the controller manager sends more than a hundred requests for its own
        // ServiceAccounts. The default limit of 20 a second delays other objects by 4 s.
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
        // The pod garbage collector would delete pods on nodes that do not exist.
        "--controllers=*,-nodeipam,-cloud-node-lifecycle,-pod-garbage-collector-controller".into(),
        // No test sends a request to the controller manager.
        "--secure-port=0".into(),
    ]
}

pub(crate) fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(name);
    flag.push("=");
    flag.push(value.into());
    flag
}
