//! Measures kubewarm, its peers and the lower bound of the API server in one run.
//!
//! ```text
//!  benches/run.sh ──► kubewarm-bench all
//!                        │  starts a control plane, loads pods (corpus, load)
//!                        │  rounds: one process per cache, one after another
//!                        ├──► drain            the lower bound: receive and drop
//!                        ├──► warm             kubewarm's engine, in a process of its own
//!                        ├──► peer-kube-rs     a reflector of kube-runtime
//!                        ├──► peer (Go)        informers of client-go and controller-runtime
//!                        ├──► kubewarm run     the operator itself (operator, informers), and its
//!                        │                     responses next to the API server's (reads,
//!                        │                     load_client, watchers, forwarded_writes,
//!                        │                     managers, consistency, rest)
//!                        └──► docs/performance.md (figures, report)
//! ```
//!
//! Each part also runs alone against the cluster of a kubeconfig: `kubewarm-bench --help`.
//! `kubewarm-bench outage` measures an agent on each node at a real API server, with and without
//! kubewarm. `kubewarm-bench scale` measures `kubewarm run` at a scripted server, which has more
//! objects than an API server holds here.

pub mod all;
pub mod call;
pub mod child;
pub mod cluster;
mod consistency;
mod copies;
pub mod corpus;
pub mod custom;
pub mod drain;
pub mod exposition;
pub mod figures;
mod forwarded_writes;
pub mod informers;
pub mod lag;
pub mod load;
pub mod load_client;
mod managers;
pub mod operator;
mod origin;
pub mod outage;
pub mod programs;
pub mod quantile;
pub mod reads;
pub mod report;
mod rest;
pub mod rounds;
pub mod samples;
pub mod scale;
mod serving;
pub mod subject;
pub mod usage;
pub mod warm;
pub mod watchers;
pub mod write;
