//! The client commands, for users and scripts. They read profiles from a cluster or a file and print a report.

mod advice;
mod cache;
mod check;
mod cluster;
mod crd;
mod documents;
mod error;
mod get;
mod kubeconfig;
mod operator_settings;
mod output;
mod overview;
mod plan;
mod print;
mod profiles;
mod rbac;
mod report;
mod specs;
mod status;
mod target;
mod text;
mod value;
mod verdict;
mod version;
mod wait;

#[cfg(test)]
mod sample;

pub use self::{
    advice::as_called,
    cache::CacheArgs,
    check::{CheckArgs, check},
    cluster::{ClusterArgs, ConnectionArgs},
    crd::{CrdArgs, crd},
    error::CommandError,
    get::{GetArgs, get},
    kubeconfig::{KubeconfigArgs, kubeconfig},
    output::{OutputArgs, OutputFormat},
    overview::overview,
    plan::{PlanArgs, plan},
    print::print,
    rbac::{RbacArgs, rbac},
    report::{CommandExitCode, CommandReport, ReportFormat, TerminalLayout, render},
    specs::{OperatorArgs, OperatorNamespaceArgs, ProfileSourceArgs},
    status::{StatusArgs, status},
    version::{VersionArgs, version},
    wait::{ConditionWait, WaitArgs, wait},
};
pub(crate) use self::{
    advice::{PLUGIN, is_plugin, variable},
    value::{duration, namespace, size},
};
