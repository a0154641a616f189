//! Tests that wrong values are rejected, and that the messages name the field.

use testbed::Helm;

use crate::cluster::{Failure, Outcome, helms};
use crate::render::render;

/// Rejected values, and words of the message: the field and the reason.
const REFUSED: &[(&str, &[&str])] = &[
    // Rejected by the schema.
    ("replicaCount: three", &["/replicaCount", "want integer"]),
    ("replicas: 2", &["replicas", "not allowed"]),
    ("image: {digest: sha256:abc}", &["/image/digest", "does not match"]),
    ("image: {repository: 'kubewarm:1.0'}", &["/image/repository", "does not match"]),
    ("image: {pullPolicy: Sometimes}", &["/image/pullPolicy", "IfNotPresent"]),
    ("watchNamespaces: [Shop]", &["/watchNamespaces/0", "does not match"]),
    ("watchNamespaces: shop", &["/watchNamespaces", "want array"]),
    ("operator: {memoryLimit: lots}", &["/operator/memoryLimit", "does not match"]),
    ("operator: {listStrategy: whole}", &["/operator/listStrategy", "'paged-list'"]),
    ("operator: {namespaceQuota: 101}", &["/operator/namespaceQuota", "maximum"]),
    ("operator: {log: {format: xml}}", &["/operator/log/format", "'json'"]),
    ("rbac: {read: [{resource: '*'}]}", &["/rbac/read/0/resource", "does not match"]),
    ("rbac: {read: [{group: '*', resource: pods}]}", &["/rbac/read/0/group", "does not match"]),
    ("serviceAccount: {name: ''}", &["/serviceAccount/name", "minLength"]),
    ("serviceAccount: {token: {expirationSeconds: 60}}", &["/expirationSeconds", "minimum"]),
    ("metrics: {monitor: {kind: PodMonitor}}", &["/metrics/monitor", "'kind' not allowed"]),
    (
        "metrics: {prometheusRule: {runbookBaseUrl: 'wiki#page'}}",
        &["/metrics/prometheusRule/runbookBaseUrl", "match"],
    ),
    ("readApi: {limits: {maxWatches: 0}}", &["/readApi/limits/maxWatches", "minimum"]),
    ("readApi: {limits: {maxConnections: many}}", &["/readApi/limits/maxConnections", "maxLength"]),
    ("readApi: {limits: {agents: [shop/agent]}}", &["/readApi/limits/agents/0", "want object"]),
    ("readApi: {limits: {agents: [{name: a}]}}", &["/readApi/limits/agents/0", "'namespace'"]),
    ("podDisruptionBudget: {maxUnavailable: half}", &["/maxUnavailable", "does not match"]),
    ("resources: {limit: {memory: 1Gi}}", &["/resources", "'limit'"]),
    ("profiles: [{name: a}]", &["/profiles/0", "'spec'"]),
    ("profiles: [{name: a, spec: {targets: []}}]", &["/profiles/0/spec/targets", "minItems"]),
    (
        "profiles: [{name: a, spec: {targets: [{name: b, resource: pods, scop: {}}]}}]",
        &["/profiles/0/spec/targets/0", "'scop'"],
    ),
    ("readApi: {service: {type: ExternalName}}", &["/readApi/service/type", "'NodePort'"]),
    (
        "readApi: {service: {externalTrafficPolicy: Nearby}}",
        &["externalTrafficPolicy", "'Cluster'"],
    ),
    ("readApi: {service: {sessionAffinity: Cookie}}", &["/sessionAffinity", "'ClientIP'"]),
    ("readApi: {service: {trafficDistribution: Near}}", &["/trafficDistribution", "'PreferClose'"]),
    ("strategy: {type: OnDelete}", &["/strategy/type", "'Recreate'"]),
    ("strategy: {rollingUpdate: {maxSurge: one}}", &["/maxSurge", "does not match"]),
    ("clusterDomain: 'cluster local'", &["/clusterDomain", "does not match"]),
    ("extraArgs: --forward", &["/extraArgs", "want array"]),
    ("extraVolumes: [{emptyDir: {}}]", &["/extraVolumes/0", "'name'"]),
    ("extraVolumeMounts: [{name: a}]", &["/extraVolumeMounts/0", "'mountPath'"]),
    ("readApi: {auth: none}", &["/readApi/auth", "caller-token"]),
    ("readApi: {authorization: none}", &["/readApi/authorization", "shared-reviews"]),
    ("readApi: {port: 443}", &["/readApi/port", "minimum"]),
    ("readApi: {serveAggregatedGroups: [metrics]}", &["/serveAggregatedGroups/0", "match"]),
    ("readApi: {audiences: ['a,b']}", &["/readApi/audiences/0", "match"]),
    ("tls: {source: None}", &["/tls/source", "CertManager"]),
    ("tls: {names: ['a b']}", &["/tls/names/0", "does not match"]),
    ("tls: {names: [warm-.example]}", &["/tls/names/0", "does not match"]),
    ("tls: {days: 29}", &["/tls/days", "minimum"]),
    ("tls: {insecureSkipVerify: true}", &["/tls", "insecureSkipVerify"]),
    ("metrics: {tls: {insecureSkipVerify: true}}", &["/metrics/tls", "insecureSkipVerify"]),
    // Rejected by the templates.
    (
        "{watchNamespaces: [shop], readApi: {authorization: rbac}}",
        &["readApi.authorization", "ClusterRole"],
    ),
    (
        "readApi: {authorization: rbac, auth: caller-token}",
        &["readApi.authorization", "ClusterRole"],
    ),
    ("{watchNamespaces: [shop], readApi: {auth: delegated}}", &["readApi.auth", "caller-token"]),
    ("readApi: {audiences: [kubewarm], forward: true}", &["readApi.audiences", "forward"]),
    ("{watchNamespaces: [shop], readApi: {audiences: [kubewarm]}}", &["readApi.audiences"]),
    (
        "{watchNamespaces: [shop], readApi: {clientCA: {configMap: people}}}",
        &["readApi.clientCA", "caller-token"],
    ),
    (
        "readApi: {forward: true, service: {sessionAffinity: None}}",
        &["readApi.service.sessionAffinity", "set ClientIP"],
    ),
    ("readApi: {port: 9090}", &["readApi.port", "operator.adminPort"]),
    ("extraVolumes: [{name: tls, emptyDir: {}}]", &["extraVolumes[0].name", "another name"]),
    ("extraArgs: [--metrics-auth=none]", &["extraArgs[0]", "metrics.auth.enabled"]),
    ("extraArgs: [--context=a, --watch-namespaces, b]", &["extraArgs[1]", "watchNamespaces"]),
    ("extraArgs: [--operator-namespace=a]", &["extraArgs[0]", "set helm --namespace instead"]),
    ("extraEnv: [{name: KUBEWARM_FORWARD, value: t}]", &["extraEnv[0].name", "readApi.forward"]),
    ("tls: {source: Secret}", &["tls.secretName", "set the Secret's name"]),
    ("tls: {source: CertManager}", &["tls.issuer.name", "CertManager"]),
    ("{watchNamespaces: [shop], inject: {enabled: true}}", &["inject.enabled", "ClusterRole"]),
    (
        "{inject: {enabled: true}, tls: {source: Secret, secretName: own}}",
        &["inject.enabled", "tls.source"],
    ),
    ("inject: {policy: {enabled: true}}", &["inject.policy.enabled", "set inject.enabled"]),
    (
        "inject: {enabled: true, policy: {enabled: true}}",
        &["inject.policy.enabled", "readApi.forward"],
    ),
    ("tls: {names: ['*.example.com']}", &["tls.names[0]", "wildcard"]),
    ("tls: {names: [a.example, 10.0.0.256]}", &["tls.names[1]", "neither a DNS name"]),
    ("tls: {secretName: own}", &["tls.secretName", "leave the value empty"]),
    (
        "{watchNamespaces: [shop], profiles: [{name: a, spec: {targets: [{name: b, resource: pods}]}}]}",
        &["profiles[0].namespace", "\"kubewarm-system\"", "watchNamespaces"],
    ),
    (
        "{watchNamespaces: [shop], rbac: {read: [{resource: pods, namespaces: [shop, ops]}]}}",
        &["rbac.read[0].namespaces", "\"ops\"", "watchNamespaces"],
    ),
    (
        "profiles: [{name: a, spec: &s {targets: [{name: b, resource: pods}]}}, {name: a, spec: *s}]",
        &["profiles[1]", "kubewarm-system/a already"],
    ),
    ("rbac: {read: [{resource: secrets}]}", &["rbac.read[0].resource", "rbac.allowSecrets"]),
    ("rbac: {create: false, read: [{resource: pods}]}", &["rbac.read", "rbac.create=false"]),
    (
        "metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}",
        &["metrics.serviceMonitor.enabled", "metrics.service.enabled=true"],
    ),
    (
        "metrics: {renderMode: failIfMissing, podMonitor: {enabled: true}}",
        &["metrics.renderMode", "no PodMonitor"],
    ),
    (
        "{watchNamespaces: [shop], metrics: {serviceMonitor: {enabled: true}}}",
        &["metrics.serviceMonitor.enabled", "loopback alone", "networkPolicy.scrapers"],
    ),
    (
        "metrics: {podMonitor: {enabled: true}}",
        &["metrics.podMonitor.enabled", "metrics.auth.tokenSecret"],
    ),
    (
        "metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}",
        &["metrics.podMonitor.enabled", "scraped twice"],
    ),
    (
        "metrics: {auth: {enabled: false, readers: [{namespace: a, name: b}]}}",
        &["metrics.auth.readers", "metrics.auth.enabled=false"],
    ),
    (
        "{rbac: {create: false}, metrics: {auth: {readers: [{namespace: a, name: b}]}}}",
        &["metrics.auth.readers", "rbac.create=false"],
    ),
    ("metrics: {auth: {readers: [{name: b}]}}", &["/metrics/auth/readers/0", "'namespace'"]),
    (
        "metrics: {renderMode: failIfMissing, prometheusRule: {enabled: true}}",
        &["metrics.renderMode", "no PrometheusRule"],
    ),
];

fn refusal(helm: &Helm, values: &str) -> Result<String, Failure> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::fs::write(file.path(), values)?;
    match render(helm, &["--values", &file.path().to_string_lossy()]) {
        Ok(_) => Ok("accepted".to_owned()),
        Err(error) => Ok(error.to_string()),
    }
}

#[test]
fn the_namespace_of_the_control_plane_is_refused() -> Outcome {
    for helm in helms()? {
        let Err(message) = render(&helm, &["--namespace", "kube-system"]) else {
            panic!("{}: accepted", helm.name())
        };
        let message = message.to_string();
        assert!(message.contains("--namespace: kube-system"), "{}: {message}", helm.name());
    }
    Ok(())
}

#[test]
fn injection_by_label_is_refused_before_kubernetes_1_36() -> Outcome {
    let set = "inject.enabled=true,inject.policy.enabled=true,readApi.forward=true";
    for helm in helms()? {
        let Err(message) = render(&helm, &["--set", set, "--kube-version=1.35.9"]) else {
            panic!("{}: accepted", helm.name())
        };
        let message = message.to_string();
        let is_named = message.contains("inject.policy.enabled") && message.contains("v1.35.9");
        assert!(is_named, "{}: {message}", helm.name());
        render(&helm, &["--set", set, "--kube-version=1.36.0-rc.1"])?;
    }
    Ok(())
}

#[test]
fn wrong_values_are_refused_with_the_name_of_the_field() -> Outcome {
    let mut surprises = Vec::new();
    for helm in helms()? {
        for (values, words) in REFUSED {
            let message = refusal(&helm, values)?;
            if words.iter().any(|word| !message.contains(word)) {
                surprises.push(format!("{}: {values}: not {words:?}, but\n{message}", helm.name()));
            }
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n\n"));
    Ok(())
}

#[test]
fn kinds_that_the_cluster_lacks_are_not_rendered() -> Outcome {
    for (kind, set) in [
        ("PodMonitor", "metrics.podMonitor.enabled=true,metrics.auth.tokenSecret.name=scraper"),
        ("PrometheusRule", "metrics.prometheusRule.enabled=true"),
    ] {
        let set = ["--set", set];
        let api = format!("monitoring.coreos.com/v1/{kind}");
        for helm in helms()? {
            let rendered = render(&helm, &set)?;
            assert_eq!(rendered.of_kind(kind).count(), 0, "{kind}, {}", helm.name());
            let rendered = render(&helm, &[&set[..], &["--api-versions", &api]].concat())?;
            assert_eq!(rendered.of_kind(kind).count(), 1, "{kind}, {}", helm.name());
        }
    }
    Ok(())
}
