//! Writes a synthetic pod in protobuf, with the field numbers of
//! `k8s.io/api/core/v1/generated.proto`.

use super::{PodShape, digest, managed_fields::PodEntry, mix, uid};
use kubewarm_wire::protobuf::{write_bytes, write_number};

fn text(number: u32, value: &str, out: &mut Vec<u8>) {
    write_bytes(number, value.as_bytes(), out);
}

fn message(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    write_bytes(number, &message, out);
}

fn pairs<const N: usize>(number: u32, pairs: [[&str; 2]; N], out: &mut Vec<u8>) {
    for [key, value] in pairs {
        message(number, out, |out| {
            text(1, key, out);
            text(2, value, out);
        });
    }
}

fn time(number: u32, seconds: u32, out: &mut Vec<u8>) {
    message(number, out, |out| {
        write_number(1, u64::from(seconds), out);
        write_number(2, 0, out);
    });
}

/// Appends a pod with nearly the same content as the JSON pod of the benchmark. `key` is namespace
/// and name.
pub(crate) fn protobuf_pod(
    to: &mut Vec<u8>,
    shape: PodShape,
    n: u32,
    version: u64,
    key: [&str; 2],
    deployment: u32,
    entries: &[PodEntry],
) {
    let [namespace, name] = key;
    let (hash, owner) = (format!("{:08x}", mix(deployment)), uid(deployment + 1_000_000));
    let (app, created) = (format!("app-{deployment}"), 1_778_000_000 + mix(n) % 10_000_000);
    message(1, to, |out| {
        text(1, name, out);
        text(2, &format!("{app}-{hash}-"), out);
        text(3, namespace, out);
        text(4, "", out);
        text(5, &uid(n), out);
        text(6, &(version * 1_000_000 + u64::from(n)).to_string(), out);
        write_number(7, 1, out);
        time(8, created, out);
        let labels = [
            ["app", &*app],
            ["pod-template-hash", &hash],
            ["team", namespace],
            ["tier", "backend"],
        ];
        pairs(11, labels, out);
        let checksum = format!("{owner}{owner}");
        let annotations = [
            ["checksum/config", &*checksum],
            ["prometheus.io/port", "8080"],
            ["prometheus.io/scrape", "true"],
        ];
        pairs(12, annotations, out);
        message(13, out, |out| {
            text(1, "ReplicaSet", out);
            text(3, &format!("{app}-{hash}"), out);
            text(4, &owner, out);
            text(5, "apps/v1", out);
            write_number(6, 1, out);
            write_number(7, 1, out);
        });
        for PodEntry { manager, subresource, seconds, fields } in entries {
            message(17, out, |out| {
                text(1, manager, out);
                text(2, "Update", out);
                text(3, "v1", out);
                time(4, *seconds, out);
                text(6, "FieldsV1", out);
                message(7, out, |out| text(1, fields, out));
                text(8, subresource, out);
            });
        }
    });
    message(2, to, |out| spec(out, n, deployment, &app));
    message(3, to, |out| match shape {
        PodShape::Alike => {
            text(1, "Pending", out);
            text(9, "Burstable", out);
        }
        PodShape::WithStatus => status(out, n, deployment, created),
    });
}

fn spec(out: &mut Vec<u8>, n: u32, deployment: u32, app: &str) {
    for container in ["app", "proxy"] {
        message(2, out, |out| {
            text(1, container, out);
            text(2, &format!("registry.example/{container}-{deployment}:1.4.{deployment}"), out);
            for (name, port) in [("http", 8080), ("metrics", 9090)] {
                message(6, out, |out| {
                    text(1, name, out);
                    write_number(2, 0, out);
                    write_number(3, port, out);
                    text(4, "TCP", out);
                    text(5, "", out);
                });
            }
            let url = format!("postgres://{app}.db.svc:5432/app");
            pairs(7, [["LOG_LEVEL", "info"], ["DATABASE_URL", &url]], out);
            message(8, out, |out| {
                for (number, cpu, memory) in [(1, "500m", "512Mi"), (2, "100m", "128Mi")] {
                    for (key, value) in [("cpu", cpu), ("memory", memory)] {
                        message(number, out, |out| {
                            text(1, key, out);
                            message(2, out, |out| text(1, value, out));
                        });
                    }
                }
            });
            for [name, path] in [
                ["config", "/etc/app"],
                ["kube-api-access", "/var/run/secrets/kubernetes.io/serviceaccount"],
            ] {
                message(9, out, |out| {
                    text(1, name, out);
                    write_number(2, 1, out);
                    text(3, path, out);
                    text(4, "", out);
                });
            }
            text(13, "/dev/termination-log", out);
            text(14, "IfNotPresent", out);
            text(20, "File", out);
        });
    }
    text(3, "Always", out);
    write_number(4, 30, out);
    text(6, "ClusterFirst", out);
    text(8, app, out);
    text(9, app, out);
    text(10, &format!("node-{:03}", mix(n) % 300), out);
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        message(22, out, |out| {
            for (number, value) in [(1, key), (2, "Exists"), (3, ""), (4, "NoExecute")] {
                text(number, value, out);
            }
            write_number(5, 300, out);
        });
    }
}

fn status(out: &mut Vec<u8>, n: u32, deployment: u32, created: u32) {
    let ip = format!("10.{}.{}.{}", n % 256, n / 256 % 256, mix(n) % 256);
    text(1, "Running", out);
    for kind in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    {
        message(2, out, |out| {
            text(1, kind, out);
            text(2, "True", out);
            message(3, out, |_| ());
            time(4, created, out);
        });
    }
    text(5, &format!("192.168.{}.{}", mix(n) % 16, mix(n) % 300 % 256), out);
    text(6, &ip, out);
    time(7, created, out);
    for container in 0..2 {
        message(8, out, |out| {
            text(1, if container == 0 { "app" } else { "proxy" }, out);
            message(2, out, |out| message(2, out, |out| time(1, created, out)));
            message(3, out, |_| ());
            write_number(4, 1, out);
            write_number(5, u64::from(mix(n) % 3), out);
            text(6, &format!("registry.example/app-{deployment}:1.4.{deployment}"), out);
            text(
                7,
                &format!("registry.example/app-{deployment}@sha256:{}", digest(deployment)),
                out,
            );
            text(8, &format!("containerd://{}", digest(n * 2 + container + 10_000_000)), out);
            write_number(9, 1, out);
        });
    }
    text(9, "Burstable", out);
    message(12, out, |out| text(1, &ip, out));
}
