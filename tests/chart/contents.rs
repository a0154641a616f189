//! Tests the content of every rendered release, and the effect of values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{Failure, NAMESPACE, Outcome, chart, helms, surroundings};
use crate::render::{Rendered, Values, all_values, render, render_all};

/// Cluster-scoped kinds, whose objects have no namespace.
const OF_THE_CLUSTER: [&str; 7] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
const LABELS: [&str; 5] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// The kind, the namespace and the name of an object.
fn called(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text).join(" ")
}

/// Violations of the rules that each rendered release keeps, whatever its values are.
fn faults(Values { name, content, .. }: &Values, rendered: &Rendered) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for object in &rendered.objects {
        let called = called(object);
        let mut fault = |what: &str| faults.push(format!("{name}: {called} {what}"));
        if !seen.insert(called.clone()) {
            fault("is there twice");
        }
        let metadata = &object["metadata"];
        let kind = object["kind"].as_str().unwrap_or_default();
        // Objects of `extraObjects` are rendered unchanged.
        let is_extra = kind == "ConfigMap"
            && !["-ca", "-dashboards", "-rights"].iter().any(|end| called.ends_with(end));
        let has_namespace = metadata["namespace"].is_string();
        if !is_extra && OF_THE_CLUSTER.contains(&kind) == has_namespace {
            fault("has no namespace, or should have none");
        }
        if !is_extra && LABELS.iter().any(|label| !metadata["labels"][label].is_string()) {
            fault("lacks a label");
        }
        if metadata["name"].as_str().is_none_or(|name| name.len() > 63) {
            fault("has a name that is too long");
        }
        for rule in object["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            let is_granted = content.pointer("/rbac/allowSecrets") == Some(&json!(true));
            // The Secret of kubewarm's own certificate.
            let is_own =
                called.ends_with("-ca") && rule["resourceNames"] == json!([metadata["name"]]);
            let has_secrets = text.contains("\"secrets\"") && !is_granted && !is_own;
            if text.contains('*') || has_secrets {
                fault("grants too much");
            }
        }
        let is_wide = ["ClusterRole", "ClusterRoleBinding"].contains(&kind);
        if is_wide && content.get("watchNamespaces").is_some() {
            fault("is there although namespaces are named");
        }
    }
    faults.extend(pod_faults(rendered).into_iter().map(|fault| format!("{name}: {fault}")));
    faults
}

/// Violations in the pod template, and in selectors of pods.
fn pod_faults(rendered: &Rendered) -> Vec<String> {
    let Ok(deployment) = rendered.only("Deployment") else { return vec!["no Deployment".into()] };
    let mut faults = Vec::new();
    let template = &deployment["spec"]["template"];
    let expected = [
        ("/spec/automountServiceAccountToken", json!(false)),
        ("/spec/securityContext/runAsNonRoot", json!(true)),
        ("/spec/securityContext/seccompProfile/type", json!("RuntimeDefault")),
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(false)),
        ("/spec/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
        ("/spec/containers/0/securityContext/capabilities", json!({"drop": ["ALL"]})),
        ("/spec/containers/0/startupProbe/httpGet/path", json!("/livez")),
        ("/spec/containers/0/livenessProbe/httpGet/path", json!("/livez")),
        ("/spec/containers/0/readinessProbe/httpGet/path", json!("/readyz")),
        ("/spec/containers/0/ports/0", json!({"name": "admin", "containerPort": 9090})),
    ];
    for (pointer, value) in expected {
        if template.pointer(pointer) != Some(&value) {
            faults.push(format!("{pointer} of the pods is not {value}"));
        }
    }
    if template.pointer("/spec/containers/0/resources/limits/memory").is_none() {
        faults.push("the memory of the pods has no limit".to_owned());
    }
    let pod_labels = &deployment["spec"]["selector"]["matchLabels"];
    let mut selectors = vec![pod_labels];
    selectors.extend(rendered.of_kind("Service").map(|object| &object["spec"]["selector"]));
    for kind in ["PodDisruptionBudget", "PodMonitor"] {
        let objects = rendered.of_kind(kind);
        selectors.extend(objects.map(|object| &object["spec"]["selector"]["matchLabels"]));
    }
    let policies = rendered.of_kind("NetworkPolicy");
    selectors.extend(policies.map(|object| &object["spec"]["podSelector"]["matchLabels"]));
    for selector in selectors {
        let mut wanted = selector.as_object().into_iter().flatten();
        let labels = &template["metadata"]["labels"];
        if selector != pod_labels || wanted.any(|(key, value)| labels[key] != *value) {
            faults.push(format!("{selector} does not select the pods"));
        }
    }
    faults
}

/// The pod that the Deployment would create. Admission of pods does not check Deployments, so the
/// test submits this pod itself.
fn pod(rendered: &Rendered) -> Result<String, Failure> {
    let template = &rendered.only("Deployment")?["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": NAMESPACE, "labels": labels},
        "spec": template["spec"],
    });
    Ok(format!("---\n{pod}\n"))
}

#[test]
fn every_file_of_values_makes_objects_that_the_api_server_takes() -> Outcome {
    let ([three, four], cluster) = (helms()?, surroundings()?);
    let mut problems = Vec::new();
    for values in all_values()? {
        let more = ["--values", &values.path];
        let rendered = render_all(&four, &more)?;
        // Equal renderings also mean that no rendering contains a random certificate, which Argo CD
        // would apply at each sync.
        if render_all(&three, &more)?.objects != rendered.objects {
            problems.push(format!("{}: Helm 3 and Helm 4 do not agree", values.name));
        }
        problems.extend(faults(&values, &rendered));
        let path = cluster.folder().join(&values.name);
        std::fs::write(&path, format!("{}{}", rendered.text, pod(&rendered)?))?;
        let args = ["apply", "--dry-run=server", "--validate=strict", "-f"];
        if let Err(error) = cluster.run(args.iter().copied().chain([&*path.to_string_lossy()])) {
            problems.push(format!("{}: {error}", values.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn helm_lint_reports_nothing() -> Outcome {
    let files = all_values()?;
    for helm in helms()? {
        let mut command = helm.command();
        command.args(["lint", "--strict", "--quiet", &chart()]);
        // Only the default values, because in Helm the last of several files wins. Another test
        // renders each file alone.
        for values in files.iter().filter(|values| values.name.starts_with("default")) {
            command.args(["--values", &values.path]);
        }
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.trim().is_empty(), "{}: {printed}", helm.name());
    }
    Ok(())
}

/// Each line has the values file, the kind, the JSON pointer into the kind's only object, and the
/// expected JSON. `ENV/` is an environment variable of the container.
const EXPECTED: &str = r#"
default Deployment /spec/replicas 1
default Deployment /spec/strategy/rollingUpdate/maxUnavailable 0
default Deployment POD/terminationGracePeriodSeconds 30
default Deployment POD/topologySpreadConstraints null
default Deployment POD/containers/0/image "localhost/kubewarm:VERSION"
default Deployment POD/volumes/0/projected/sources/0/serviceAccountToken {"path": "token", "expirationSeconds": 3600}
default Service/kubewarm-metrics /spec/publishNotReadyAddresses true
default Service/kubewarm /spec/ports [{"name": "api", "port": 443, "targetPort": "api", "appProtocol": "https"}]
default Service/kubewarm /spec/publishNotReadyAddresses null
default Service/kubewarm /spec/type "ClusterIP"
default Service/kubewarm /spec/sessionAffinity "None"
default Service/kubewarm /spec/trafficDistribution null
default Service/kubewarm /spec/externalTrafficPolicy null
default Secret /type "Opaque"
default Secret /data null
default ConfigMap /data null
default Deployment POD/containers/0/ports/1 {"name": "api", "containerPort": 8443}
default Deployment ENV/KUBEWARM_METRICS_AUTH "delegated"
default Deployment ENV/KUBEWARM_ADMIN_TLS "true"
default Deployment ENV/KUBEWARM_CERTIFICATE_SECRET "kubewarm-ca"
default Deployment ENV/KUBEWARM_CERTIFICATE_SERVICES "kubewarm,kubewarm-metrics,kubewarm-peers"
default Deployment ENV/KUBEWARM_CERTIFICATE_LIFETIME "720h"
default Deployment ENV/KUBEWARM_CLUSTER_DOMAIN null
default Deployment ENV/KUBEWARM_AUTH "delegated"
default Deployment ENV/KUBEWARM_MAX_WATCHES null
default Deployment ENV/KUBEWARM_ADDRESS_CONNECTIONS null
default Deployment ENV/KUBEWARM_AGENTS null
default Deployment POD/volumes/1/projected/sources/1/configMap/name "kubewarm-ca"
default Deployment POD/containers/0/livenessProbe/httpGet {"path": "/livez", "port": "admin", "scheme": "HTTPS"}
minimal Deployment ENV/KUBEWARM_API_ADDR ""
minimal Deployment POD/volumes/1 null
read-api Deployment POD/containers/0/ports/1 {"name": "api", "containerPort": 6443}
read-api Deployment ENV/KUBEWARM_API_ADDR "[::]:6443"
read-api Deployment ENV/KUBEWARM_FORWARD "true"
read-api Deployment ENV/KUBEWARM_AUTHORIZATION "shared-reviews"
read-api Deployment ENV/KUBEWARM_SERVE_AGGREGATED_GROUPS "metrics.k8s.io"
read-api Service/kubewarm /spec/ports/0/port 8443
read-api Service/kubewarm /spec/type "LoadBalancer"
read-api Service/kubewarm /spec/externalTrafficPolicy "Local"
read-api Service/kubewarm /spec/sessionAffinity "ClientIP"
read-api Service/kubewarm /spec/trafficDistribution "PreferClose"
read-api Service/kubewarm /metadata/labels/example.com~1team "platform"
read-api Service/kubewarm /metadata/labels/app.kubernetes.io~1name "kubewarm"
read-api Deployment POD/volumes/1/secret/secretName "serving"
read-api NetworkPolicy /spec/ingress/1/from/0/namespaceSelector {"matchLabels": {"reads": "kubewarm"}}
pod-monitor Deployment POD/containers/0/livenessProbe/httpGet {"path": "/livez", "port": "admin"}
pod-monitor Deployment ENV/KUBEWARM_METRICS_AUTH "none"
service-monitor ServiceMonitor /spec/endpoints/0/scheme "https"
service-monitor ServiceMonitor /spec/endpoints/0/tlsConfig {"ca": {"configMap": {"name": "kubewarm-ca", "key": "ca.crt"}}, "serverName": "kubewarm.kubewarm-system.svc"}
cert-manager Certificate /spec/issuerRef {"name": "internal", "kind": "ClusterIssuer", "group": "cert-manager.io"}
cert-manager Certificate /spec/ipAddresses ["127.0.0.1", "::1", "192.0.2.7"]
cert-manager Certificate /spec/dnsNames/2 "kubewarm.kubewarm-system.svc"
cert-manager Certificate /spec/dnsNames/3 "kubewarm.kubewarm-system.svc.cluster.example.com"
cert-manager PodMonitor /spec/podMetricsEndpoints/0/tlsConfig/serverName "warm.example.com"
watch-namespaces Deployment ENV/KUBEWARM_METRICS_AUTH "loopback"
watch-namespaces-scrapers Deployment ENV/KUBEWARM_METRICS_AUTH "none"
watch-namespaces-scrapers ServiceMonitor /spec/endpoints/0/bearerTokenFile null
watch-namespaces-scrapers NetworkPolicy /spec/ingress/0/from/0/namespaceSelector {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
watch-namespaces Deployment ENV/KUBEWARM_API_ADDR "[::]:8443"
watch-namespaces Deployment ENV/KUBEWARM_AUTH "caller-token"
default CustomResourceDefinition /metadata/annotations/helm.sh~1resource-policy "keep"
replicas Service/kubewarm /spec/sessionAffinity "ClientIP"
replicas Deployment POD/terminationGracePeriodSeconds 42
replicas Deployment /spec/strategy {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "100%"}}
replicas Deployment POD/topologySpreadConstraints/1/topologyKey "topology.kubernetes.io/zone"
replicas Deployment POD/topologySpreadConstraints/1/whenUnsatisfiable "ScheduleAnyway"
replicas Deployment ENV/KUBEWARM_NAMESPACE_QUOTA "50"
replicas Deployment ENV/KUBEWARM_MEMORY_LIMIT "160Mi"
replicas Deployment ENV/KUBEWARM_SHUTDOWN_DELAY "15s"
replicas Deployment ENV/KUBEWARM_MAX_WATCHES "1000000"
replicas Deployment ENV/KUBEWARM_MAX_CONNECTIONS null
replicas Deployment ENV/KUBEWARM_USER_QUOTA "50"
replicas Deployment ENV/KUBEWARM_AGENTS "monitoring/node-agent,kube-system/cni.agent"
replicas Deployment ENV/KUBEWARM_LIST_STRATEGY "paged-list"
replicas Deployment ENV/KUBEWARM_LIST_PAGE_SIZE "1000"
replicas Deployment ENV/KUBEWARM_WATCH_LIST_TIMEOUT "60s"
replicas PodDisruptionBudget /spec/maxUnavailable "50%"
replicas PodDisruptionBudget /spec/unhealthyPodEvictionPolicy "AlwaysAllow"
watch-namespaces Deployment ENV/KUBEWARM_WATCH_NAMESPACES "shop,orders"
image Deployment POD/containers/0/image "mirror.example.com:5000/hub/team/kubewarm:1.2.3@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
image Deployment POD/containers/0/imagePullPolicy "Always"
image Deployment POD/imagePullSecrets [{"name": "registry"}]
scheduling Deployment POD/topologySpreadConstraints/1 null
scheduling Service/kubewarm /spec/sessionAffinity "None"
scheduling Deployment POD/hostUsers false
scheduling Deployment /spec/strategy {"type": "Recreate"}
openshift Deployment POD/securityContext/runAsUser null
network-policy Deployment ENV/HTTPS_PROXY "http://proxy.example.com:3128"
network-policy NetworkPolicy /spec/policyTypes ["Ingress", "Egress"]
network-policy NetworkPolicy /spec/egress/0/ports [{"protocol": "TCP", "port": 16443}]
network-policy NetworkPolicy /spec/egress/0/to/1/ipBlock/cidr "2001:db8::/32"
network-policy NetworkPolicy /spec/egress/1/ports/0 {"protocol": "UDP", "port": 53}
network-policy NetworkPolicy /spec/egress/2/ports/0/port 3128
network-policy NetworkPolicy /spec/egress/3/ports/0/port "api"
network-policy NetworkPolicy /spec/egress/4 null
service-monitor ServiceMonitor /metadata/labels/release "prometheus"
service-monitor ServiceMonitor /spec/endpoints/0/port "admin"
service-monitor ServiceMonitor /spec/sampleLimit 2000000
service-monitor ServiceMonitor /spec/selector/matchLabels/app.kubernetes.io~1component "metrics"
pod-monitor PodMonitor /spec/podMetricsEndpoints/0/path "/metrics"
pod-monitor PodMonitor /metadata/labels/release "prometheus"
pod-monitor PodMonitor /spec/sampleLimit null
service-monitor ServiceMonitor /spec/endpoints/0/bearerTokenFile "/var/run/secrets/kubernetes.io/serviceaccount/token"
metrics-auth Deployment ENV/KUBEWARM_AUDIENCE "kubewarm"
metrics-token PodMonitor /spec/podMetricsEndpoints/0/authorization {"type": "Bearer", "credentials": {"name": "scraper", "key": "scraper.token"}}
metrics-token PodMonitor /spec/podMetricsEndpoints/0/bearerTokenFile null
rules-dashboard PrometheusRule /metadata/labels/release "prometheus"
rules-dashboard ConfigMap/kubewarm-dashboards /metadata/labels/grafana_dashboard "yes"
rules-dashboard ConfigMap/kubewarm-dashboards /metadata/annotations {"grafana_folder": "Platform"}
flow-schema FlowSchema/kubewarm /spec/rules/0/subjects/0/serviceAccount {"name": "kubewarm", "namespace": "kubewarm-system"}
flow-schema FlowSchema/kubewarm /spec/matchingPrecedence 5000
flow-schema FlowSchema/kubewarm-reviews /spec/rules/0/subjects/0/serviceAccount {"name": "kubewarm", "namespace": "kubewarm-system"}
flow-schema FlowSchema/kubewarm-reviews /spec/matchingPrecedence 4999
flow-schema FlowSchema/kubewarm-reviews /spec/priorityLevelConfiguration/name "kubewarm"
flow-schema FlowSchema/kubewarm-reviews /spec/rules/0/resourceRules/1/resources ["subjectaccessreviews"]
flow-schema PriorityLevelConfiguration /spec/limited/nominalConcurrencyShares 20
autoscaled VerticalPodAutoscaler /spec/targetRef {"apiVersion": "apps/v1", "kind": "Deployment", "name": "kubewarm"}
autoscaled VerticalPodAutoscaler /spec/updatePolicy/updateMode "Off"
autoscaled VerticalPodAutoscaler /spec/resourcePolicy/containerPolicies/0/maxAllowed {"cpu": 2, "memory": "1Gi"}
autoscaled Deployment POD/dnsPolicy "None"
autoscaled Deployment POD/dnsConfig/nameservers ["192.0.2.53"]
autoscaled Deployment /metadata/annotations {"reloader.stakater.com/auto": "true"}
extra Deployment POD/containers/0/args ["run", "--kubeconfig", "/etc/proxy/config"]
extra Deployment ENV/SSL_CERT_FILE "/etc/proxy/ca.crt"
extra Deployment POD/volumes/1 {"name": "proxy", "configMap": {"name": "proxy-ca", "optional": true}}
extra Deployment POD/containers/0/volumeMounts/1 {"name": "proxy", "mountPath": "/etc/proxy", "readOnly": true}
names Deployment /metadata/name "team-a-warm"
names Deployment POD/serviceAccountName "warm"
names Deployment /spec/template/metadata/labels/example.com~1team "a"
names ServiceAccount /automountServiceAccountToken false
inject Service/kubewarm-api /spec/clusterIP "10.0.0.98"
inject Service/kubewarm-api-failopen /spec/clusterIP "10.0.0.99"
inject Service/kubewarm-api-failopen /metadata/annotations/helm.sh~1resource-policy "keep"
inject Secret /metadata/annotations/helm.sh~1resource-policy "keep"
inject Deployment ENV/KUBEWARM_INJECT "true"
"#;

/// The value of an environment variable of the container.
fn variable_of<'a>(deployment: &'a Value, name: &str) -> Option<&'a Value> {
    let variables = deployment.pointer("/spec/template/spec/containers/0/env")?.as_array()?;
    variables.iter().find(|variable| variable["name"] == name)?.get("value")
}

#[test]
fn values_reach_the_objects_they_are_for() -> Outcome {
    let [_, helm] = helms()?;
    let mut releases = BTreeMap::new();
    for values in all_values()? {
        let name = values.name.trim_end_matches("-values.yaml").to_owned();
        releases.insert(name, render(&helm, &["--values", &values.path])?);
    }
    for line in EXPECTED.lines().filter(|line| !line.is_empty()) {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let [file, kind, pointer, value] = words[..] else { return Err(line.into()) };
        let pointer = pointer.replacen("POD", "/spec/template/spec", 1);
        let variable = pointer.strip_prefix("ENV/");
        let value = value.replacen("VERSION", env!("CARGO_PKG_VERSION"), 1);
        let release = releases.get(file).ok_or(line)?;
        let object = release.only(kind)?;
        let field = match variable {
            Some(name) => variable_of(object, name),
            None => object.pointer(&pointer),
        };
        let field = field.cloned().unwrap_or_default();
        assert_eq!(field, serde_json::from_str::<Value>(&value)?, "{line}");
    }
    Ok(())
}

#[test]
fn replicas_copy_stores_only_with_a_common_ca_and_token_reviews() -> Outcome {
    let [_, helm] = helms()?;
    for (values, can_copy) in [
        ("readApi.port=8443", true),
        ("readApi.copyStores=false", false),
        ("readApi.enabled=false", false),
        ("readApi.auth=caller-token", false),
        ("watchNamespaces={shop}", false),
        ("tls.source=Secret,tls.secretName=own", true),
    ] {
        let rendered = render(&helm, &["--set", values])?;
        let mut services = rendered.of_kind("Service");
        let has_service = services.any(|service| service["metadata"]["name"] == "kubewarm-peers");
        let deployment = rendered.only("Deployment")?;
        let address = variable_of(deployment, "KUBEWARM_PEER_ADDRESS");
        let text = deployment.to_string();
        let expected = json!("kubewarm-peers:8443");
        assert_eq!(address, Some(&expected).filter(|_| can_copy), "{values}");
        let found = (has_service, text.contains("kubewarm-peer\""), text.contains("/peers"));
        assert_eq!(found, (can_copy, can_copy, can_copy), "{values}");
    }
    Ok(())
}

#[test]
fn disabled_features_render_no_objects() -> Outcome {
    let [_, helm] = helms()?;
    let rendered = render(&helm, &[])?;
    let mut kinds: Vec<_> =
        rendered.objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    kinds.dedup();
    let expected = [
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(kinds, expected);
    let minimal = format!("{}/ci/minimal-values.yaml", chart());
    let rendered = render(&helm, &["--values", &minimal])?;
    assert_eq!(rendered.objects.len(), 1, "{}", rendered.text);
    Ok(())
}
