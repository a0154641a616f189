//! The configuration files of a node's processes, with a reason for each line.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::error::{Action, Result};
use crate::layout::Layout;
use crate::node::program_image::PAUSE_IMAGE;

pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const NAME: &str = "node";
/// The range of pod addresses.
const PODS: &str = "10.97.0.0/24";

/// The paths of the files.
pub(crate) struct Files {
    pub(crate) containerd: PathBuf,
    pub(crate) kubelet: PathBuf,
    pub(crate) proxy: PathBuf,
}

impl Files {
    pub(crate) fn write(layout: &Layout, kubeconfig: &Path) -> Result<Self> {
        let folder = layout.root().join("node");
        let cni = folder.join("cni");
        fs::create_dir_all(&cni).action(|| format!("create {}", cni.display()))?;
        let write = |path: PathBuf, text: String| {
            fs::write(&path, text).action(|| format!("write {}", path.display())).map(|()| path)
        };
        write(cni.join("10-node.conflist"), network())?;
        Ok(Self {
            containerd: write(folder.join("containerd.toml"), containerd(&cni))?,
            kubelet: write(folder.join("kubelet.yaml"), kubelet(layout))?,
            proxy: write(folder.join("kube-proxy.yaml"), proxy(kubeconfig))?,
        })
    }
}

fn network() -> String {
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "node", "plugins": [
  {{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{PODS}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"#
    )
}

fn containerd(cni: &Path) -> String {
    let cni = cni.display();
    format!(
        r#"version = 2
# It would make /opt/containerd.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Who may not lower it, such as root in a container, could start no pod at all.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    # Where Debian has them.
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
"#
    )
}

fn kubelet(layout: &Layout) -> String {
    let ca = layout.pki("ca.crt");
    let (ca, cgroup) = (ca.display(), layout.cgroup().display());
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {ADDRESS}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: '{ca}'}}}}
authorization: {{mode: Webhook}}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
# Otherwise it refuses to start where the host has the first version of cgroups.
failCgroupV1: false
# containerd before 2.0 cannot be asked.
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failSwapOn: false
# Pods are not to see the host's resolver.
resolvConf: ''
volumePluginDir: /var/lib/kubelet/volumeplugins
# No registry would give an image back.
imageGCHighThresholdPercent: 100
# How full the host's disk is, is nothing to the node.
evictionHard:
  memory.available: 50Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
oomScoreAdj: 0
"
    )
}

fn proxy(kubeconfig: &Path) -> String {
    let kubeconfig = kubeconfig.display();
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: {PODS}
hostnameOverride: {NAME}
clientConnection: {{kubeconfig: '{kubeconfig}'}}
# The table of connections is the host's, and its size cannot be set from here.
conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
oomScoreAdj: 0
"
    )
}
