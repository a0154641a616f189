//! The installation of kubewarm from which injected pods read.

use super::{
    super::{
        CommandError,
        operator_installation::{OperatorInstallation, features, is_forwarding, unreadable},
        port_forward::{MAX_PODS, selector},
    },
    InjectArgs,
    egress::KubewarmPeer,
};
use k8s_openapi::{
    api::core::v1::{Namespace, Pod, Service},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client, api::ListParams};
use kubewarm_api::manifests::{
    FAIL_OPEN_SERVICE, INJECTED_PORT, INJECTED_SERVICE, OperatorFeature, injected_ips,
};
use kubewarm_inject::{InjectedAddress, WorkloadKind};
use std::net::IpAddr;

/// What injected pods need of kubewarm.
pub(super) struct InjectedInstallation {
    /// The address that fails open, and the address of kubewarm alone.
    addresses: [InjectedAddress; 2],
    pub(super) operator: OperatorInstallation,
    /// `None` if kubewarm has no pod, or if the user may not list its pods.
    pub(super) peer: Option<KubewarmPeer>,
    /// Reasons why injected pods would not work.
    pub(super) reasons: Vec<String>,
    /// Whether one replica serves all pods.
    is_single: bool,
}

impl InjectedInstallation {
    /// Reads the Services, the settings of the operator's Deployment, and its pods.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if a Service cannot be read, or a setting cannot be read exactly.
    pub(super) async fn discover(client: &Client, args: &InjectArgs) -> Result<Self, CommandError> {
        let (operator, deployments) =
            OperatorInstallation::discover(client, &args.operator).await?;
        let namespace = operator.namespace.clone();
        let mut reasons = Vec::new();
        let unreadable = |reason: String| unreadable(&namespace, &reason);
        let has_inject =
            features(&deployments).map_err(unreadable)?.contains(&OperatorFeature::Inject);
        if !deployments.is_empty() && !has_inject {
            reasons.push(
                "kubewarm publishes no CA for pods; set the chart value inject.enabled=true"
                    .to_owned(),
            );
        }
        if is_forwarding(&deployments).map_err(unreadable)? == Some(false) {
            reasons.push(
                "kubewarm forwards no writes; set the chart value readApi.forward=true".to_owned(),
            );
        }
        if !reasons.is_empty() {
            let addresses = [args.given_address(), args.given_address()];
            return Ok(Self { addresses, operator, peer: None, reasons, is_single: false });
        }
        let services = Api::<Service>::namespaced(client.clone(), &namespace);
        let mut addresses = [args.given_address(), args.given_address()];
        let mut peer = None;
        for (name, address) in [FAIL_OPEN_SERVICE, INJECTED_SERVICE].iter().zip(&mut addresses) {
            let service = services.get(name).await.map_err(|error| {
                CommandError::of_request(format!("Service {namespace}/{name}"), error)
            })?;
            match ips(&service, args) {
                Ok(ips) => address.ips = ips,
                Err(reason) => reasons.push(format!("Service {namespace}/{name} {reason}")),
            }
            // Both Services lead to the same pods.
            if *name == FAIL_OPEN_SERVICE {
                peer = self::peer(client, &service, &namespace).await;
            }
        }
        let replicas = deployments.iter().filter_map(|one| one.spec.replicas).sum::<i32>();
        let is_single = !deployments.is_empty() && replicas < 2;
        Ok(Self { addresses, operator, peer, reasons, is_single })
    }

    /// The address for pods of this kind.
    pub(super) fn address(&self, args: &InjectArgs, kind: WorkloadKind) -> &InjectedAddress {
        let [fail_open, kubewarm] = &self.addresses;
        if args.is_fail_open(kind) { fail_open } else { kubewarm }
    }

    /// All addresses of kubewarm.
    pub(super) fn addresses(&self) -> &[InjectedAddress] {
        &self.addresses
    }

    /// What the user should know about pods of this kind.
    pub(super) fn remark(&self, args: &InjectArgs, kind: WorkloadKind) -> Option<String> {
        (self.is_single && !args.is_fail_open(kind)).then(|| {
            "kubewarm has one replica; while it is away, the pods reach no API server, and leader elections with a renew \
             deadline of 10 s are lost"
                .to_owned()
        })
    }
}

/// The addresses from the flags. Without them, the Service's addresses. The error says why pods
/// cannot use the Service.
fn ips(service: &Service, args: &InjectArgs) -> Result<Vec<IpAddr>, &'static str> {
    let own = injected_ips(service)?;
    let given = &args.cluster_ips;
    let ips = if given.is_empty() { own } else { given.clone() };
    if ips.is_empty() { Err("has no cluster IP; pass --cluster-ip") } else { Ok(ips) }
}

async fn peer(client: &Client, service: &Service, namespace: &str) -> Option<KubewarmPeer> {
    let spec = service.spec.as_ref()?;
    let port = spec.ports.iter().flatten().find_map(|port| port.target_port.clone());
    let query = ListParams::default().labels(&selector(service)?).limit(MAX_PODS);
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&query).await.ok()?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let labels = namespaces.get(namespace).await.ok()?.metadata.labels.unwrap_or_default();
    let port = port.unwrap_or(IntOrString::Int(INJECTED_PORT));
    KubewarmPeer::new(namespace, labels, &pods.items, &port)
}
