use super::{
    json_view::{JsonView, PrintInput},
    network::marked,
};
use serde_json::Value;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn volumes(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let claim = spec.at("claimRef");
    let claim = if claim.is_set() {
        format!("{}/{}", claim.at("namespace").text(), claim.at("name").text())
    } else {
        String::new()
    };
    vec![
        object.name(),
        size(spec.at("capacity")).into(),
        modes(spec.at("accessModes")).into(),
        spec.at("persistentVolumeReclaimPolicy").text().into(),
        phase(object).into(),
        claim.into(),
        class(object).into(),
        spec.at("volumeAttributesClassName").given_or(UNSET).into(),
        object.at("status.reason").text().into(),
        object.age(),
        spec.at("volumeMode").given_or(UNSET).into(),
    ]
}

pub(super) fn claims(object: &PrintInput<'_>) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let volume = spec.at("volumeName").text();
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (size(status.at("capacity")), modes(status.at("accessModes")))
    };
    vec![
        object.name(),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(object).into(),
        spec.at("volumeAttributesClassName").given_or(UNSET).into(),
        object.age(),
        spec.at("volumeMode").given_or(UNSET).into(),
    ]
}

fn phase<'a>(object: &PrintInput<'a>) -> &'a str {
    if object.is_going() { "Terminating" } else { object.at("status.phase").text() }
}

fn class<'a>(object: &PrintInput<'a>) -> &'a str {
    let class = object.at("spec.storageClassName");
    object.annotation(CLASS).given_or(class.text())
}

fn size(value: JsonView<'_>) -> String {
    let size = value.field("storage");
    if size.is_set() { size.written() } else { "0".to_owned() }
}

fn modes(value: JsonView<'_>) -> String {
    let has = |mode: &str| value.items().any(|item| item.text() == mode);
    let short = MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

pub(super) fn classes(object: &PrintInput<'_>) -> Vec<Value> {
    let marks = ["", "beta."].map(|at| format!("storageclass.{at}kubernetes.io/is-default-class"));
    let is_default = marks.iter().any(|mark| object.annotation(mark).text() == "true");
    vec![
        marked(object, is_default),
        object.at("provisioner").text().into(),
        object.at("reclaimPolicy").given_or("Delete").into(),
        object.at("volumeBindingMode").given_or("Immediate").into(),
        object.at("allowVolumeExpansion").is_true().into(),
        object.age(),
    ]
}

pub(super) fn attributes_classes(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("driverName").text().into(), object.age()]
}

pub(super) fn attachments(object: &PrintInput<'_>) -> Vec<Value> {
    vec![
        object.name(),
        object.at("spec.attacher").text().into(),
        object.at("spec.source.persistentVolumeName").text().into(),
        object.at("spec.nodeName").text().into(),
        object.at("status.attached").is_true().into(),
        object.age(),
    ]
}

pub(super) fn csi_nodes(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("spec.drivers").len().into(), object.age()]
}

pub(super) fn csi_drivers(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let tokens = spec.at("tokenRequests");
    let audiences = || tokens.items().map(|token| token.at("audience").text()).collect::<Vec<_>>();
    let tokens = if tokens.is_set() { audiences().join(",") } else { UNSET.to_owned() };
    let modes = spec.at("volumeLifecycleModes").joined(",");
    vec![
        object.name(),
        spec.at("attachRequired").is_true_or_absent().into(),
        spec.at("podInfoOnMount").is_true().into(),
        spec.at("storageCapacity").is_true().into(),
        tokens.into(),
        spec.at("requiresRepublish").is_true().into(),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        object.age(),
    ]
}
