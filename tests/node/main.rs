//! Tests kubewarm in pods of a real node: kubelet, containerd and kube-proxy in their own Linux
//! namespaces. They need root. Without root each test prints that it did not run, and fails in CI.

mod account;
mod drain;
mod fail_open;
mod forward;
mod helm_test;
mod inject;
mod injected;
mod install;
mod leader;
mod memory;
mod object;
mod outage;
mod prometheus;
mod reads;
mod release;
mod rollout;
mod unmodified;
mod warm_before_start;
mod watch_namespaces;
mod workloads;
mod world;
