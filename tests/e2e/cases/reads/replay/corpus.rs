//! The requests of the replay, which go to both servers, and the objects that they read.

use super::authorization::Authorization;
use super::difference::Difference::{self, *};
use super::watched;
use crate::accept::{AGGREGATED, ANY, KUBECTL, METADATA, METADATA_LIST, OLD_TABLE, TABLE};

const OLD_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1";
const OLD_METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1";

/// `Accept` headers of clients that prefer protobuf. Each stands next to the header for which the
/// responses are the same, but in JSON.
const IN_PROTOBUF: &[(&str, &str)] = &[
    (ANY, "application/vnd.kubernetes.protobuf, */*"),
    (METADATA, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    (
        METADATA_LIST,
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
         application/json",
    ),
    (TABLE, "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"),
    (KUBECTL, "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json"),
];

/// Returns the same requests, from clients that prefer protobuf. Leaves out discovery and the
/// metadata of custom resources, which kubewarm has only in JSON.
pub(super) fn in_protobuf(requests: &[ReplayRequest]) -> Vec<ReplayRequest> {
    let preferring = |request: &ReplayRequest| {
        let (_, accept) = IN_PROTOBUF.iter().find(|(json, _)| *json == request.accept)?;
        let is_custom = request.path.starts_with("/apis/example.com/");
        if request.but.contains(&WarmKinds) || (is_custom && accept.contains("as=Partial")) {
            return None;
        }
        let (path, mut but) = (request.path.clone(), request.but.clone());
        if request.accept == TABLE {
            but.push(MediaTypes);
        }
        Some(ReplayRequest { path, accept, but, ..*request })
    };
    requests.iter().filter_map(preferring).collect()
}

/// The `Accept` header of kubectl.
pub(crate) const AGGREGATED_FIRST: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                                application/json";

/// One request.
#[derive(Debug)]
pub(super) struct ReplayRequest {
    pub(super) method: &'static str,
    /// Contains the query.
    pub(super) path: String,
    pub(super) authorization: Authorization,
    pub(super) accept: &'static str,
    /// Whether the client accepts gzip.
    pub(super) gzip: bool,
    pub(super) agent: Option<&'static str>,
    /// One more header.
    pub(super) header: Option<(&'static str, &'static str)>,
    /// The permitted differences between the responses of both servers.
    pub(super) but: Vec<Difference>,
}

/// Kinds for which the replay sends every kind of read.
pub(super) struct ReplayKind {
    /// A path below `/api/v1` or `/apis/…`.
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) is_namespaced: bool,
    /// The name of an existing object.
    pub(super) name: &'static str,
    /// Valid and invalid field selectors.
    fields: &'static [&'static str],
}

pub(super) const KINDS: &[ReplayKind] = &[
    ReplayKind {
        group: "/api/v1",
        resource: "pods",
        is_namespaced: true,
        name: "one",
        fields: &[
            "",
            "status.phase%3DPending",
            "status.phase!%3DRunning",
            "spec.nodeName%3D",
            "spec.nodeName%3Dn1",
            "spec.nodeName!%3Dn1",
            "spec.nodeName%3Dn1,status.phase%3DPending",
            "spec.restartPolicy%3DNever",
            "spec.schedulerName%3Ddefault-scheduler",
            "spec.serviceAccountName%3Ddefault",
            "spec.hostNetwork%3Dfalse",
            "spec.hostNetwork%3Dtrue",
            "status.podIP%3D",
            "status.nominatedNodeName%3D",
            "spec.unknown%3Dx",
        ],
    },
    ReplayKind {
        group: "/api/v1",
        resource: "configmaps",
        is_namespaced: true,
        name: "red",
        fields: &[
            "metadata.name%3Dred",
            "metadata.name!%3Dred",
            "metadata.name%3Dred,metadata.namespace%3Dnone",
            "metadata.name%3Dnone",
            "data.text%3Dx",
            "metadata.uid%3Dx",
            "metadata.name",
        ],
    },
    ReplayKind {
        group: "/api/v1",
        resource: "events",
        is_namespaced: true,
        name: "first",
        fields: &[
            "involvedObject.kind%3DPod",
            "involvedObject.name%3Dtwo",
            "involvedObject.uid%3D",
            "reason%3DBad",
            "reason!%3DBad",
            "type%3DWarning",
            "type%3DWarning,involvedObject.name%3Done",
            "reportingComponent%3Dtester",
            "message%3Dx",
        ],
    },
    ReplayKind {
        group: "/api/v1",
        resource: "services",
        is_namespaced: true,
        name: "plain",
        fields: &[
            "spec.type%3DClusterIP",
            "spec.type%3DExternalName",
            "spec.clusterIP%3DNone",
            "spec.ports%3D1",
        ],
    },
    ReplayKind {
        group: "/apis/apps/v1",
        resource: "deployments",
        is_namespaced: true,
        name: "web",
        fields: &["metadata.name%3Dweb", "spec.replicas%3D1"],
    },
    ReplayKind {
        group: "/apis/example.com/v1",
        resource: "parts",
        is_namespaced: true,
        name: "bolt",
        fields: &["metadata.name%3Dnut", "spec.size%3D3"],
    },
    ReplayKind {
        group: "/apis/example.com/v1",
        resource: "widgets",
        is_namespaced: true,
        name: "wheel",
        fields: &[
            "spec.color%3Dred",
            "spec.color!%3Dred",
            "spec.count%3D3",
            "spec.count%3D3,spec.color%3Dblue",
            "spec.color%3D",
            "spec.other%3Dx",
        ],
    },
    ReplayKind {
        group: "/api/v1",
        resource: "nodes",
        is_namespaced: false,
        name: "n1",
        fields: &["spec.unschedulable%3Dtrue", "spec.unschedulable%3Dfalse", "spec.podCIDR%3D"],
    },
    ReplayKind {
        group: "/api/v1",
        resource: "namespaces",
        is_namespaced: false,
        name: "default",
        fields: &[
            "status.phase%3DActive",
            "status.phase%3DTerminating",
            "metadata.name%3Ddefault",
            "status.other%3Dx",
        ],
    },
    ReplayKind {
        group: "/apis/rbac.authorization.k8s.io/v1",
        resource: "clusterroles",
        is_namespaced: false,
        name: "view",
        fields: &["metadata.name%3Dview", "rules%3Dx"],
    },
    ReplayKind {
        group: "/apis/example.com/v1",
        resource: "planets",
        is_namespaced: false,
        name: "mars",
        fields: &["metadata.name%3Dmars", "spec.moons%3D2"],
    },
];

/// Further kinds, which the replay reads only with field selectors, valid and invalid ones.
const SELECTED: &[(&str, &[&str])] = &[
    (
        "/apis/events.k8s.io/v1/events",
        &[
            "regarding.kind%3DPod",
            "regarding.name%3Dtwo",
            "regarding.name!%3Dtwo",
            "regarding.uid%3D",
            "regarding.uid%3Dx",
            "reason%3DBad",
            "type%3DWarning,regarding.name%3Done",
            "reportingController%3Dtester",
            "involvedObject.name%3Dtwo",
            "source%3Dtester",
        ],
    ),
    (
        "/apis/batch/v1/jobs",
        &["status.successful%3D0", "status.successful%3D1", "status.succeeded%3D0"],
    ),
    ("/apis/apps/v1/replicasets", &["metadata.namespace%3Dnone", "status.replicas%3D0"]),
    (
        "/api/v1/replicationcontrollers",
        &["status.replicas%3D0", "status.replicas!%3D0", "spec.replicas%3D1"],
    ),
    (
        "/apis/resource.k8s.io/v1/resourceslices",
        &[
            "spec.driver%3Dd.example.com",
            "spec.driver!%3Dd.example.com",
            "spec.nodeName%3D",
            "spec.nodeName%3Dn1",
            "spec.pool%3Dp",
            "metadata.namespace%3Dx",
        ],
    ),
    (
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        &["spec.signerName%3Dx", "spec.username%3Dx", "metadata.namespace%3Dx"],
    ),
    ("/api/v1/nodes", &["metadata.name%3Dn1,spec.unschedulable%3Dtrue", "metadata.namespace%3D"]),
    ("/api/v1/namespaces", &["metadata.namespace%3D"]),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", &["metadata.namespace%3D"]),
];

/// Label selectors, including some that the servers reject.
const LABELS: &[&str] = &[
    "app%3Dweb",
    "app%3D%3Dweb",
    "app!%3Dweb",
    "app+in+(web,api)",
    "app+notin+(web)",
    "app",
    "!app",
    "tier%3E1",
    "tier%3C3",
    "app%3Dweb,tier%3E1",
    "example.com/x",
    "example.com/x%3D",
    "app%3Dnone",
    // Both servers reject these selectors.
    "app%3D%3D%3Dweb",
    "app+in+web",
    "-app",
    "app%3D-web-",
    "app%3E1.5",
];

/// Other parameters of a list.
const OPTIONS: &[&str] = &[
    "limit=2",
    "limit=2&labelSelector=app",
    "limit=100",
    "limit=0",
    "limit=-1",
    "resourceVersion=",
    "resourceVersion=0",
    "resourceVersion=0&limit=1",
    "resourceVersion=1",
    "resourceVersion=1&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=2",
    "timeoutSeconds=5",
    "pretty=true",
    "unknown=x",
    "allowWatchBookmarks=true",
    "watch=false",
    // Both servers reject lists with these parameters.
    "resourceVersion=abc",
    "resourceVersion=-1",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "resourceVersion=1&resourceVersionMatch=Never",
    "resourceVersion=0&resourceVersionMatch=",
    "sendInitialEvents=true",
    "sendInitialEvents=false",
    "continue=garbage",
    "continue=garbage&resourceVersion=1",
    "continue=garbage&resourceVersionMatch=NotOlderThan",
    "limit=abc",
    "timeoutSeconds=abc",
];

/// CustomResourceDefinitions of the kinds in `KINDS`.
pub(crate) const DEFINITIONS: &str = include_str!("definitions.yaml");
/// Objects in the namespace NAMESPACE, and cluster-scoped objects.
pub(crate) const OBJECTS: &str = include_str!("objects.yaml");
/// The number of bytes of text in one of the objects. A response with this object is large enough
/// that both servers compress it.
pub(crate) const LONG: usize = 200_000;
/// Targets for these objects, in addition to the targets in `reads.rs`.
pub(crate) const TARGETS: &str = "
  {name: events, resource: events, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: nodes, resource: nodes, scope: {type: Cluster}, projection: {managedFields: Keep}},
  {name: deployments, group: apps, resource: deployments, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: widgets, group: example.com, resource: widgets, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: planets, group: example.com, resource: planets, scope: {type: Cluster}, projection: {managedFields: Keep}},
  {name: new-events, group: events.k8s.io, resource: events, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: jobs, group: batch, resource: jobs, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: replicasets, group: apps, resource: replicasets, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: controllers, resource: replicationcontrollers, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: slices, group: resource.k8s.io, resource: resourceslices, scope: {type: Cluster}, projection: {managedFields: Keep}},
  {name: old-scalers, group: autoscaling, version: v1, resource: horizontalpodautoscalers, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: scalers, group: autoscaling, version: v2, resource: horizontalpodautoscalers, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: requests, group: certificates.k8s.io, resource: certificatesigningrequests, scope: {type: Cluster}, projection: {managedFields: Keep}}";

impl ReplayKind {
    /// The path for all namespaces.
    pub(super) fn all(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }

    /// The path for one namespace, or for all objects of a cluster-scoped kind.
    pub(super) fn own(&self, a: &str) -> String {
        if self.is_namespaced {
            format!("{}/namespaces/{a}/{}", self.group, self.resource)
        } else {
            self.all()
        }
    }
}

pub(super) fn get(path: String, accept: &'static str, but: &[Difference]) -> ReplayRequest {
    ReplayRequest {
        method: "GET",
        path,
        authorization: Authorization::Token,
        accept,
        gzip: false,
        agent: None,
        header: None,
        but: but.to_vec(),
    }
}

/// The permitted differences of every list.
const LISTED: &[Difference] = &[ListVersion, ContinueToken];
const PRINTED: &[Difference] = &[ListVersion, ContinueToken, Ages];

/// Every request. `a` is the namespace of most objects.
pub(super) fn requests(a: &str) -> Vec<ReplayRequest> {
    let mut all: Vec<ReplayRequest> = KINDS.iter().flat_map(|kind| of_kind(kind, a)).collect();
    let settings = format!("/api/v1/namespaces/{a}/configmaps");
    let widgets = format!("/apis/example.com/v1/namespaces/{a}/widgets");
    let planets = "/apis/example.com/v1/planets".to_owned();
    let everywhere = "/api/v1/configmaps".to_owned();
    for base in [&settings, &everywhere, &widgets] {
        for labels in LABELS {
            all.push(get(format!("{base}?labelSelector={labels}"), ANY, LISTED));
        }
    }
    for base in [&settings, &everywhere, &widgets, &planets] {
        for options in OPTIONS {
            let but = [LISTED, &[ContinueWords]].concat();
            all.push(get(format!("{base}?{options}"), ANY, &but));
        }
    }
    for events in ["/api/v1/events", "/apis/events.k8s.io/v1/events"] {
        for matched in ["", "&resourceVersionMatch=NotOlderThan"] {
            all.push(get(format!("{events}?resourceVersion=0&limit=1{matched}"), ANY, LISTED));
        }
    }
    for (options, but) in watched::refused() {
        all.push(get(format!("{settings}?watch=1&{options}"), ANY, but));
        all.push(get(format!("{planets}?watch=1&{options}"), TABLE, but));
    }
    for (list, fields) in SELECTED {
        let by = |fields| get(format!("{list}?fieldSelector={fields}"), ANY, LISTED);
        all.extend(fields.iter().map(by));
    }
    all.extend(selections(a, &settings, &everywhere));
    all.extend(versions(&settings, &widgets));
    all.extend(forms(a, &settings, &widgets));
    all.extend(documents());
    all.extend(refusals(&settings, &planets));
    all.extend(paths(a));
    all.extend(indented(&settings, &widgets));
    all.extend(timeouts(&settings));
    all.extend(compressed());
    all.extend(several_errors(&settings));
    all.extend(other_methods(&settings, &planets));
    all.extend(credentials(&settings));
    all.extend(in_protobuf(&all));
    all
}

/// Lists and gets of one kind in every form, and with field selectors.
fn of_kind(kind: &ReplayKind, a: &str) -> Vec<ReplayRequest> {
    let (all, collection) = (kind.all(), kind.own(a));
    let mut requests = Vec::new();
    let mut lists = vec![collection.clone()];
    lists.extend(kind.is_namespaced.then(|| all.clone()));
    for list in lists {
        requests.push(get(list.clone(), ANY, LISTED));
        requests.push(get(list.clone(), METADATA_LIST, LISTED));
        requests.push(get(list.clone(), KUBECTL, PRINTED));
        requests.push(get(format!("{list}?labelSelector=app%3Dweb"), KUBECTL, PRINTED));
        requests.push(get(format!("{list}?labelSelector=app%3Dweb"), METADATA_LIST, LISTED));
    }
    for name in [kind.name, "none"] {
        requests.push(get(format!("{collection}/{name}"), ANY, &[]));
        requests.push(get(format!("{collection}/{name}"), METADATA, &[]));
        requests.push(get(format!("{collection}/{name}"), KUBECTL, &[Ages]));
    }
    for included in ["None", "Object"] {
        requests.push(get(format!("{collection}?includeObject={included}"), TABLE, PRINTED));
    }
    for fields in kind.fields {
        requests.push(get(format!("{collection}?fieldSelector={fields}"), ANY, LISTED));
    }
    requests
}

/// Combinations of selectors, and selectors with an `Accept` header.
fn selections(a: &str, settings: &str, everywhere: &str) -> Vec<ReplayRequest> {
    let pods = format!("/api/v1/namespaces/{a}/pods");
    vec![
        get(format!("{settings}?fieldSelector=metadata.namespace%3D{a}"), ANY, LISTED),
        get(format!("{everywhere}?fieldSelector=metadata.namespace%3D{a}"), ANY, LISTED),
        get(format!("{everywhere}?fieldSelector=metadata.name%3Dred"), METADATA_LIST, LISTED),
        get(
            format!("{everywhere}?fieldSelector=metadata.name%3Dred&labelSelector=tier%3E1"),
            ANY,
            LISTED,
        ),
        get(
            format!("{pods}?fieldSelector=spec.nodeName%3Dn1&labelSelector=app%3Done"),
            KUBECTL,
            PRINTED,
        ),
        get(format!("{pods}?fieldSelector=status.phase%3DPending&limit=1"), METADATA_LIST, LISTED),
        get(format!("{pods}?fieldSelector=status.phase%3DPending&limit=1"), ANY, LISTED),
        get(
            format!("/api/v1/namespaces/{a}/events?fieldSelector=source%3Dtester"),
            ANY,
            &[FieldLabels],
        ),
    ]
}

/// Resource versions of an object and of a list.
fn versions(settings: &str, widgets: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    for base in [settings, widgets] {
        let name = if base == settings { "red" } else { "wheel" };
        for version in ["0", "1", ""] {
            all.push(get(format!("{base}/{name}?resourceVersion={version}"), ANY, &[]));
            all.push(get(format!("{base}/none?resourceVersion={version}"), ANY, &[]));
        }
        all.push(get(format!("{base}/{name}?resourceVersion=abc"), ANY, &[NoNumber]));
    }
    for (path, accept) in [(settings, ANY), (settings, METADATA_LIST), (widgets, TABLE)] {
        for exact in ["resourceVersionMatch=Exact", "resourceVersionMatch=Exact&limit=2", "limit=2"]
        {
            all.push(get(format!("{path}?resourceVersion=1&{exact}"), accept, &[ExactVersion]));
        }
    }
    // Each of these requests takes three seconds.
    let future = "resourceVersion=99999999999";
    all.push(get(format!("{settings}?{future}"), ANY, &[FutureVersion]));
    all.push(get(format!("{widgets}?{future}"), TABLE, &[FutureVersion]));
    all
}

/// Values of the `Accept` header.
fn forms(a: &str, settings: &str, widgets: &str) -> Vec<ReplayRequest> {
    let (red, wheel) = (format!("{settings}/red"), format!("{widgets}/wheel"));
    let secrets = format!("/api/v1/namespaces/{a}/secrets");
    let mut all = Vec::new();
    for accept in [
        "application/json",
        "application/xml;q=0.9,application/json;q=0.8",
        "application/json;q=0.1,*/*",
        "application/json;as=Table;v=v1;g=other,application/json",
        "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
    ] {
        all.push(get(settings.to_owned(), accept, LISTED));
        all.push(get(wheel.clone(), accept, &[]));
    }
    all.push(get(settings.to_owned(), "application/*, application/json", LISTED));
    for (path, accept) in [
        (settings, METADATA),
        (&red, METADATA_LIST),
        (widgets, METADATA),
        (&wheel, METADATA_LIST),
        (settings, "application/*"),
        (&red, "application/*"),
        (settings, "text/html"),
        (settings, "application/json;as=Table;v=v1;g=other"),
        (settings, OLD_METADATA),
        (&red, OLD_METADATA_LIST),
        (&red, "application/json;as=Table;v=v2;g=meta.k8s.io"),
        ("/version", "text/html"),
        ("/api/v1", "text/html"),
        ("/apis", "text/html"),
    ] {
        all.push(get(path.to_owned(), accept, &[MediaTypes]));
    }
    for path in [settings, widgets] {
        all.push(get(path.to_owned(), OLD_TABLE, PRINTED));
        all.push(get(path.to_owned(), OLD_METADATA_LIST, LISTED));
        all.push(get(format!("{path}?labelSelector=none%3Dhere"), OLD_METADATA_LIST, LISTED));
        all.push(get(format!("{path}?limit=1"), TABLE, PRINTED));
        all.push(get(format!("{path}?limit=1"), METADATA_LIST, LISTED));
        all.push(get(format!("{path}?includeObject=all"), TABLE, &[]));
        all.push(get(format!("{path}?resourceVersion=0&limit=1"), TABLE, PRINTED));
    }
    for path in [&red, &wheel] {
        all.push(get(path.clone(), OLD_METADATA, &[]));
        all.push(get(format!("{path}?includeObject=None"), TABLE, &[Ages]));
        all.push(get(format!("{path}?includeObject=Object"), OLD_TABLE, &[Ages]));
    }
    all.push(get(secrets.clone(), METADATA_LIST, &[ListVersion, SecretMetadata]));
    all.push(get("/api/v1/secrets".to_owned(), METADATA_LIST, &[ListVersion, SecretMetadata]));
    all.push(get(format!("{secrets}/hidden"), METADATA, &[SecretMetadata]));
    all.push(get(format!("{secrets}/none"), METADATA, &[]));
    all.push(get(format!("{secrets}?labelSelector=app"), METADATA_LIST, &[ListVersion]));
    all
}

/// Discovery and version documents.
fn documents() -> Vec<ReplayRequest> {
    let mut all = vec![get("/version".to_owned(), ANY, &[])];
    for path in ["/api", "/apis"] {
        for accept in [AGGREGATED, AGGREGATED_FIRST] {
            all.push(get(path.to_owned(), accept, &[WarmKinds]));
        }
    }
    for path in [
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/autoscaling",
        "/apis/autoscaling/v1",
        "/apis/autoscaling/v2",
        "/apis/example.com",
        "/apis/example.com/v1",
        "/apis/rbac.authorization.k8s.io",
        "/apis/rbac.authorization.k8s.io/v1",
    ] {
        all.push(get(path.to_owned(), ANY, &[WarmKinds]));
    }
    for path in
        ["/apis/none.example.com", "/apis/none.example.com/v1", "/apis/example.com/v9", "/api/v9"]
    {
        all.push(get(path.to_owned(), ANY, &[UnknownPath]));
    }
    all
}

/// Requests whose answers may be compressed. Both servers compress only long answers.
fn compressed() -> Vec<ReplayRequest> {
    let zone = "/api/v1/namespaces/zone/configmaps";
    let requests = [
        get(format!("{zone}/long"), ANY, &[]),
        get(format!("{zone}/long"), METADATA, &[]),
        get(format!("{zone}/of-zone"), ANY, &[]),
        get(zone.to_owned(), ANY, LISTED),
        get(zone.to_owned(), KUBECTL, PRINTED),
        get(format!("{zone}?includeObject=Object"), TABLE, PRINTED),
        get("/api/v1/configmaps".to_owned(), ANY, LISTED),
        get("/api/v1/configmaps?limit=3".to_owned(), ANY, LISTED),
        get("/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(), KUBECTL, PRINTED),
        get("/api/v1".to_owned(), ANY, &[WarmKinds]),
    ];
    requests.into_iter().map(|request| ReplayRequest { gzip: true, ..request }).collect()
}

/// Unusual paths: some that both servers understand, and some that kubewarm does not.
fn paths(a: &str) -> Vec<ReplayRequest> {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let mut all = Vec::new();
    for path in [
        "/api/v1/namespaces//configmaps".to_owned(),
        "/api/v1/namespaces//configmaps/".to_owned(),
        "/api/v1/namespaces//configmaps?labelSelector=app%3Dweb&limit=2".to_owned(),
        "/api/v1/namespaces//configmaps?fieldSelector=metadata.name%3Dred".to_owned(),
        "/apis/example.com/v1/namespaces//widgets".to_owned(),
        format!("/api/v1/namespaces/{a}/configmaps//"),
        format!("/api/v1/namespaces/{a}/configmaps/red//"),
        "/api/v1/namespaces//".to_owned(),
        format!("{roles}/a%09b"),
        format!("{roles}/none%0A"),
    ] {
        all.push(get(path, ANY, LISTED));
    }
    for path in [
        "/api/v1/namespaces//configmaps/red".to_owned(),
        "/api/v1//configmaps".to_owned(),
        format!("/api/v1/namespaces/{a}/./configmaps"),
        format!("/api/v1/namespaces/{a}/configmaps/../configmaps"),
        format!("/api/v1/namespaces/{a}/configmaps/%2e%2e"),
        format!("/api/v1/namespaces/{a}%2Fconfigmaps"),
        format!("/api/v1/namespaces/{a}/configmaps/a%25b"),
        "/api/v1/namespaces/A/configmaps".to_owned(),
    ] {
        all.push(get(path, ANY, &[ListVersion, UnusualPath, UnknownPath]));
    }
    for path in [
        format!("/api/v1/watch/namespaces/{a}/configmaps?timeoutSeconds=1"),
        format!("/api/v1/namespaces/{a}/status"),
        format!("/apis/apps/v1/namespaces/{a}/deployments/web/status"),
    ] {
        all.push(get(path, ANY, &[Unserved]));
    }
    let widgets = format!("/apis/example.com/v1/namespaces/{a}/widgets");
    all.push(get(format!("{widgets}/wheel"), "application/*", &[]));
    all.push(get(widgets, "application/*", LISTED));
    all
}

/// Requests whose answers are indented, for some clients.
fn indented(settings: &str, widgets: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    let none = format!("{settings}/none");
    let wheel = format!("{widgets}/wheel");
    for path in [settings, &none, widgets, &wheel, "/apis", "/api/v1", "/version"] {
        let but = if path.starts_with("/api/v1/n") || path.starts_with("/apis/e") {
            LISTED
        } else {
            &[WarmKinds]
        };
        for value in ["1", "t", "false", "yes", ""] {
            all.push(get(format!("{path}?pretty={value}"), ANY, but));
        }
        for agent in ["curl/8.5.0", "Wget/1.21.3", "Mozilla/5.0 (X11)", "kubectl/v1.36.4"] {
            all.push(ReplayRequest { agent: Some(agent), ..get(path.to_owned(), ANY, but) });
        }
    }
    let agent = Some("curl/8.5.0");
    all.push(ReplayRequest { agent, ..get(settings.to_owned(), TABLE, PRINTED) });
    all.push(ReplayRequest { agent, ..get(format!("{settings}?pretty=0"), ANY, LISTED) });
    all.push(ReplayRequest { agent, ..get("/api/v1/configmaps".to_owned(), ANY, LISTED) });
    all.push(get(settings.to_owned(), "application/json;pretty=1", LISTED));
    all
}

/// Requests with the parameter `timeout`, which applies to the request and is no option of a list.
fn timeouts(settings: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    for value in ["30", "30s", "1m30s", "0", "", "-5s", "1d", "x", "1.5h", ".s"] {
        for path in [settings, &format!("{settings}/red"), "/version", "/apis/apps"] {
            let but = if path == "/apis/apps" { &[WarmKinds][..] } else { LISTED };
            all.push(get(format!("{path}?timeout={value}"), ANY, but));
        }
    }
    all.push(get(format!("{settings}?timeout=30s&timeout=x"), ANY, LISTED));
    all.push(get(format!("{settings}?timeout=x&limit=x"), ANY, LISTED));
    all
}

/// Requests that are no reads.
fn refusals(settings: &str, planets: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in [format!("{settings}/red"), settings.to_owned(), planets.to_owned()] {
            all.push(ReplayRequest { method, ..get(path, ANY, &[OnlyReads]) });
        }
    }
    all
}

/// Requests with two errors. The servers must report the same one.
fn several_errors(settings: &str) -> Vec<ReplayRequest> {
    let (one, none) = (format!("{settings}/red"), format!("{settings}/none"));
    let mut all = Vec::new();
    // Both servers first look for the objects, and then check whether they can return the requested
    // form.
    for (path, accept) in [(settings, METADATA), (&one, METADATA_LIST), (&none, METADATA_LIST)] {
        all.push(get(format!("{path}?limit=abc"), accept, &[MediaTypes]));
    }
    for path in [settings, &one, &none] {
        all.push(get(format!("{path}?includeObject=all&limit=abc"), TABLE, &[Ages]));
        all.push(get(format!("{path}?includeObject=all&resourceVersion=-1"), TABLE, &[NoNumber]));
    }
    all.push(get(format!("{none}?includeObject=all"), TABLE, &[]));
    // Both servers first check whether the field selector's fields exist.
    for list in ["/api/v1/nodes", "/api/v1/namespaces", settings, "/apis/example.com/v1/widgets"] {
        for more in ["continue=garbage", "resourceVersion=-1", "includeObject=all", "limit=abc"] {
            all.push(get(format!("{list}?fieldSelector=x%3Dy&{more}"), TABLE, &[]));
        }
    }
    for kind in ["example.com/v9/widgets", "example.com/v1/none", "none.example.com/v1/widgets"] {
        for more in ["limit=abc", "resourceVersionMatch=Exact"] {
            all.push(get(format!("/apis/{kind}?{more}"), ANY, &[ContinueToken, UnknownPath]));
        }
        all.push(get(format!("/apis/{kind}"), "text/html", &[MediaTypes, UnknownPath]));
    }
    all
}

/// Requests with methods that are neither reads nor writes.
fn other_methods(settings: &str, planets: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    for path in [settings.to_owned(), format!("{settings}/red"), planets.to_owned()] {
        all.push(ReplayRequest { method: "HEAD", ..get(path.clone(), ANY, &[HeadRequests]) });
        for method in ["OPTIONS", "TRACE", "NONE"] {
            all.push(ReplayRequest { method, ..get(path.clone(), ANY, &[OnlyReads]) });
        }
    }
    all
}

/// Every `Authorization` header, with a valid and with an invalid request.
fn credentials(settings: &str) -> Vec<ReplayRequest> {
    let mut all = Vec::new();
    for &authorization in Authorization::ALL {
        for query in ["limit=2", "limit=abc", "timeout=x"] {
            let but = [LISTED, authorization.differences()].concat();
            let path = format!("{settings}?{query}");
            all.push(ReplayRequest {
                authorization,
                ..get(path, KUBECTL, &[&but[..], &[Ages]].concat())
            });
        }
    }
    for name in ["impersonate-user", "x-remote-user"] {
        let header = Some((name, "admin"));
        let but = [LISTED, &[Impersonation]].concat();
        all.push(ReplayRequest { header, ..get(settings.to_owned(), ANY, &but) });
    }
    all
}

/// Requests for the second page of a list that have further parameters next to the continue token,
/// some of them invalid.
pub(super) fn continued(a: &str) -> Vec<ReplayRequest> {
    let settings = format!("/api/v1/namespaces/{a}/configmaps?limit=2");
    let events = format!("/api/v1/namespaces/{a}/events?limit=1");
    let mut all = Vec::new();
    for more in [
        "resourceVersion=0",
        "resourceVersion=1",
        "resourceVersion=abc",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersion=1&resourceVersionMatch=NotOlderThan",
        "resourceVersion=1&resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=",
    ] {
        for base in [&*settings, &events, "/apis/example.com/v1/planets?limit=1"] {
            all.push(get(format!("{base}&{more}"), ANY, LISTED));
        }
    }
    all
}

/// Lists at the newest version of kubewarm's store, which the replay appends to the path when it
/// sends the request.
pub(super) fn of_now(a: &str) -> Vec<ReplayRequest> {
    let settings = format!("/api/v1/namespaces/{a}/configmaps?");
    let widgets = format!("/apis/example.com/v1/namespaces/{a}/widgets?");
    let mut all = Vec::new();
    for (base, accept, but) in [
        (&*settings, ANY, &[][..]),
        (&settings, METADATA_LIST, &[]),
        (&widgets, TABLE, &[Ages]),
        ("/api/v1/configmaps?", ANY, &[]),
    ] {
        for more in [
            "resourceVersionMatch=Exact&",
            "resourceVersionMatch=Exact&limit=2&",
            "resourceVersionMatch=NotOlderThan&",
            "resourceVersionMatch=NotOlderThan&limit=2&",
            "limit=2&",
            "",
        ] {
            let is_exact = more.contains("Exact") || more == "limit=2&";
            let but = [but, if is_exact { &[ContinueToken] } else { LISTED }].concat();
            all.push(get(format!("{base}{more}resourceVersion="), accept, &but));
        }
    }
    all
}

/// Lists that are read page by page to the end.
pub(super) fn walks(a: &str) -> Vec<ReplayRequest> {
    let page = |path: &str, limit: usize, accept, but: &[Difference]| {
        get(format!("{path}?limit={limit}"), accept, but)
    };
    vec![
        page("/api/v1/configmaps", 2, ANY, LISTED),
        page("/api/v1/configmaps", 5, METADATA_LIST, LISTED),
        page("/api/v1/configmaps", 60, KUBECTL, PRINTED),
        page("/apis/rbac.authorization.k8s.io/v1/clusterroles", 20, METADATA_LIST, LISTED),
        page(&format!("/apis/example.com/v1/namespaces/{a}/widgets"), 1, ANY, LISTED),
        page("/apis/example.com/v1/planets", 1, TABLE, PRINTED),
        get("/api/v1/configmaps?labelSelector=app&limit=3".to_owned(), ANY, LISTED),
        get(
            format!("/api/v1/namespaces/{a}/pods?fieldSelector=status.phase%3DPending&limit=2"),
            ANY,
            LISTED,
        ),
    ]
}
