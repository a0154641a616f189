//! Helm, and an API server for tests of the chart.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use testbed::{ControlPlane, Helm, eventually};

/// The reason why a test failed.
pub(crate) type Failure = Box<dyn Error>;

/// The result of a test.
pub(crate) type Outcome = Result<(), Failure>;

/// The time limit for what takes seconds on an idle machine. Tests run while other tests and
/// compilers use all cores.
pub(crate) const SOON: Duration = Duration::from_mins(10);

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "kubewarm-system";

/// Objects to which the chart's objects refer: namespaces, and ServiceAccounts for pods. The
/// release's namespace admits only pods of the restricted standard.
const SURROUNDINGS: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: kubewarm-system
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: orders}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: kubewarm, namespace: kubewarm-system}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: existing, namespace: kubewarm-system}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: warm, namespace: kubewarm-system}}
";

/// Kinds of other projects for which the chart has objects. For each: the kind, its group and the
/// schema of its spec.
const OTHERS: [(&str, &str, &str); 5] = [
    ("Certificate", "cert-manager.io", CERTIFICATE),
    ("ServiceMonitor", "monitoring.coreos.com", ANYTHING),
    ("PodMonitor", "monitoring.coreos.com", ANYTHING),
    ("PrometheusRule", "monitoring.coreos.com", RULES),
    ("VerticalPodAutoscaler", "autoscaling.k8s.io", AUTOSCALED),
];

/// The fields of cert-manager's schema that the chart sets.
const CERTIFICATE: &str = "{type: object, required: [secretName, issuerRef], properties: {
              secretName: {type: string}, dnsNames: {type: array, items: {type: string}},
              ipAddresses: {type: array, items: {type: string}},
              usages: {type: array, items: {type: string, enum: [server auth, digital signature]}},
              privateKey: {type: object, properties: {
                rotationPolicy: {type: string, enum: [Never, Always]}}},
              issuerRef: {type: object, required: [name], properties: {
                name: {type: string}, kind: {type: string}, group: {type: string}}}}}";

const ANYTHING: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

/// The fields of the Prometheus operator's schema that a rule can set.
const RULES: &str = "{type: object, properties: {groups: {type: array, x-kubernetes-list-type: map,
              x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {
                name: {type: string, minLength: 1}, interval: {type: string}, limit: {type: integer},
                rules: {type: array, items: {type: object, required: [expr], properties: {
                  record: {type: string}, alert: {type: string},
                  expr: {x-kubernetes-int-or-string: true},
                  for: {type: string, pattern: '^([0-9]+(ms|[smhdwy]))+$'},
                  labels: {type: object, additionalProperties: {type: string}},
                  annotations: {type: object, additionalProperties: {type: string}}}}}}}}}}";

/// The schema of a `VerticalPodAutoscaler`'s spec, with the modes and the fields of a policy that
/// the chart sets.
const AUTOSCALED: &str = "{type: object, required: [targetRef], properties: {
              targetRef: {type: object, properties: {
                apiVersion: {type: string}, kind: {type: string}, name: {type: string}}},
              updatePolicy: {type: object, properties: {updateMode: {type: string,
                enum: ['Off', Initial, Recreate, InPlaceOrRecreate, Auto]}}},
              resourcePolicy: {type: object, properties: {containerPolicies: {type: array,
                items: {type: object, properties: {containerName: {type: string},
                  controlledValues: {type: string, enum: [RequestsAndLimits, RequestsOnly]},
                  minAllowed: {type: object, additionalProperties: {x-kubernetes-int-or-string: true}},
                  maxAllowed: {type: object, additionalProperties:
                    {x-kubernetes-int-or-string: true}}}}}}}}}";

/// The CRD of one of these kinds.
fn definition(kind: &str, group: &str, spec: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {singular}s.{group}
  # The API server requires this annotation for CRDs in Kubernetes' own groups.
  annotations: {{api-approved.kubernetes.io: unapproved}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: {kind}, plural: {singular}s, singular: {singular}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {spec}
"
    )
}

/// The path of a file in the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The path of the chart.
pub(crate) fn chart() -> String {
    file("charts/kubewarm").to_string_lossy().into_owned()
}

/// Helm 3 and Helm 4.
pub(crate) fn helms() -> Result<[Helm; 2], Failure> {
    Ok(Helm::locate_or_build(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm"))?)
}

/// An API server that has the objects to which the chart's objects refer. Tests send dry-run
/// requests to it.
pub(crate) fn surroundings() -> Result<&'static ControlPlane, Failure> {
    static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let start = || {
        let cluster = ControlPlane::builder().start()?;
        let crd = file("crds/kubewarm.io_cacheprofiles.yaml");
        cluster.run(["create", "-f", &crd.to_string_lossy()])?;
        cluster.apply(SURROUNDINGS)?;
        for (kind, group, spec) in OTHERS {
            cluster.apply(&definition(kind, group, spec))?;
        }
        let others = [
            "certificates",
            "servicemonitors",
            "podmonitors",
            "prometheusrules",
            "verticalpodautoscalers",
        ];
        for kind in ["cprof"].iter().chain(&others) {
            eventually(SOON, || Ok(cluster.run(["get", kind, "-A"])?))?;
        }
        Ok::<_, Failure>(cluster)
    };
    let shared = SHARED.get_or_init(|| start().map_err(|error| error.to_string()));
    shared.as_ref().map_err(|error| error.as_str().into())
}
