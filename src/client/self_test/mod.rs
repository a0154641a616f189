//! `self-test`: whether an installation does what it is for, seen from within: what `helm test` runs.

mod metrics;
mod reads;
mod rights;
mod warmth;

pub use self::metrics::{Exposition, Lint};

use super::{
    Error,
    finding::{Health, Section, health, written},
    paint::Colour,
    print::terminal,
};
use crate::{
    cli::{SelfTestArgs, TrustArgs},
    cluster::{Connection, Trust},
    model::{Fault, Reason},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two questions that were refused: a role that was just made counts a moment later.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at what `args` name, and says what it found in lines. `lint` reads metrics.
///
/// # Errors
///
/// [`Error`] if there is no cluster to ask, or a file that `args` name cannot be read.
pub async fn self_test(args: &SelfTestArgs, lint: Lint) -> Result<(String, Health), Error> {
    let from = &args.connection;
    let connection = Connection::load(from.kubeconfig.as_deref(), from.context.as_deref())?;
    let deadline = Instant::now() + args.timeout;
    let mut sections = Vec::new();
    if let Some(name) = &args.profile {
        let findings = warmth::of_profile(&connection, args, name, deadline).await?;
        sections.push(Section { title: "a profile", findings });
    }
    if let (Some(name), Some(url)) = (&args.profile, &args.reads) {
        let findings = reads::of_profile(&connection, args, (url, name), deadline).await?;
        sections.push(Section { title: "reads", findings });
    }
    if args.replicas.is_some() || !args.operators.is_empty() {
        let findings = metrics::of_replicas(&connection, args, lint, deadline).await?;
        sections.push(Section { title: "metrics", findings });
    }
    if let Some(file) = &args.rights {
        let findings = rights::of_ours(&connection, file, &args.home.operator_namespace).await?;
        sections.push(Section { title: "rights", findings });
    }
    let (width, colour) = terminal().map_or((0, Colour::Off), |found| (found.width, found.colour));
    Ok((written(&sections, width, colour), health(&sections)))
}

/// How the certificate of an admin address is verified.
fn trusted(args: &TrustArgs) -> Trust {
    let TrustArgs { operator_ca_file, operator_server_name } = args.clone();
    Trust { ca_file: operator_ca_file, server_name: operator_server_name }
}

/// Asks until the answer is another than a refusal or none at all, or the time is over.
async fn until_answered<T>(
    deadline: Instant,
    mut question: impl AsyncFnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    loop {
        match question().await {
            Err(fault) if may_pass(fault.reason()) && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Whether that may be over in a moment: a binding that was just made, a replica that just started.
fn may_pass(reason: Reason) -> bool {
    matches!(reason, Reason::Forbidden | Reason::Unauthorized | Reason::Unreachable)
}
