//! Files of the chart that are generated from other files, with Helm's syntax added.

use kube::CustomResourceExt as _;
use kubewarm_api::{
    manifests::{self, HEADER, OperatorFeature},
    v1alpha1::CacheProfile,
};
use serde_json::{Value, json};

const POLICY: &str = include_str!("../../../deploy/account-policy.yaml");
const INJECT_POLICY: &str = include_str!("../../../deploy/inject-policy.yaml");
/// Before it are the objects that the chart names by its release.
const POLICY_START: &str =
    "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\n";
const LABELS: &str = "  labels:
    {{- include \"kubewarm.labels\" . | nindent 4 }}
";
const KEEP: &str = "  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
";

/// The CRD as a template of the chart.
pub(crate) fn crd() -> String {
    let crd = manifests::render_crd().expect("the CRD serializes");
    let crd = crd.strip_prefix(HEADER).expect("a generated file begins so");
    let name = "  name: cacheprofiles.kubewarm.io\n";
    template(".Values.crds.enabled", crd, name, &format!("{name}{LABELS}{KEEP}"))
}

/// `deploy/account-policy.yaml` as a template of the chart.
pub(crate) fn account_policy() -> String {
    let name = "  name: kubewarm-accounts\nspec:\n";
    let with_labels = format!("  name: kubewarm-accounts\n{LABELS}spec:\n");
    template(".Values.accountPolicy.enabled", POLICY, name, &with_labels)
}

/// The admission policy in `deploy/inject-policy.yaml` as a template of the chart. Its name is
/// fixed, because two releases must not inject the same pods.
pub(crate) fn inject_policy() -> String {
    let (_, policy) = INJECT_POLICY.split_once(POLICY_START).expect("it has a policy");
    let policy = format!("{}{policy}", POLICY_START.trim_start_matches("---\n"));
    let policy = policy.replace("kubewarm-system", "\0");
    let name = "  name: kubewarm-inject\nspec:\n";
    let with_labels = format!("  name: kubewarm-inject\n{LABELS}spec:\n");
    template(".Values.inject.policy.enabled", &policy, name, &with_labels)
        .replace('\0', "{{ .Release.Namespace }}")
}

/// A template that renders `text` if `condition` holds, with each `place` replaced by `instead`.
fn template(condition: &str, text: &str, place: &str, instead: &str) -> String {
    assert!(!text.contains("{{"), "Helm would take a part of it for a template");
    assert!(text.contains(place), "{place} is not there");
    let header = HEADER.trim_start_matches("# ").trim_end();
    let text = text.replace(place, instead);
    format!("{{{{- /* {header} */}}}}\n{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// The operator's rules and the CRD's versions.
pub(crate) fn operator() -> String {
    let rules = |watched: &[String], kind: &str, name: &str| {
        let more: &[OperatorFeature] = if watched.is_empty() {
            &[
                OperatorFeature::MetricsAuth,
                OperatorFeature::ReadApi,
                OperatorFeature::RbacAuthorization,
                OperatorFeature::Inject,
                OperatorFeature::InjectPolicy,
            ]
        } else {
            &[]
        };
        let text =
            manifests::render_operator("kubewarm-system", watched, more).expect("it is YAML");
        let all: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        let of_kind = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        all.iter().find(of_kind).expect("there is one")["rules"].clone()
    };
    let some = ["some".to_owned()];
    let home = rules(&[], "Role", "kubewarm");
    assert_eq!(rules(&some, "Role", "kubewarm"), home, "with and without --watch-namespaces");
    let versions = CacheProfile::crd().spec.versions;
    let all = json!({
        "cluster": rules(&[], "ClusterRole", "kubewarm"),
        "watched": rules(&some, "Role", "kubewarm:operator"),
        "home": home,
        "metricsAuth": rules(&[], "ClusterRole", "kubewarm:metrics-auth"),
        "readApi": rules(&[], "ClusterRole", "kubewarm:read-api"),
        "rbacAuthorization": rules(&[], "ClusterRole", "kubewarm:rbac-authorization"),
        "inject": rules(&[], "ClusterRole", "kubewarm:inject"),
        "injectPolicy": rules(&[], "Role", "kubewarm-inject-policy"),
        "injectHome": rules(&[], "Role", "kubewarm-inject"),
        "injectDefault": rules(&[], "Role", "kubewarm-apiserver-endpoints"),
        "versions": versions.iter().map(|version| &version.name).collect::<Vec<_>>(),
    });
    let text = serde_saphyr::to_string(&all).expect("it serializes");
    let head = "\
# What kubewarm needs for the profiles of all namespaces (`cluster`) or in each of watchNamespaces
# (`watched`), where it lives (`home`), to tell apart who reads metrics (`metricsAuth`), and who reads what
# is warm (`readApi`), by RBAC rules (`rbacAuthorization`), and to serve injected pods (`inject`, `injectHome`, and `injectDefault`
# in the namespace default); and the versions that the CRD has.
";
    format!("{HEADER}{head}{text}")
}
