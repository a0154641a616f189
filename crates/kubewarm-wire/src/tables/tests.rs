//! Tests the rows of kinds that do not occur in a control plane without nodes.
//! `tests/e2e/cases/reads/tables.rs` compares the rows of all other kinds with the API server's
//! rows.

use super::*;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

const NOW: &str = "2026-01-01T01:00:00Z";

fn cells(group: &str, version: &str, resource: &str, object: &Value) -> Value {
    let printer = TablePrinter::built_in(group, version, resource);
    let row = printer.row("v1", "Kind", object.to_string().as_bytes(), NOW.parse().unwrap());
    let row: Value = serde_json::from_str(&format!("{{{}}}", row.members)).unwrap();
    row["cells"].clone()
}

#[test]
fn every_row_has_a_cell_for_each_column() {
    assert_eq!(COLUMNS.len(), printers::ALL.len() + 1, "columns.json lists other kinds");
    for known in printers::ALL {
        let columns: Value = serde_json::from_str(COLUMNS[known.name].get()).unwrap();
        let columns = columns.as_array().unwrap().len();
        for object in [json!({}), json!({"metadata": null, "spec": [], "status": "x"})] {
            let input = PrintInput { object: JsonView(Some(&object)), now: NOW.parse().unwrap() };
            let cells = (known.print)(&input).len();
            // For `IPAddress` objects, a row of the API server has one value more than the kind has
            // columns.
            let more = usize::from(known.name.starts_with("ipaddresses."));
            assert_eq!(cells, columns + more, "{}", known.name);
        }
    }
}

#[test]
fn kinds_without_a_printer_have_a_name_and_a_time() {
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let group = "rbac.authorization.k8s.io";
    assert_eq!(cells(group, "v1", "roles", &object), json!(["a", "2026-01-01T00:00:00Z"]));
    assert_eq!(cells("example.com", "v1", "things", &object), json!(["a", "60m"]));
    assert_eq!(
        cells("autoscaling", "v1", "horizontalpodautoscalers", &object),
        json!(["a", "60m"])
    );
    for (group, resource) in [(group, "roles"), ("example.com", "things")] {
        let columns = TablePrinter::built_in(group, "v1", resource).columns();
        let columns: Value = serde_json::from_str(&columns).unwrap();
        assert!(
            columns[1]["description"].as_str().is_some_and(|text| text.len() > 50),
            "{columns}"
        );
    }
}

/// Returns the values of the columns `ready`, `status` and `restarts` in the row of a pod.
fn pod(spec: &Value, status: &Value, is_going: bool) -> String {
    let mut object = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
    if is_going {
        object["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    let cells = cells("", "v1", "pods", &object);
    let text = |at: usize| cells[at].as_str().unwrap().to_owned();
    format!("{} {} {}", text(1), text(2), text(3))
}

fn ended(code: i64, more: &Value) -> Value {
    let mut ended = json!({"exitCode": code});
    ended.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"terminated": ended})
}

#[test]
fn the_status_of_a_pod_combines_the_states_of_its_containers() {
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let init = json!({"containers": [{"name": "a"}], "initContainers": [
        {"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}]});
    let running = json!({"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}});
    let container = |state: &Value| json!({"name": "b", "restartCount": 3, "state": state});
    let crashed = json!({"name": "b", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}});
    let none = json!({});
    let done = ended(0, &json!({"reason": "Completed"}));
    let is_ready = json!([{"type": "Ready", "status": "True"}]);
    let all = |containers: &[&Value]| json!({"phase": "Running", "containerStatuses": containers});
    let with = |mut status: Value, key: &str, value: &Value| {
        status[key] = value.clone();
        status
    };
    let inits =
        |containers: &[Value]| json!({"phase": "Pending", "initContainerStatuses": containers});
    let sidecar = json!({"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}});
    let is_initialized = json!([{"type": "Initialized", "status": "True"}]);
    for (spec, status, expected) in [
        (&two, json!({"phase": "Pending"}), "0/2 Pending 0"),
        (&two, json!({"phase": "Failed", "reason": "Evicted"}), "0/2 Evicted 0"),
        (
            &two,
            json!({"phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/2 SchedulingGated 0",
        ),
        (&two, all(&[&running, &crashed]), "1/2 CrashLoopBackOff 4 (5m ago)"),
        (&two, all(&[&running, &container(&ended(2, &none))]), "1/2 ExitCode:2 3"),
        (&two, all(&[&running, &container(&ended(2, &json!({"signal": 9})))]), "1/2 Signal:9 3"),
        (&two, all(&[&running, &container(&ended(1, &json!({"reason": "Error"})))]), "1/2 Error 3"),
        (&two, all(&[&running, &container(&done)]), "1/2 NotReady 3"),
        (&two, with(all(&[&running, &container(&done)]), "conditions", &is_ready), "1/2 Running 3"),
        (
            &two,
            all(&[&container(&done), &container(&ended(1, &json!({"reason": "Error"})))]),
            "0/2 Error 6",
        ),
        (&two, all(&[&container(&done), &container(&done)]), "0/2 Completed 6"),
        (
            &init,
            inits(&[container(&json!({"waiting": {"reason": "PodInitializing"}}))]),
            "0/2 Init:0/3 3",
        ),
        (
            &init,
            inits(&[container(&json!({"waiting": {"reason": "ErrImagePull"}}))]),
            "0/2 Init:ErrImagePull 3",
        ),
        (&init, inits(&[container(&ended(3, &none))]), "0/2 Init:ExitCode:3 3"),
        (&init, inits(&[container(&ended(3, &json!({"signal": 9})))]), "0/2 Init:Signal:9 3"),
        (&init, inits(&[container(&done), sidecar.clone(), container(&none)]), "1/2 Init:2/3 8"),
        (
            &init,
            with(
                all(&[&running]),
                "initContainerStatuses",
                &json!([container(&done), sidecar, container(&done)]),
            ),
            "2/2 Running 2",
        ),
        (
            &init,
            with(
                with(all(&[&running]), "initContainerStatuses", &json!([container(&none)])),
                "conditions",
                &is_initialized,
            ),
            "1/2 Init:0/3 0",
        ),
    ] {
        assert_eq!(pod(spec, &status, false), expected, "{spec} {status}");
    }
    assert_eq!(pod(&two, &all(&[&running]), true), "1/2 Terminating 0");
    assert_eq!(pod(&two, &json!({"phase": "Succeeded"}), true), "0/2 Succeeded 0");
    assert_eq!(
        pod(&two, &json!({"phase": "Running", "reason": "NodeLost"}), true),
        "0/2 Unknown 0"
    );
}

#[test]
fn the_row_of_a_completed_pod_has_a_condition() {
    let printer = TablePrinter::built_in("", "v1", "pods");
    let row = |phase: &str| {
        let object = json!({"status": {"phase": phase}}).to_string();
        printer.row("v1", "Pod", object.as_bytes(), NOW.parse().unwrap()).members
    };
    assert!(row("Failed").contains(r#""conditions":[{"#) && row("Succeeded").contains("Completed"));
    assert!(!row("Running").contains("conditions"));
}

#[test]
fn an_event_of_either_group_shows_when_it_was_last_seen() {
    let old = json!({
        "metadata": {"name": "e"}, "type": "Warning", "reason": "Bad", "message": " text\n",
        "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:59:00Z", "count": 5,
    });
    let expected =
        json!(["60s", "Warning", "Bad", "pod/p", "", "kubelet, n1", "text", "60m", 5, "e"]);
    assert_eq!(cells("", "v1", "events", &old), expected);
    let new = json!({
        "metadata": {"name": "e"}, "type": "Warning", "reason": "Bad", "note": "text",
        "regarding": {"kind": "Pod", "name": "p"}, "reportingController": "kubelet",
        "reportingInstance": "n1", "eventTime": "2026-01-01T00:00:00.000001Z",
        "series": {"count": 5, "lastObservedTime": "2026-01-01T00:59:00.000000Z"},
    });
    let new = cells("events.k8s.io", "v1", "events", &new);
    assert_eq!((&new[0], &new[5], &new[8]), (&json!("60s"), &json!("kubelet, n1"), &json!(5)));
    assert_eq!(new[7], "59m");
}

#[test]
fn autoscalers_name_two_metrics_and_count_the_others() {
    let resource = |name: &str, current: Value| {
        let wanted = json!({"type": "Resource", "resource":
            {"name": name, "target": {"averageUtilization": 80}}});
        (wanted, json!({"type": "Resource", "resource": {"current": current}}))
    };
    let (cpu, of_cpu) = resource("cpu", json!({"averageUtilization": 7}));
    let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
    let of_pods = json!({"type": "Pods", "pods": {"current": {"averageValue": "1500m"}}});
    let external = json!({"type": "External", "external": {"target": {"value": "3"}}});
    let text = |wanted: &[&Value], current: &[&Value]| {
        let object = json!({"spec": {"metrics": wanted}, "status": {"currentMetrics": current}});
        cells("autoscaling", "v2", "horizontalpodautoscalers", &object)[2].clone()
    };
    assert_eq!(text(&[], &[]), "<none>");
    assert_eq!(text(&[&cpu], &[]), "cpu: <unknown>/80%");
    assert_eq!(text(&[&cpu, &pods], &[&of_cpu, &of_pods]), "cpu: 7%/80%, 1500m/10");
    assert_eq!(
        text(&[&cpu, &pods, &external], &[&of_cpu]),
        "cpu: 7%/80%, <unknown>/10 + 1 more..."
    );
    assert_eq!(text(&[&external], &[]), "<unknown>/3");
}

/// kubectl prints the digits of a number cell as they are in the row.
#[test]
fn rows_have_the_digits_of_the_api_servers_number_cells() {
    let column = CustomColumn::new(&CustomResourceColumnDefinition {
        type_: "number".to_owned(),
        json_path: ".spec.n".to_owned(),
        ..CustomResourceColumnDefinition::default()
    });
    let printer = TablePrinter::custom([column.unwrap()].into());
    for (written, expected) in [
        ("1764290000000000000", "1764290000000000000"),
        ("1.76429e18", "1764290000000000000"),
        ("1e15", "1000000000000000"),
        ("12345678901234567890", "12345678901234567000"),
        ("1e21", "1e+21"),
        ("0.0000001", "1e-7"),
        ("3.0", "3"),
    ] {
        let object = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"n":{written}}}}}"#);
        let row = printer.row("v1", "Gadget", object.as_bytes(), NOW.parse().unwrap());
        assert_eq!(row.members, format!(r#""cells":["a",{expected}]"#), "{written}");
    }
}

#[test]
fn every_object_has_a_row_and_a_cell_that_cannot_be_computed_is_empty() {
    let column = |name: &str, path: &str| {
        CustomColumn::new(&CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: "string".to_owned(),
            json_path: path.to_owned(),
            ..CustomResourceColumnDefinition::default()
        })
        .unwrap()
    };
    let columns =
        [column("Text", ".spec.text"), column("Deep", ".spec.x"), column("All", ".spec..b")];
    let custom = TablePrinter::custom(columns.into());
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let object = |x: &str| {
        format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"a":{{"b":2}},"text":"t","x":{x}}}}}"#)
    };
    for (stored, cells, is_complete) in [
        (object("[[1]]"), json!(["a", "t", "[[1]]", "2"]), true),
        (object(r#""\ud800""#), json!(["a", "t", "\u{fffd}", "2"]), true),
        (object(&deep(125)), json!(["a", "t", deep(125), "2"]), true),
        (object(&deep(126)), json!(["a", "t", null, null]), false),
        (object(&deep(100_000)), json!(["a", "t", null, null]), false),
        (object("tru"), json!(["a", null, null, null]), false),
    ] {
        let row = custom.row("v1", "Gadget", stored.as_bytes(), NOW.parse().unwrap());
        let shown: Value = serde_json::from_str(&format!("{{{}}}", row.members)).unwrap();
        assert_eq!(
            (&shown["cells"], !row.has_uncomputed_cell),
            (&cells, is_complete),
            "{stored:.60}"
        );
    }
    // No column of a built-in kind shows a part of an object that the parser can omit (deep values,
    // large numbers). So every cell is computed.
    let revision = r#"{"metadata":{"name":"r"},"data":{"s":"\ud800","n":1e999},"revision":3}"#;
    let printer = TablePrinter::built_in("apps", "v1", "controllerrevisions");
    let row = printer.row("v1", "ControllerRevision", revision.as_bytes(), NOW.parse().unwrap());
    assert!(row.members.starts_with(r#""cells":["r","\u003cnone\u003e",3,"#), "{row:?}");
    assert!(!row.has_uncomputed_cell);
}

#[test]
fn the_columns_of_a_row_share_a_budget() {
    let column = |path: &str| {
        CustomColumn::new(&CustomResourceColumnDefinition {
            type_: "string".to_owned(),
            json_path: path.to_owned(),
            ..CustomResourceColumnDefinition::default()
        })
        .unwrap()
    };
    let now = NOW.parse().unwrap();
    let text = "x".repeat(64 << 10);
    for deep in ["1".to_owned(), "[".repeat(200) + &"]".repeat(200)] {
        let object =
            format!(r#"{{"metadata":{{"name":"a"}},"text":"{text}","spec":{{"x":{deep}}}}}"#);
        for (count, is_complete) in [(9, true), (2_000, false)] {
            let columns: Vec<_> = (0..count).map(|_| column(".text")).collect();
            let row = TablePrinter::custom(columns.into()).row("v1", "A", object.as_bytes(), now);
            assert!(row.members.len() < 2 << 20, "{}", row.members.len());
            assert!(row.members.starts_with(r#""cells":["a","xx"#), "{:.30}", row.members);
            assert_eq!(row.has_uncomputed_cell, !is_complete, "{count}");
        }
    }
}
