//! An injected text has exactly the additions, and its undo gives the same bytes.

use super::{address, inject, undo};
use crate::{DocumentError, Injection, ManifestDocument, WorkloadKind, inject_object, undo_object};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const DEPLOYMENT: &str = "\
# A shop
apiVersion: apps/v1
kind: Deployment # the kind
metadata:
  name: shop
spec:
  template:
    metadata:
      # labels first
      labels: {app: shop}
    spec:
      # who it is
      serviceAccountName: shop
      containers:
      # the first
      - name: app # our own
        image: shop
        env:
        # a level
        - name: LEVEL
          value: high
      - image: side
        name: side
";

/// Documents as people, Helm, kustomize and kubectl write them.
fn documents() -> Vec<String> {
    let flow = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: app, image: a}]}}\n";
    let empty = "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: a\nspec:\n  jobTemplate:\n    spec:\n      \
                 template:\n        metadata:\n          annotations:\n        spec:\n          hostAliases: []\n          \
                 volumes:\n          containers:\n            - name: app\n              image: a\n              env: \
                 []\n              volumeMounts:\n";
    let json = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "app", "env": [{"name": "A"}]}],
                 "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["other"]}]},
    }}});
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n- {}",
        DEPLOYMENT.split_once('\n').unwrap().1.replace('\n', "\n  ").trim_end()
    );
    let keyless = "spec:\n  template:\n    spec:\n      # all\n      containers:\n      - args:\n        - a\n        \
                   command: |\n          b\n\n        name: app\napiVersion: apps/v1\nkind: DaemonSet";
    vec![
        DEPLOYMENT.to_owned(),
        DEPLOYMENT.replace('\n', "\r\n"),
        DEPLOYMENT.trim_end().to_owned(),
        flow.to_owned(),
        empty.to_owned(),
        json.to_string(),
        serde_json::to_string_pretty(&json).unwrap(),
        list,
        keyless.to_owned(),
        format!(
            "---\n# Source: a\nkind: Service\napiVersion: v1\n---\n{DEPLOYMENT}---\n{flow}...\n---\n# end\n"
        ),
    ]
}

#[test]
fn an_undone_document_has_the_same_bytes() {
    for document in documents() {
        let injected = inject(&document);
        assert!(injected.contains("kubewarm.io/inject"), "{injected}");
        assert_eq!(undo(&injected), document, "{injected}");
    }
}

/// `count` items as `kubectl get --output yaml` prints them, with the list's kind after them.
fn list(count: usize) -> String {
    let item = DEPLOYMENT.split_once('\n').unwrap().1.replace('\n', "\n  ");
    let script = "  - name: end\n        args:\n        - |\n          echo\n";
    let item = format!("# the next\n- {}      {script}", item.trim_end_matches(' '));
    format!("apiVersion: v1\nitems:\n{}kind: List\nmetadata: {{}}\n", item.repeat(count))
}

/// Each edit parses one item. A parse of the whole list for each edit took minutes.
#[test]
fn a_list_of_hundreds_of_workloads_is_edited_item_by_item() {
    let began = Instant::now();
    for text in [list(500), list(3).replace('\n', "\r\n"), list(1)] {
        let injected = inject(&text);
        let count = text.matches("kind: Deployment").count();
        assert_eq!(injected.matches("kubewarm.io/inject").count(), count);
        let parsed: Value = serde_saphyr::from_str(&injected).unwrap();
        assert_eq!(parsed["items"].as_array().unwrap().len(), count);
        assert_eq!(parsed["kind"], "List");
        assert_eq!(undo(&injected), text);
    }
    assert!(began.elapsed() < Duration::from_mins(2), "{:?}", began.elapsed());
}

#[test]
fn an_injection_adds_lines_and_changes_none() {
    let injected = inject(DEPLOYMENT);
    let mut lines = injected.lines();
    for line in DEPLOYMENT.lines() {
        assert!(lines.any(|other| other == line), "{line:?} in order in\n{injected}");
    }
    for added in [
        r#"      hostAliases: [{"hostnames":["kubernetes","kubernetes.default","kubernetes.default.svc","kubernetes.default.svc.cluster.local"],"ip":"10.96.0.99"}"#,
        r#"        - {"name":"KUBERNETES_SERVICE_HOST","value":"kubernetes.default.svc"}"#,
        r#"        env: [{"name":"KUBERNETES_SERVICE_HOST""#,
        r#"        volumeMounts: [{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kubewarm-api-access","readOnly":true}]"#,
        r#"      annotations: {"kubewarm.io/inject":"{"#,
        r#""expirationSeconds":3600"#,
    ] {
        assert!(injected.contains(added), "{added} in\n{injected}");
    }
}

/// Another program can write the injected objects again, as Helm and kustomize do.
#[test]
fn an_injection_can_be_undone_in_another_format() {
    for document in documents() {
        for injected in ManifestDocument::parse_stream(&inject(&document)).unwrap() {
            let object: Value = serde_saphyr::from_str(&injected.text).unwrap();
            let text = serde_saphyr::to_string(&object).unwrap();
            if injected.workloads.is_empty() {
                continue;
            }
            let undone = undo(&text);
            assert!(!undone.contains("kubewarm"), "{undone}");
        }
    }
}

#[test]
fn an_object_is_injected_and_restored() {
    let kind = WorkloadKind::Deployment;
    let object: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
    let (injected, _) = inject_object(&object, kind, &address());
    let text: Value = serde_saphyr::from_str(&inject(DEPLOYMENT)).unwrap();
    assert_eq!(injected, text);
    let injection = Injection::of_object(&injected, kind).unwrap().unwrap();
    assert_eq!(injection.ips, address().ips);
    assert_eq!(undo_object(&injected, kind), Ok(Some(object.clone())));
    assert_eq!(undo_object(&object, kind), Ok(None));
}

#[test]
fn variables_that_are_right_already_stay() {
    let same =
        DEPLOYMENT.replace("name: LEVEL", "name: KUBERNETES_SERVICE_PORT").replace("high", "'443'");
    let injected = inject(&same);
    let container = injected.split("# our own").nth(1).unwrap().split("side").next().unwrap();
    assert_eq!(container.matches("KUBERNETES_SERVICE_PORT\"").count(), 0, "{container}");
    assert_eq!(undo(&injected), same);
}

#[test]
fn later_additions_of_users_stay_and_changes_are_named() {
    let kind = WorkloadKind::Deployment;
    let object: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
    let (injected, _) = inject_object(&object, kind, &address());
    let spec = "/spec/template/spec";
    let mut added = injected.clone();
    let more = |value: &mut Value, pointer: &str, item: Value| {
        let list = value.pointer_mut(&format!("{spec}{pointer}")).unwrap();
        list.as_array_mut().unwrap().insert(0, item);
    };
    more(&mut added, "/volumes", json!({"name": "mine"}));
    more(&mut added, "/containers", json!({"name": "new"}));
    added["spec"]["template"]["metadata"]["annotations"]["mine"] = "yes".into();
    let undone = undo_object(&added, kind).unwrap().unwrap();
    assert_eq!(undone.pointer("/spec/template/spec/volumes"), Some(&json!([{"name": "mine"}])));
    assert_eq!(undone["spec"]["template"]["metadata"]["annotations"], json!({"mine": "yes"}));
    assert!(!undone.to_string().contains("KUBERNETES_SERVICE"), "{undone}");

    for (pointer, field) in [
        ("/hostAliases/0/ip", "spec.template.spec.hostAliases"),
        ("/containers/0/env/0/value", "spec.template.spec.containers[app].env"),
        ("/volumes/0/projected/defaultMode", "spec.template.spec.volumes"),
    ] {
        let mut changed = injected.clone();
        *changed.pointer_mut(&format!("{spec}{pointer}")).unwrap() = json!("other");
        let error = undo_object(&changed, kind).unwrap_err();
        assert_eq!(error.field, field);
    }
    // An annotation that names another field for removal.
    for change in [
        json!({"at": "spec.template.spec", "set": "serviceAccountName", "value": "shop"}),
        json!({"at": "", "set": "kind", "value": "Deployment"}),
        json!({"at": "metadata", "set": "env", "value": [{"name": "KUBERNETES_SERVICE_HOST"}]}),
        json!({"at": "spec.template.spec.containers[app].env", "value": {"name": "LEVEL", "value": "high"}}),
        json!({"at": "spec.template.spec", "set": "volumes", "value": []}),
    ] {
        let mut forged = injected.clone();
        let annotation = &mut forged["spec"]["template"]["metadata"]["annotations"];
        let text = json!({"version": "1", "ips": [], "changes": [change]}).to_string();
        annotation["kubewarm.io/inject"] = text.into();
        let error = undo_object(&forged, kind).unwrap_err();
        assert!(error.field.ends_with("kubewarm.io/inject"), "{change}");
    }
    let mut unreadable = injected;
    unreadable["spec"]["template"]["metadata"]["annotations"]["kubewarm.io/inject"] = "no".into();
    let error = undo_object(&unreadable, kind).unwrap_err().to_string();
    assert!(error.contains("spec.template.metadata.annotations.kubewarm.io/inject"), "{error}");
}

#[test]
fn other_documents_stay_whatever_they_contain() {
    let bomb = ["a: &a [1,1,1,1,1,1,1,1]\n".to_owned()].into_iter().chain((1..8_u8).map(|level| {
        let [before, name] = [level - 1, level].map(|level| char::from(b'a' + level));
        format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 8].join(","))
    }));
    let bomb: String = bomb.collect();
    let large = format!("kind: ConfigMap\ndata: {{{}}}\n", "a: 1, ".repeat(200_000));
    for other in [bomb, large, "# only\n".to_owned(), "- 1\n- kind: Pod\n".to_owned()] {
        let stream = format!("{other}---\n{DEPLOYMENT}---\n{other}");
        let injected = inject(&stream);
        assert!(injected.starts_with(&other) && injected.ends_with(&other));
        assert_eq!(undo(&injected), stream);
    }
}

/// An edit of a shared value would change two workloads.
#[test]
fn yaml_that_cannot_be_edited_exactly_is_refused() {
    let shared = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - &first\n    name: a\n    image: b\n  - *first\n";
    let explicit = DEPLOYMENT.replace("        image: shop\n", "        volumeMounts: ~\n");
    let nested = "apiVersion: v1\nkind: List\nitems:\n- - a\n";
    let alias = "apiVersion: v1\nkind: List\nitems:\n- &pod\n  apiVersion: v1\n  kind: Pod\n  spec: {containers: [{name: a}]}\n- *pod\n";
    for text in [shared, &explicit, alias] {
        let mut documents = ManifestDocument::parse_stream(text).unwrap();
        let error = documents[0].inject(0, &address()).unwrap_err();
        assert_eq!(documents[0].text, *text);
        assert!(matches!(error, DocumentError::Inexact | DocumentError::Text(_)), "{error}");
    }
    assert!(ManifestDocument::parse_stream(nested).unwrap()[0].workloads.is_empty());
    assert!(ManifestDocument::parse_stream("a: [").is_err());
    assert!(ManifestDocument::parse_stream("").unwrap().is_empty());
    assert_eq!(inject("# nothing\n"), "# nothing\n");
    let mixed = DEPLOYMENT.replacen("name: shop\n", "name: shop\r\n", 1);
    assert_eq!(undo(&inject(&mixed)), mixed);
}
