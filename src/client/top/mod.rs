//! `top`: the largest profiles, targets, cells and kinds.

mod kinds;
mod row;

use self::row::{Row, printed};
use super::{
    Error,
    cells::{Cell, Replica},
    print::{print, tell},
    profiles::{Place, Profiles},
    verdict::{Verdict, name},
};
use crate::{
    api::CacheProfile,
    cli::{TopArgs, What},
    model::parse_bytes,
};
use jiff::Timestamp;
use std::fmt::Write as _;

/// Prints a table, the largest first. `clock` tells the time.
///
/// # Errors
///
/// [`Error`] if there is no cluster or no answer, if only a replica knows and none is named, or if the
/// table has no such column.
pub async fn top(args: &TopArgs, clock: fn() -> Timestamp) -> Result<Verdict, Error> {
    let columns = row::columns(args.what);
    if !columns.sorts.contains(&args.sort) {
        return Err(Error::NoColumn { what: columns.title, has: columns.sort_names() });
    }
    let rows = match args.what {
        What::Profiles | What::Targets => {
            let place = match (args.all_namespaces, args.namespace.as_deref()) {
                (true, _) => Place::Everywhere,
                (false, namespace) => Place::Namespace(namespace),
            };
            let source = Profiles::connect(&args.connection, &place, None)?;
            let profiles = source.fetch().await?;
            if profiles.is_empty() {
                tell(&format!("there are no CacheProfiles in {}", source.title()));
            }
            if args.what == What::Profiles { of_profiles(&profiles) } else { of_targets(&profiles) }
        }
        What::Cells => {
            let replica = replica(args, "cells are those of one replica").await?;
            replica.cells().await?.iter().map(of_cell).collect()
        }
        What::Kinds => {
            let replica = replica(args, "what each kind takes is known to one replica").await?;
            kinds::rows(&replica.metrics().await?)
        }
    };
    print(&printed(rows, args.sort, args.limit, &columns, clock()))?;
    Ok(Verdict::Ready)
}

async fn replica(args: &TopArgs, what: &str) -> Result<Replica, Error> {
    let url = args.operator.as_deref();
    let url = url.ok_or_else(|| Error::WantsReplica(what.to_owned()))?;
    Replica::of(url, &args.trust).await
}

fn of_profiles(profiles: &[CacheProfile]) -> Vec<Row> {
    let row = |profile: &CacheProfile| {
        let status = profile.status.clone().unwrap_or_default();
        let cells = status.targets.iter().filter_map(|target| target.cells.as_ref());
        Row {
            name: name(profile),
            objects: count(status.objects),
            bytes: bytes(status.memory.as_deref()),
            watches: Some(cells.map(|cells| count(Some(cells.total.into())).unwrap_or(0)).sum()),
            since: profile.metadata.creation_timestamp.as_ref().map(|time| time.0),
            state: status.warm_targets.map(|warm| format!("{warm} warm")),
            ..Row::default()
        }
    };
    profiles.iter().map(row).collect()
}

fn of_targets(profiles: &[CacheProfile]) -> Vec<Row> {
    let of_profile = |profile: &CacheProfile| {
        let targets = profile.status.iter().flat_map(|status| &status.targets);
        let row = |target: &crate::api::TargetStatus| Row {
            name: format!("{}/{}", name(profile), target.name),
            objects: count(target.objects),
            bytes: bytes(target.memory.as_deref()),
            watches: target.cells.as_ref().and_then(|cells| count(Some(cells.total.into()))),
            state: Some(match super::verdict::unhealthy(target) {
                Some(condition) => condition.reason.clone(),
                None => "Warm".to_owned(),
            }),
            ..Row::default()
        };
        targets.map(row).collect::<Vec<_>>()
    };
    profiles.iter().flat_map(of_profile).collect()
}

fn of_cell(cell: &Cell) -> Row {
    let kind = kinds::kind(&cell.group, &cell.resource);
    let place = cell.namespace.clone().unwrap_or_else(|| match cell.scope.as_str() {
        "Cluster" => "cluster".to_owned(),
        _ => "all".to_owned(),
    });
    let mut name = format!("{kind} {place}");
    for (key, selector) in [("labels", &cell.label_selector), ("fields", &cell.field_selector)] {
        if !selector.is_empty() {
            let _infallible = write!(name, " {key}={}", selector.replace(' ', "+"));
        }
    }
    if let Some(account) = &cell.service_account {
        name.push_str(" as=");
        name.push_str(account);
    }
    if cell.projection == "MetadataOnly" {
        name.push_str(" metadata");
    }
    Row {
        name: name.replace(' ', ":"),
        objects: Some(cell.objects),
        bytes: Some(cell.bytes),
        since: cell.since,
        state: Some(cell.state.clone()),
        ..Row::default()
    }
}

fn count(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| number.try_into().ok())
}

fn bytes(memory: Option<&str>) -> Option<u64> {
    memory.and_then(parse_bytes)
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use crate::cli::Sort;

    fn drawn(what: What, rows: Vec<Row>, sort: Sort) -> String {
        printed(rows, sort, 0, &row::columns(what), sample::now())
    }

    #[test]
    fn targets_are_compared_over_profiles() {
        let profiles = [sample::ready(), sample::warming(), sample::untouched()];
        let table = drawn(What::Targets, of_targets(&profiles), Sort::Objects);
        assert_eq!(
            table,
            "\
NAME                     OBJECTS  MEMORY  WATCHES            STATE
shop/checkout/pods        50,000    24Mi       12             Warm
shop/orders/pods          50,000    24Mi       12             Warm
shop/orders/deployments      300     1Mi        4        Forbidden
shop/orders/widgets            0       0        0  UnknownResource
"
        );
    }

    #[test]
    fn of_a_profile_that_nobody_has_looked_at_nothing_is_known() {
        let table = drawn(What::Profiles, of_profiles(&[sample::untouched()]), Sort::Name);
        assert_eq!(
            table,
            "NAME      OBJECTS  MEMORY  WATCHES  AGE  STATE\nshop/new        -       -        0    -      -\n"
        );
    }

    #[test]
    fn cells_are_told_apart_by_all_that_makes_them_other_cells() {
        let cell = Cell {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: Some("shop".to_owned()),
            label_selector: "app in (a,b)".to_owned(),
            service_account: Some("shop/reader".to_owned()),
            state: "Watching".to_owned(),
            objects: 7,
            bytes: 5 << 20,
            since: Some("2026-03-01T11:58:00Z".parse().unwrap()),
            ..Cell::default()
        };
        let table = drawn(What::Cells, vec![of_cell(&cell)], Sort::Age);
        let row = table.lines().last().unwrap_or_default();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>().join(" "),
            "deployments.apps:shop:labels=app+in+(a,b):as=shop/reader 7 5Mi 2m Watching"
        );
    }
}
