//! What each kind takes, read from a replica's metrics.

use super::row::Row;
use std::collections::BTreeMap;

/// A line of the text format: name, labels and value. Comments are none.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{')?;
    let labels = labels.strip_suffix('}')?;
    // The values are names of groups, versions and resources, and words of closed sets: no commas, no
    // quotes.
    let pairs = labels.split(',').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((key, value.trim_matches('"')))
    });
    Some((name, pairs.collect(), value.parse().ok()?))
}

/// A row for each kind of which something is said.
pub(super) fn rows(metrics: &str) -> Vec<Row> {
    let mut rows = BTreeMap::<(String, String), Row>::new();
    for (name, labels, value) in metrics.lines().filter_map(sample) {
        let (Some(&group), Some(&resource)) = (labels.get("group"), labels.get("resource")) else {
            continue;
        };
        let of: fn(&mut Row) -> &mut Option<u64> = match name {
            "kubewarm_objects" => |row| &mut row.objects,
            "kubewarm_store_bytes" => |row| &mut row.bytes,
            "kubewarm_watch_active" => |row| &mut row.watches,
            "kubewarm_list_pages_total" | "kubewarm_watch_starts_total" => |row| &mut row.requests,
            "kubewarm_list_bytes_total" => |row| &mut row.received,
            "kubewarm_relists_total" => |row| &mut row.relists,
            _ => continue,
        };
        let key = (group.to_owned(), resource.to_owned());
        let row = rows
            .entry(key)
            .or_insert_with(|| Row { name: kind(group, resource), ..Row::default() });
        let field = of(row);
        *field = Some(field.unwrap_or(0).saturating_add(whole(value)));
    }
    rows.into_values().collect()
}

/// As kubectl writes it: `pods`, `deployments.apps`.
pub(super) fn kind(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// A count, which is written as a float.
fn whole(value: f64) -> u64 {
    // Formatting is exact where a cast would have to be argued about.
    format!("{value:.0}").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_kind_are_added_up() {
        let metrics = "\
# HELP kubewarm_objects Objects in memory.
kubewarm_objects{group=\"apps\",resource=\"deployments\",scope=\"namespaced\",version=\"v1\"} 12
kubewarm_objects{group=\"apps\",resource=\"deployments\",scope=\"cluster\",version=\"v1\"} 3
kubewarm_store_bytes{group=\"\",resource=\"pods\",scope=\"cluster\",version=\"v1\"} 5242880
kubewarm_list_pages_total{group=\"\",resource=\"pods\",version=\"v1\"} 4
kubewarm_watch_starts_total{group=\"\",resource=\"pods\",version=\"v1\"} 2
kubewarm_watch_starts_total{group=\"\",resource=\"pods\",version=\"v1\"} NaN
kubewarm_relists_total{group=\"\",reason=\"gone\",resource=\"pods\",version=\"v1\"} 1
kubewarm_list_duration_seconds_sum{group=\"\",resource=\"nodes\",version=\"v1\"} 1
process_cpu_seconds_total 3
";
        let deployments =
            Row { name: "deployments.apps".to_owned(), objects: Some(15), ..Row::default() };
        let pods = Row {
            name: "pods".to_owned(),
            bytes: Some(5 << 20),
            requests: Some(6),
            relists: Some(1),
            ..Row::default()
        };
        assert_eq!(rows(metrics), [pods, deployments]);
    }
}
