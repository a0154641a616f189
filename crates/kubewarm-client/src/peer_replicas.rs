//! Finds the other replicas of the release, from which a starting replica copies its stores.

use super::transport;
use kube::{Client, Config};
use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::lookup_host,
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long after its start a replica asks its peers for stores. `/readyz` waits for the stores at
/// most for this time. Later, a new informer is usually new for the peers too, so asking them would
/// only delay its list.
const ASKING: Duration = Duration::from_mins(10);
/// Time after which all clients of a replaced replica have come to another one.
pub const NEWLY_READY: Duration = Duration::from_secs(30);
/// How long the addresses of peers are valid. All informers of a starting replica share a lookup.
const ADDRESSES_TTL: Duration = Duration::from_secs(5);
/// Time limit of a lookup. A list of the API server is better than a long wait for DNS.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long no informer asks a peer that did not answer. A failed node's pod stays in DNS for
/// about a minute.
const SILENT_TTL: Duration = Duration::from_mins(1);
/// Maximum number of peers that an informer asks. If two ready replicas have no store for it, the
/// others probably have none either.
const MAX_PEERS: usize = 2;

/// Where the peers are, and how the replicas trust each other.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The DNS name of the headless Service of all ready replicas.
    pub host: String,
    /// The port of the peers' read API.
    pub port: u16,
    /// The name in the peers' certificate.
    pub server_name: String,
    /// The file with the CA of the peers' certificate, read again after changes.
    pub ca_file: PathBuf,
    /// The file with this replica's token for its peers, read again after changes.
    pub token_file: PathBuf,
}

/// The other replicas of the release. Clones share the state.
#[derive(Clone)]
pub struct PeerReplicas(Arc<PeerReplicasState>);

struct PeerReplicasState {
    lookup: PeerLookup,
    started_at: Instant,
    peers: Mutex<FoundPeers>,
    progress: parking_lot::Mutex<PeerProgress>,
}

enum PeerLookup {
    Service(PeerOptions),
    /// Tests name the peers.
    Fixed(Vec<PeerReplica>),
}

/// Another replica that is probably ready.
#[derive(Clone)]
pub struct PeerReplica {
    address: SocketAddr,
    /// Sends requests to this replica.
    pub client: Client,
}

#[derive(Default)]
struct FoundPeers {
    /// When the addresses were looked up; `None` before the first lookup.
    at: Option<Instant>,
    replicas: Vec<PeerReplica>,
    /// When each of the peers that did not answer was last asked. A lookup removes old entries, so
    /// the map is at most as long as the answer of DNS.
    silent: HashMap<SocketAddr, Instant>,
}

/// What has happened since this replica started.
#[derive(Clone, Copy, Debug, Default)]
struct PeerProgress {
    /// Whether another replica has answered a request. Clients can then have received newer objects
    /// from it than this replica has.
    has_peers: bool,
    /// When `/readyz` first succeeded.
    ready_at: Option<Instant>,
}

impl PeerReplicas {
    /// Peers behind a Service. Sends no request.
    pub fn new(options: PeerOptions) -> Self {
        Self::of(PeerLookup::Service(options))
    }

    /// Exactly these peers, for tests.
    pub fn of_clients(clients: impl IntoIterator<Item = Client>) -> Self {
        let replica = |(port, client)| PeerReplica { address: ([0; 4], port).into(), client };
        Self::of(PeerLookup::Fixed((1..).zip(clients).map(replica).collect()))
    }

    fn of(lookup: PeerLookup) -> Self {
        Self(Arc::new(PeerReplicasState {
            lookup,
            started_at: Instant::now(),
            peers: Mutex::default(),
            progress: parking_lot::Mutex::default(),
        }))
    }

    /// Returns at most two ready peers. Empty if there are none, if they cannot be found, or 10
    /// minutes after the start of this process. Leaves out peers that did not answer during the
    /// last minute, so that not each informer waits for the same silent peer.
    ///
    /// # Cost
    ///
    /// One DNS lookup of at most 2 s, whose result is valid for 5 s.
    pub async fn find(&self) -> Vec<PeerReplica> {
        if self.0.started_at.elapsed() > ASKING {
            return Vec::new();
        }
        let mut peers = self.0.peers.lock().await;
        if peers.at.is_none_or(|at| at.elapsed() > ADDRESSES_TTL) {
            peers.replicas = match &self.0.lookup {
                PeerLookup::Service(options) => options.look_up().await,
                PeerLookup::Fixed(replicas) => replicas.clone(),
            };
            peers.silent.retain(|_, at| at.elapsed() < SILENT_TTL);
            peers.at = Some(Instant::now());
        }
        let can_answer = |peer: &&PeerReplica| !peers.silent.contains_key(&peer.address);
        peers.replicas.iter().filter(can_answer).take(MAX_PEERS).cloned().collect()
    }

    /// Records that a peer has answered a request, with a store or with an error.
    pub fn record_answer(&self) {
        self.0.progress.lock().has_peers = true;
    }

    /// Records that `peer` did not answer. Then no informer asks it for a minute.
    pub async fn record_silence(&self, peer: &PeerReplica) {
        self.0.peers.lock().await.silent.insert(peer.address, Instant::now());
    }

    /// Whether another replica has answered since this replica started.
    pub fn has_peers(&self) -> bool {
        self.0.progress.lock().has_peers
    }

    /// Records that this replica is ready, so that the Service sends clients to it.
    pub fn record_ready(&self) {
        self.0.progress.lock().ready_at = Some(Instant::now());
    }

    /// Whether this replica became ready next to another one less than [`NEWLY_READY`] ago. Clients
    /// of the other replica can then come to this one, and can have seen newer objects.
    pub fn is_newly_ready(&self) -> bool {
        let PeerProgress { has_peers, ready_at } = *self.0.progress.lock();
        has_peers && ready_at.is_some_and(|at| at.elapsed() < NEWLY_READY)
    }
}

impl PeerOptions {
    async fn look_up(&self) -> Vec<PeerReplica> {
        let addresses = match timeout(LOOKUP_TIMEOUT, lookup_host((&*self.host, self.port))).await {
            Ok(Ok(addresses)) => addresses.filter(|address| !is_own(address.ip())).collect(),
            // A Service without ready replicas has no addresses, and the lookup then fails.
            Ok(Err(error)) => {
                tracing::debug!(host = %self.host, %error, "no peers found");
                Vec::new()
            }
            Err(_elapsed) => {
                tracing::info!(host = %self.host, "the lookup of peers took too long");
                Vec::new()
            }
        };
        addresses.into_iter().filter_map(|address| self.connect(address)).collect()
    }

    fn connect(&self, server: SocketAddr) -> Option<PeerReplica> {
        let mut config = Config::new(format!("https://{server}").parse().ok()?);
        config.root_cert_file = Some(self.ca_file.clone());
        // Without this field, kube first loads the system's certificates, which the image does not
        // have. Only the file verifies the peers.
        config.root_cert = Some(Vec::new());
        config.tls_server_name = Some(self.server_name.clone());
        config.auth_info.token_file = Some(self.token_file.display().to_string());
        match transport::plain(config) {
            Ok(client) => Some(PeerReplica { address: server, client }),
            Err(error) => {
                tracing::warn!(%server, %error, "cannot connect to a peer; see --peer-ca-file and --peer-token-file");
                None
            }
        }
    }
}

/// Whether `address` is this pod's own: DNS has it for some time after the container restarted, and
/// a replica is no peer of itself. The system chooses that address as the source of a packet to it.
/// A loopback address is that of another process, because kubewarm then runs outside of a pod.
fn is_own(address: IpAddr) -> bool {
    // A UDP socket sends nothing when it is connected.
    let source = || {
        let unspecified: IpAddr = match address {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((unspecified, 0)).ok()?;
        socket.connect((address, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    !address.is_loopback() && source() == Some(address)
}

impl fmt::Debug for PeerReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerReplicas").field(&*self.0.progress.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pods_own_address_is_its_own() {
        // An address for documentation (RFC 5737): the system routes it like that of another pod.
        let other: IpAddr = [192, 0, 2, 1].into();
        assert!(!is_own(other));
        assert!(!is_own([127, 0, 0, 1].into()), "replicas outside of pods share it");
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((other, 9)).unwrap();
        assert!(is_own(socket.local_addr().unwrap().ip()));
    }
}
