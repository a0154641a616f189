//! Tests of the settings that are read from Deployments and flags.

use super::{super::fixtures::parse, *};
use http::{Request, Response};
use kube::client::Body;
use kubewarm_api::model::ListStrategy;
use serde_json::{Value, json};
use std::{convert::Infallible, time::Duration};

fn deployment(container: &Value) -> Value {
    let pod = json!({"serviceAccountName": "warm", "containers": [container]});
    json!({"spec": {"selector": {}, "template": {"spec": pod}}})
}

fn deployments(container: &Value) -> [Deployment; 1] {
    [serde_json::from_value(deployment(container)).unwrap()]
}

fn settings(container: &Value) -> Result<OperatorInstallation, String> {
    OperatorInstallation::of(&deployments(container), &parse("").unwrap())
}

#[test]
fn settings_come_from_the_operators_container() {
    let with = |env: Value, args: Value| {
        let container = json!({"name": "kubewarm", "env": env, "args": args});
        assert_eq!(settings(&container).unwrap().account, "warm");
        features(&deployments(&container)).unwrap()
    };
    let (api, metrics) = ("KUBEWARM_API_ADDR", "KUBEWARM_METRICS_AUTH");
    assert_eq!(with(json!([]), json!(["run"])), [OperatorFeature::ReadApi]);
    assert_eq!(
        with(json!([{"name": api, "value": "[::]:8443"}]), json!([])),
        [OperatorFeature::ReadApi]
    );
    assert_eq!(with(json!([{"name": api}]), json!(["run"])), []);
    assert_eq!(with(json!([]), json!(["run", "--api-addr="])), []);
    assert_eq!(with(json!([]), json!(["run", "--api-addr", ""])), []);
    assert_eq!(
        with(json!([{"name": api}]), json!(["--api-addr=[::]:8443"])),
        [OperatorFeature::ReadApi]
    );
    let both = [OperatorFeature::MetricsAuth, OperatorFeature::ReadApi];
    assert_eq!(with(json!([{"name": metrics, "value": "delegated"}]), json!([])), both);
    assert_eq!(with(json!([]), json!(["--metrics-auth"])), both);
    assert_eq!(with(json!([]), json!(["--metrics-auth", "--api-addr=a"])), both);
    let rules = [OperatorFeature::ReadApi, OperatorFeature::RbacAuthorization];
    assert_eq!(with(json!([]), json!(["--authorization=rbac"])), rules);
    assert_eq!(with(json!([{"name": api}]), json!(["--authorization=rbac"])), []);
    let loopback = json!([{"name": metrics, "value": "loopback"}]);
    assert_eq!(with(loopback, json!([])), [OperatorFeature::ReadApi]);
}

#[test]
fn namespaces_are_read_from_arguments_and_environment() {
    let watched = |container: Value| settings(&container).unwrap().watched;
    let name = "kubewarm";
    assert_eq!(watched(json!({"name": name})), [""; 0]);
    for args in [json!(["--watch-namespaces=a,b"]), json!(["--watch-namespaces", "a,b"])] {
        assert_eq!(watched(json!({"name": name, "args": args})), ["a", "b"]);
    }
    let env = json!([{"name": "KUBEWARM_WATCH_NAMESPACES", "value": "c"}]);
    assert_eq!(watched(json!({"name": name, "env": env})), ["c"]);
    let deployments = deployments(&json!({"name": name, "env": env}));
    let args = parse::<OperatorArgs>("--watch-namespaces d").unwrap();
    assert_eq!(
        OperatorInstallation::of(&deployments, &args).unwrap().watched,
        ["d"],
        "flags come before the Deployment"
    );
}

#[test]
fn list_settings_are_read_from_arguments_and_environment() {
    let lists = |args: Value, env: Value| {
        lists(&deployments(&json!({"name": "kubewarm", "args": args, "env": env}))).unwrap()
    };
    assert_eq!(lists(json!(["run"]), json!([])), ListPolicy::default());
    let args = json!(["--list-strategy=paged-list", "--watch-list-timeout", "10s"]);
    let env = json!([{"name": "KUBEWARM_LIST_PAGE_SIZE", "value": "50"}]);
    let expected = ListPolicy {
        strategy: ListStrategy::PagedList,
        page_size: 50,
        watch_list_timeout: Duration::from_secs(10),
    };
    assert_eq!(lists(args, env), expected);
}

#[test]
fn client_certificates_need_a_file_with_cas() {
    let accepts = |args: Value| {
        let container = json!({"name": "kubewarm", "args": args});
        accepts_certificates(&deployments(&container)[0]).unwrap()
    };
    assert!(accepts(json!(["run", "--client-ca-file=/etc/ca.crt"])));
    assert!(!accepts(json!(["run"])) && !accepts(json!(["--client-ca-file="])));
}

#[test]
fn differing_deployments_have_no_settings() {
    let args = parse::<OperatorArgs>("").unwrap();
    let both = |names: [&str; 2]| {
        let both = names.map(|name| {
            let args = json!(["--watch-namespaces", name]);
            deployments(&json!({"name": "kubewarm", "args": args}))
        });
        OperatorInstallation::of(&both.concat(), &args)
    };
    assert_eq!(OperatorInstallation::of(&[], &args), Ok(OperatorInstallation::of_flags(&args)));
    assert!(both(["a", "b"]).is_err());
    assert!(both(["a", "a"]).is_ok());
    let empty = serde_json::from_value(json!({"spec": {"selector": {}, "template": {}}}));
    assert!(OperatorInstallation::of(&[empty.unwrap()], &args).is_err());
}

#[test]
fn settings_that_only_the_running_container_knows_are_errors_with_the_reason() {
    let name = "KUBEWARM_WATCH_NAMESPACES";
    let key = json!({"configMapKeyRef": {"name": "a", "key": "b"}});
    let value = |value: &str| json!({"name": name, "value": value});
    for (field, content, expected) in [
        ("env", json!([{"name": name, "valueFrom": key}]), "comes from another object"),
        ("env", json!([value("a"), value("b")]), "KUBEWARM_WATCH_NAMESPACES is set more than"),
        ("env", json!([value("$(OTHER)")]), "refers to another variable"),
        ("env", json!([value("a,B")]), "--watch-namespaces has the value \"B\""),
        ("envFrom", json!([{"configMapRef": {"name": "a"}}]), "can come from another object"),
        (
            "args",
            json!(["--watch-namespaces=a", "--watch-namespaces", "b"]),
            "--watch-namespaces is set more than once",
        ),
        (
            "command",
            json!(["sh", "-c", "exec kubewarm run --watch-namespaces=a"]),
            "a command for a shell",
        ),
    ] {
        let mut container = json!({"name": "kubewarm"});
        container[field] = content;
        let reason = settings(&container).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }
    let prefixed = json!([{"prefix": "PROXY_", "configMapRef": {"name": "a"}}]);
    let settings = settings(&json!({"name": "kubewarm", "envFrom": prefixed}));
    assert_eq!(settings.unwrap().watched, [""; 0]);
}

#[test]
fn an_unreadable_flag_affects_only_its_own_setting() {
    let args = json!(["--api-addr=a", "--api-addr", "b", "--list-page-size=many"]);
    let container = json!({"name": "kubewarm", "args": args});
    assert!(settings(&container).is_ok());
    let deployments = deployments(&container);
    assert_eq!(features(&deployments), Err("--api-addr is set more than once".to_owned()));
    assert_eq!(lists(&deployments), Err("--list-page-size has the value \"many\"".to_owned()));
}

#[test]
fn a_sidecar_is_not_mistaken_for_the_operator() {
    let args = parse::<OperatorArgs>("").unwrap();
    let settings = |name: &str| {
        let mut deployment =
            deployment(&json!({"name": "proxy", "args": ["--watch-namespaces=a"]}));
        let containers = &mut deployment["spec"]["template"]["spec"]["containers"];
        let operator = json!({"name": name, "args": ["run", "--watch-namespaces=b"]});
        containers.as_array_mut().unwrap().push(operator);
        OperatorInstallation::of(&[serde_json::from_value(deployment).unwrap()], &args)
    };
    assert_eq!(settings("kubewarm").unwrap().watched, ["b"]);
    assert!(settings("other").unwrap_err().contains("no container kubewarm"));
}

/// A fake API server with the operator's Deployment in namespace `ops`. It returns 403 for the
/// Deployments of namespace `hidden` and panics for other paths.
fn api_server() -> Client {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let (code, body) = match path.as_str() {
            "/apis/apps/v1/namespaces/ops/deployments" => {
                let args = json!(["run", "--watch-namespaces=ops"]);
                let operator = deployment(&json!({"name": "kubewarm", "args": args}));
                (200_u16, json!({"metadata": {}, "items": [operator]}))
            }
            "/apis/apps/v1/namespaces/hidden/deployments" => (403, json!({})),
            _ => panic!("unexpected request for {path}"),
        };
        let response =
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        Ok::<_, Infallible>(response.unwrap())
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn only_the_deployment_in_the_operators_namespace_is_read() {
    let args = parse::<OperatorArgs>("--operator-namespace ops").unwrap();
    let (settings, _) = OperatorInstallation::discover(&api_server(), &args).await.unwrap();
    assert_eq!(settings.subject().to_string(), "system:serviceaccount:ops:warm");
    assert_eq!(settings.watched, ["ops"]);
    let args = parse::<OperatorArgs>("--operator-namespace hidden").unwrap();
    let result = OperatorInstallation::discover(&api_server(), &args).await.unwrap();
    assert_eq!(result, (OperatorInstallation::of_flags(&args), Vec::new()));
}
