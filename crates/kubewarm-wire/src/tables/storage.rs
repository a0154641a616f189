//! Prints volumes, volume claims, storage classes and CSI objects.

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

pub(super) fn volumes(of: &PrintInput<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let claim = spec.at("claimRef");
    let claim = if claim.is_set() {
        format!("{}/{}", claim.at("namespace").text(), claim.at("name").text())
    } else {
        String::new()
    };
    vec![
        of.name(),
        size(spec.at("capacity")).into(),
        modes(spec.at("accessModes")).into(),
        spec.at("persistentVolumeReclaimPolicy").text().into(),
        phase(of).into(),
        claim.into(),
        class(of).into(),
        spec.at("volumeAttributesClassName").given_or(UNSET).into(),
        of.at("status.reason").text().into(),
        of.age(),
        spec.at("volumeMode").given_or(UNSET).into(),
    ]
}

pub(super) fn claims(of: &PrintInput<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let volume = spec.at("volumeName").text();
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (size(status.at("capacity")), modes(status.at("accessModes")))
    };
    vec![
        of.name(),
        phase(of).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(of).into(),
        spec.at("volumeAttributesClassName").given_or(UNSET).into(),
        of.age(),
        spec.at("volumeMode").given_or(UNSET).into(),
    ]
}

fn phase<'a>(of: &PrintInput<'a>) -> &'a str {
    if of.is_going() { "Terminating" } else { of.at("status.phase").text() }
}

fn class<'a>(of: &PrintInput<'a>) -> &'a str {
    let own = of.at("spec.storageClassName");
    of.annotation(CLASS).given_or(own.text())
}

fn size(of: JsonView<'_>) -> String {
    let size = of.field("storage");
    if size.is_set() { size.written() } else { "0".to_owned() }
}

fn modes(of: JsonView<'_>) -> String {
    let has = |mode: &str| of.items().any(|it| it.text() == mode);
    let short = MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

pub(super) fn classes(of: &PrintInput<'_>) -> Vec<Value> {
    let marks = ["", "beta."].map(|at| format!("storageclass.{at}kubernetes.io/is-default-class"));
    let is_default = marks.iter().any(|mark| of.annotation(mark).text() == "true");
    vec![
        marked(of, is_default),
        of.at("provisioner").text().into(),
        of.at("reclaimPolicy").given_or("Delete").into(),
        of.at("volumeBindingMode").given_or("Immediate").into(),
        of.at("allowVolumeExpansion").flag().into(),
        of.age(),
    ]
}

pub(super) fn attributes_classes(of: &PrintInput<'_>) -> Vec<Value> {
    vec![of.name(), of.at("driverName").text().into(), of.age()]
}

pub(super) fn attachments(of: &PrintInput<'_>) -> Vec<Value> {
    vec![
        of.name(),
        of.at("spec.attacher").text().into(),
        of.at("spec.source.persistentVolumeName").text().into(),
        of.at("spec.nodeName").text().into(),
        of.at("status.attached").flag().into(),
        of.age(),
    ]
}

pub(super) fn csi_nodes(of: &PrintInput<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec.drivers").len().into(), of.age()]
}

pub(super) fn csi_drivers(of: &PrintInput<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let tokens = spec.at("tokenRequests");
    let audiences = || tokens.items().map(|token| token.at("audience").text()).collect::<Vec<_>>();
    let tokens = if tokens.is_set() { audiences().join(",") } else { UNSET.to_owned() };
    let modes = spec.at("volumeLifecycleModes").joined(",");
    vec![
        of.name(),
        spec.at("attachRequired").flag_or(true).into(),
        spec.at("podInfoOnMount").flag().into(),
        spec.at("storageCapacity").flag().into(),
        tokens.into(),
        spec.at("requiresRepublish").flag().into(),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        of.age(),
    ]
}
