//! What can be typed after `top`.

use super::{ConnectionArgs, TrustArgs};
use clap::{Args, ValueEnum};

pub(super) const CODES: &str = "\
Exit codes:
  0  printed
  2  the question failed";

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// What is compared.
    #[arg(value_name = "WHAT", default_value = "targets")]
    pub what: What,

    /// By which column; the largest first, names in their order.
    #[arg(long, value_name = "COLUMN", default_value = "memory")]
    pub sort: Sort,

    /// Of profiles and targets: where to look [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Of profiles and targets: in every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Of cells and kinds: the admin address of a replica, such as `http://localhost:9090` behind
    /// `kubectl port-forward`. Nobody else knows them.
    #[arg(long, env = "KUBEWARM_OPERATOR", value_name = "URL")]
    pub operator: Option<String>,

    /// Its certificate.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// Print so many rows; 0 prints all.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub limit: usize,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What `top` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Profiles, by their statuses: memory in steps of 1 MiB.
    Profiles,
    /// Targets, by their profiles' statuses: memory in steps of 1 MiB.
    Targets,
    /// List-and-watches of one replica.
    Cells,
    /// Kinds that one replica holds, with what they have asked of the API server.
    Kinds,
}

/// The column that `top` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Objects held.
    Objects,
    /// Memory that they take.
    Memory,
    /// Of kinds: lists, pages of lists and watches that the API server has answered.
    Requests,
    /// How long it has been there: a profile, or a cell in its state. The oldest first.
    Age,
    /// The name.
    Name,
}
