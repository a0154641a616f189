//! `check`: whether a cluster is fit for kubewarm, or kubewarm and its profiles are well, with the next
//! step where not.

mod install;
mod operator;
mod profiles;
mod server;

use super::{
    Error,
    finding::{Finding, Health, Section, health, written},
    paint::Colour,
    print::terminal,
    profiles::{Place, Profiles},
};
use crate::{
    cli::{CheckArgs, program},
    cluster::Connection,
    model::{Fault, Reason},
};
use jiff::Timestamp;

/// Looks, and says what it found in lines. `clock` tells the time where the server does not.
///
/// # Errors
///
/// [`Error`] if there is no cluster to ask, or the profiles cannot be read though it serves them, or
/// the profile that `args` name does not exist. What only cannot be seen is said in a line.
///
/// # Cost
///
/// Some 30 requests, and the profiles.
pub async fn check(args: &CheckArgs, clock: fn() -> Timestamp) -> Result<(String, Health), Error> {
    let from = &args.connection;
    let connection = Connection::load(from.kubeconfig.as_deref(), from.context.as_deref())?;
    let sections = sections(&connection, args, clock()).await?;
    let (width, colour) = terminal().map_or((0, Colour::Off), |found| (found.width, found.colour));
    Ok((written(&sections, width, colour), health(&sections)))
}

async fn sections(
    connection: &Connection,
    args: &CheckArgs,
    now: Timestamp,
) -> Result<Vec<Section>, Error> {
    let client = &connection.client();
    let server = connection.server().to_string();
    let (mut reached, is_there) = server::reached(client, server.trim_end_matches('/')).await;
    let mut sections = Vec::new();
    if is_there && args.pre {
        reached.extend(server::abilities(client).await);
    }
    sections.push(Section { title: "API server", findings: reached });
    if !is_there {
        return Ok(sections);
    }
    let program = program();
    let (namespace, watched) =
        (args.home.operator_namespace.as_str(), args.watch_namespaces.as_slice());
    if args.pre {
        let findings = install::permitted(client, program, (namespace, watched)).await;
        sections
            .push(Section { title: "installing", findings: findings.map_err(Error::Operator)? });
        return Ok(sections);
    }
    let operator = operator::Operator { client, namespace, watched, program, now };
    let (resource, is_served) = operator.resource().await.map_err(Error::Operator)?;
    let mut installed = vec![resource];
    if is_served {
        installed.extend(operator.works().await.map_err(Error::Operator)?);
    }
    sections.push(Section { title: "kubewarm", findings: installed });
    if is_served {
        sections.push(Section { title: "profiles", findings: all(connection, args).await? });
    }
    Ok(sections)
}

/// The profiles: those that are asked for, else all, else those that whoever asks may see.
async fn all(connection: &Connection, args: &CheckArgs) -> Result<Vec<Finding>, Error> {
    let own = Place::Namespace(args.namespace.as_deref());
    let is_everywhere = args.namespace.is_none() && args.name.is_none();
    let place = if is_everywhere { &Place::Everywhere } else { &own };
    let mut source = Profiles::of(connection, place, args.name.as_deref());
    let (found, mut findings) = match source.fetch().await {
        Err(Error::Refused { message, code: 403, .. }) if is_everywhere => {
            let fault = Fault::new(Reason::Forbidden, message);
            source = Profiles::of(connection, &own, None);
            (source.fetch().await, vec![Finding::unseen("profiles of other namespaces", &fault)])
        }
        found => (found, Vec::new()),
    };
    let found = match found {
        Err(Error::Refused { message, code: 403, .. }) => {
            let fault = Fault::new(Reason::Forbidden, message);
            findings.push(Finding::unseen(&format!("profiles in {}", source.title()), &fault));
            return Ok(findings);
        }
        found => found?,
    };
    if args.name.is_some() && found.is_empty() {
        return Err(Error::NotFound(source.title()));
    }
    // Of namespaces that were not checked nothing is known.
    if !found.is_empty() || findings.is_empty() {
        findings.extend(profiles::of_profiles(&found, program()));
    }
    Ok(findings)
}
