//! The commands for users and scripts. They read profiles from a cluster or a file and print a
//! report.

mod advice;
mod ca_readers;
mod cache;
mod check;
mod cluster;
mod crd;
mod error;
mod flag_values;
mod forwarded;
mod get;
mod inferred_profile;
mod inject;
mod kubeconfig;
mod operator_installation;
mod output;
mod overview;
mod plan;
mod port_forward;
mod print;
mod problems;
mod profile_documents;
mod profile_readiness;
mod profile_source;
mod profiles;
mod rbac;
mod report;
mod rotate_ca;
mod status;
mod target_report;
mod text;
mod uninjected_pods;
mod version;
mod wait;

#[cfg(test)]
mod fixtures;

pub use self::{
    advice::as_called,
    cache::CacheConnectionArgs,
    check::{CheckArgs, check},
    cluster::{ClusterArgs, ConnectionArgs},
    crd::{CrdArgs, crd},
    error::CommandError,
    forwarded::{ForwardedArgs, forwarded},
    get::{GetArgs, get},
    inferred_profile::{ProfileArgs, profile},
    inject::{InjectArgs, inject},
    kubeconfig::{KubeconfigArgs, kubeconfig},
    output::{OutputArgs, OutputFormat},
    overview::overview,
    plan::{PlanArgs, plan},
    print::print,
    profile_source::{OperatorArgs, OperatorNamespaceArgs, ProfileSourceArgs},
    rbac::{RbacArgs, rbac},
    report::{CommandExitCode, CommandReport, ReportFormat, TerminalLayout, render},
    rotate_ca::{RotateCaArgs, rotate_ca},
    status::{StatusArgs, status},
    version::{VersionArgs, version},
    wait::{AwaitedCondition, WaitArgs, wait},
};
pub(crate) use self::{
    advice::{PLUGIN, is_plugin, variable},
    flag_values::{duration, long_duration, namespace, size},
    text::causes,
};
