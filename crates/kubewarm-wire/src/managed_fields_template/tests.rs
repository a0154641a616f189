use super::*;
use crate::protobuf::{message_of_kind, write_bytes, write_number};
use proptest::prelude::*;

const UID: &str = "3a0e4ec5-5a1c-4b3c-8d6f-0242ac120002";

/// Returns the managedFields of a pod in JSON: the entries of its controller and of its kubelet.
fn fields(time: &str, ip: &str) -> String {
    let owner = format!(r#"{{"f:ownerReferences":{{"k:{{\"uid\":\"{UID}\"}}":{{}}}}}}"#);
    let status = format!(r#"{{"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{ip}\"}}":{{"f:ip":{{}}}}}}}}"#);
    format!(
        r#"[{{"manager":"a","time":"{time}","fieldsV1":{{"f:metadata":{owner}}}}},{{"manager":"kubelet","time":"{time}","fieldsV1":{{"f:status":{status}}},"subresource":"status"}}]"#
    )
}

fn json(name: &str, fields: &str) -> Vec<u8> {
    format!(r#"{{"metadata":{{"name":"{name}","managedFields":{fields}}},"spec":{{"a":1}}}}"#)
        .into_bytes()
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    write(&mut message);
    message
}

/// Returns an entry of managedFields in protobuf.
fn entry(manager: &str, seconds: u64, fields: &str) -> Vec<u8> {
    message(|out| {
        write_bytes(1, manager.as_bytes(), out);
        write_bytes(4, &message(|out| write_number(1, seconds, out)), out);
        write_bytes(7, &message(|out| write_bytes(1, fields.as_bytes(), out)), out);
    })
}

/// Returns an object in protobuf with these fields of its metadata after the name.
fn protobuf(name: &str, metadata: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let metadata = message(|out| {
        write_bytes(1, name.as_bytes(), out);
        for (number, value) in metadata {
            write_bytes(*number, value, out);
        }
    });
    message(|out| {
        write_bytes(1, &metadata, out);
        write_bytes(2, b"spec", out);
    })
}

fn pod(name: &str, seconds: u64, ip: &str) -> Vec<u8> {
    let owner = format!(r#"{{"f:ownerReferences":{{"k:{{\"uid\":\"{UID}\"}}":{{}}}}}}"#);
    let status = format!(r#"{{"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{ip}\"}}":{{"f:ip":{{}}}}}}}}"#);
    let entries = [entry("a", seconds, &owner), entry("kubelet", seconds + 9, &status)];
    protobuf(name, &entries.map(|entry| (17, entry)))
}

fn encoding() -> ObjectEncoding {
    ObjectEncoding::Protobuf(message_of_kind("v1", "Pod").unwrap())
}

fn body(bytes: &[u8]) -> [ObjectBody<'_>; 2] {
    [ObjectBody::json(bytes), ObjectBody { encoding: encoding(), bytes }]
}

/// Splits and joins an object. Returns the template and the reduced body.
fn split(body: ObjectBody<'_>) -> Option<(ManagedFieldsTemplate, Vec<u8>)> {
    let (mut reduced, mut joined) = (b"left over".to_vec(), b"left over".to_vec());
    let template = ManagedFieldsTemplate::split(body, &mut reduced)?;
    assert_eq!(template.join(&reduced, &mut joined), Some(()));
    assert_eq!(joined, body.bytes);
    assert_eq!(reduced.len() + template.removed(), joined.len());
    Some((template, reduced))
}

#[test]
fn pods_with_other_times_and_ips_have_one_template() {
    let json = |time, ip| json("web-1", &fields(time, ip));
    let [a, b] = [json("2026-01-01T00:00:00Z", "10.1.2.3"), json("2027-01-01T00:00:00Z", "::1")];
    let [first, second] = [&a, &b].map(|bytes| split(ObjectBody::json(bytes)).unwrap());
    assert_eq!(first.0, second.0);
    let contains = |bytes: &[u8], part: &str| memmem::find(bytes, part.as_bytes()).is_some();
    for value in ["2027-01-01T00:00:00Z", "::1", UID] {
        assert!(contains(&second.1, value) && !contains(&second.0.text, value));
    }
    assert!(contains(&second.0.text, "kubelet") && !contains(&second.1, "kubelet"));

    // Longer IPs change the lengths of three nested messages, but the pods still share one
    // template: it computes the lengths from the IPs.
    let ips = ["10.1.2.3", "10.100.200.30", "fd00:10:244:ffff:ffff:ffff:ffff:ffff"];
    let pods = ips.map(|ip| pod("web-1", 1_790_000_000, ip));
    let templates = pods.each_ref().map(|pod| split(body(pod)[1]).unwrap());
    assert!(templates.iter().all(|(template, _)| *template == templates[0].0));
    assert!(templates[1].1.len() < pods[1].len() - 100);
}

#[test]
fn objects_without_usable_managed_fields_are_whole() {
    for fields in ["[]", "null", "{}", r#"[{"manager":"a"}]"#] {
        assert!(split(ObjectBody::json(&json("a", fields))).is_none(), "{fields}");
    }
    assert!(split(ObjectBody::json(br#"{"metadata":{"name":"a"}}"#)).is_none());
    for metadata in [&[][..], &[(17, Vec::new())], &[(17, entry("a", 1, "{}"))]] {
        assert!(split(body(&protobuf("a", metadata))[1]).is_none());
    }
    // Only the managedFields of the object itself count, not a field of the same name in its spec.
    let other = format!(r#"{{"spec":{{"managedFields":{}}}}}"#, fields("", ""));
    assert!(split(ObjectBody::json(other.as_bytes())).is_none());
}

#[test]
fn unusual_managed_fields_are_joined_unchanged() {
    let long = format!(r#"{{"k:{{\"uid\":\"{}\"}}":{{}}}}"#, "a".repeat(MAX_VALUE_BYTES + 1));
    let many: String = (0..99)
        .fold(String::new(), |many, ip| many + &format!(r#""k:{{\"ip\":\"::{ip}\"}}":{{}},"#));
    let twice = format!(r#"{},"managedFields":{}"#, fields("", "::1"), fields("", "::2"));
    for fields in [&long, &many, &twice] {
        let fields = if fields == &twice { twice.clone() } else { format!("[{{{fields}}}]") };
        assert!(split(ObjectBody::json(&json("a", &fields))).is_some(), "{fields}");
    }
    let entries = [&long, &many].map(|fields| (17, entry("a", 1, fields)));
    let [first, second] = entries.clone();
    // Another field stands between the entries, so only the first entry is in the template.
    let apart = protobuf("a", &[first, (16, b"x".to_vec()), second]);
    for object in [&protobuf("a", &entries), &apart] {
        assert!(split(body(object)[1]).is_some());
    }
}

#[test]
fn longer_varints_than_necessary_are_not_joined() {
    let mut entry = entry("a", 1, &fields("", "::1"));
    assert!(split(body(&protobuf("a", &[(17, entry.clone())]))[1]).is_some());
    // Adds a field whose length 0 takes two bytes, although one byte is enough.
    entry.extend([0x12, 0x80, 0x00]);
    let object = protobuf("a", &[(17, entry)]);
    let (mut reduced, mut joined) = (Vec::new(), Vec::new());
    let template = ManagedFieldsTemplate::split(body(&object)[1], &mut reduced).unwrap();
    assert!(template.join(&reduced, &mut joined).is_none() || joined != object);
}

proptest! {
    #[test]
    fn every_pod_is_joined_unchanged(
        name in "[a-z]{0,200}", seconds: u64, text in "[0-9a-f.:T-]{0,140}", other in ".{0,40}",
    ) {
        let object = pod(&name, seconds, &text);
        let joined = split(body(&object)[1]).map(|(template, _)| template);
        prop_assert!(joined.is_some());
        let quoted = serde_json::to_string(&other).unwrap();
        let object = json(&name, &fields(&text, quoted.trim_matches('"')));
        prop_assert!(split(ObjectBody::json(&object)).is_some());
    }

    #[test]
    fn damaged_bytes_cause_no_panic(
        at in 0..400_usize, byte: u8, length in 0..600_usize, bytes: Vec<u8>,
    ) {
        let (mut into, mut reduced) = (Vec::new(), Vec::new());
        for mut object in [pod("web-1", 1_790_000_000, "10.0.0.1"), json("a", &fields("", "::1"))] {
            let whole = body(&object).map(|body| ManagedFieldsTemplate::split(body, &mut reduced));
            for template in whole.iter().flatten() {
                let _ = template.join(&bytes, &mut into);
                reduced.truncate(length);
                let _ = template.join(&reduced, &mut into);
            }
            let at = at % object.len();
            object[at] = byte;
            object.truncate(length);
            for body in body(&object).into_iter().chain(body(&bytes)) {
                if let Some(template) = ManagedFieldsTemplate::split(body, &mut reduced) {
                    let _ = template.join(&reduced, &mut into);
                }
            }
        }
    }
}
