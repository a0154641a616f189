//! Draws the dashboard's panels with data of a real Prometheus into `docs/dashboard.svg`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::prometheus::{ScrapeServer, Series};
use crate::world::{Failure, file};

/// Pixels of a column and of a line of Grafana's grid.
const COLUMN: f64 = 56.0;
const LINE: f64 = 28.0;
const MARGIN: f64 = 10.0;
const TITLE: f64 = 20.0;
/// The maximum number of legend entries, bars or table lines that fit into a panel.
const ENTRIES: usize = 5;
const COLOURS: [&str; 8] =
    ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff"];
/// Labels that the picture leaves out, because they have only one value in the test.
const DULL: [&str; 5] = ["__name__", "job", "revision", "rustc", "version"];

/// A part of a panel, in pixels.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Draws every panel with the data of the last `span`. `choose` replaces the variables in a query.
pub(crate) fn draw(
    prometheus: &ScrapeServer,
    dashboard: &Value,
    span: Duration,
    choose: impl Fn(&str) -> String,
) -> Result<String, Failure> {
    let panels = dashboard["panels"].as_array().ok_or("no panels")?;
    let (mut body, mut bottom) = (String::new(), 0.0_f64);
    for panel in panels {
        let position = |name: &str| panel["gridPos"][name].as_f64().unwrap_or_default();
        let area = Area {
            x: position("x") * COLUMN + 2.0,
            y: position("y") * LINE + 2.0,
            width: position("w") * COLUMN - 4.0,
            height: position("h") * LINE - 4.0,
        };
        bottom = bottom.max(area.y + area.height);
        let kind = panel["type"].as_str().unwrap_or_default();
        let title = panel["title"].as_str().unwrap_or_default();
        let Area { x, y, width, height } = area;
        let place = format!(r#"x="{x}" y="{y}" width="{width}" height="{height}""#);
        writeln!(body, r##"<rect {place} rx="3" fill="#181b1f" stroke="#2c3235"/>"##)?;
        text(&mut body, (x + MARGIN, y + 16.0), (12, "#d8d9da"), title)?;
        let mut queries = Vec::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |name: &str| target[name].as_str().unwrap_or_default();
            let series = prometheus.query_range(&choose(text("expr")), span)?;
            queries.push((text("legendFormat"), series));
        }
        let unit = panel.pointer("/fieldConfig/defaults/unit").and_then(Value::as_str);
        let inner = Area {
            x: area.x + MARGIN,
            y: area.y + TITLE + 6.0,
            width: area.width - 2.0 * MARGIN,
            height: area.height - TITLE - 12.0,
        };
        match kind {
            "timeseries" => lines(&mut body, inner, &queries, unit.unwrap_or_default())?,
            _ => values(&mut body, inner, &queries, (kind, unit.unwrap_or_default()))?,
        }
    }
    let (width, height) = (24.0 * COLUMN, bottom + 2.0);
    Ok(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">
<rect width="{width}" height="{height}" fill="#111217"/>
{body}</svg>
"##
    ))
}

pub(crate) fn save(picture: &str) -> Result<(), Failure> {
    Ok(std::fs::write(file("docs/dashboard.svg"), picture)?)
}

type Queries<'q> = [(&'q str, Vec<Series>)];

/// Each series with its name in the legend.
fn named<'q>(queries: &'q Queries<'_>) -> impl Iterator<Item = (String, &'q Series)> {
    queries.iter().flat_map(|(format, all)| {
        all.iter().map(|series| {
            let fill = |text: String, (label, value): (&String, &String)| {
                text.replace(&format!("{{{{{label}}}}}"), value)
            };
            let name = series.labels.iter().fold((*format).to_owned(), fill);
            // A label that a series lacks is empty.
            let name = name.split("{{").map(|part| part.split("}}").last().unwrap_or_default());
            (name.collect::<String>().trim().to_owned(), series)
        })
    })
}

fn lines(body: &mut String, area: Area, queries: &Queries<'_>, unit: &str) -> Result<(), Failure> {
    let all: Vec<_> = named(queries).collect();
    let points = || all.iter().flat_map(|(_, series)| series.points.iter().copied());
    let top =
        points().map(|(_, value)| value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { 1.0 };
    let begin = points().map(|(time, _)| time).fold(f64::INFINITY, f64::min);
    let end = points().map(|(time, _)| time).fold(begin + 1.0, f64::max);
    let legend = 14.0 * f64::from(u32::try_from(all.len().clamp(1, ENTRIES))?);
    let floor = area.y + area.height - legend - 4.0;
    let (left, height) = (area.x + 52.0, floor - area.y - 8.0);
    for (share, value) in [(0.0, 0.0), (0.5, top / 2.0), (1.0, top)] {
        let y = floor - share * height;
        let right = area.x + area.width;
        writeln!(body, r##"<path d="M{left:.0} {y:.1}H{right:.0}" stroke="#2c3235"/>"##)?;
        text(body, (area.x, y + 3.0), (9, "#8e8e8e"), &amount(value, unit))?;
    }
    for (number, (name, series)) in all.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let (mut path, mut pen) = (String::new(), 'M');
        for (time, value) in &series.points {
            if value.is_finite() {
                let x = left + (time - begin) / (end - begin) * (area.x + area.width - left);
                write!(path, "{pen}{x:.1} {:.1}", floor - value / top * height)?;
                pen = 'L';
            } else {
                pen = 'M';
            }
        }
        writeln!(body, r#"<path d="{path}" fill="none" stroke="{colour}"/>"#)?;
        if number < ENTRIES {
            let line = f64::from(u32::try_from(number)?);
            let last = series.points.last().map_or(f64::NAN, |(_, value)| *value);
            let shown = format!("{name}: {}", amount(last, unit));
            text(body, (left, floor + 14.0 + 14.0 * line), (10, colour), &shown)?;
        }
    }
    Ok(())
}

/// Draws a panel of current values: a number, bars, or lines of a table.
fn values(
    body: &mut String,
    area: Area,
    queries: &Queries<'_>,
    (kind, unit): (&str, &str),
) -> Result<(), Failure> {
    let now = |series: &Series| series.points.last().map_or(f64::NAN, |(_, value)| *value);
    if kind == "stat" {
        let value = named(queries).next().map_or(f64::NAN, |(_, series)| now(series));
        let shown = amount(value, unit);
        let size = if shown.chars().count() > 8 { 13 } else { 26 };
        let place = (area.x, area.y + area.height * 0.7);
        return text(body, place, (size, COLOURS[0]), &shown);
    }
    let mut rows = BTreeMap::<String, Vec<String>>::new();
    for (format, all) in queries {
        for series in all {
            let labels = series.labels.iter().filter(|(label, _)| !DULL.contains(&label.as_str()));
            let labels: Vec<_> =
                labels.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty()).collect();
            let shown = format!("{format} {}", amount(now(series), unit));
            let shown = if format.contains("{{") { amount(now(series), unit) } else { shown };
            rows.entry(labels.join(" ")).or_default().push(shown);
        }
    }
    let room = (area.height / 16.0).max(1.0);
    for (number, (labels, informers)) in rows.iter().enumerate() {
        let y = area.y + 12.0 + 16.0 * f64::from(u32::try_from(number)?);
        if y > area.y + 16.0 * room {
            break;
        }
        text(body, (area.x, y), (11, COLOURS[2]), labels)?;
        text(body, (area.x + area.width * 0.4, y), (11, "#d8d9da"), &informers.join(" · "))?;
    }
    Ok(())
}

fn text(
    body: &mut String,
    (x, y): (f64, f64),
    (size, colour): (u8, &str),
    text: &str,
) -> Result<(), Failure> {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(
        body,
        r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}">{safe}</text>"#
    )?;
    Ok(())
}

/// Formats a value in a unit of Grafana.
fn amount(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    match unit {
        "percentunit" => format!("{:.0} %", value * 100.0),
        "s" if value.abs() < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.1} s"),
        "bytes" | "Bps" if value.abs() >= 1_048_576.0 => format!("{:.1} MiB", value / 1_048_576.0),
        "bytes" | "Bps" => format!("{:.1} KiB", value / 1_024.0),
        unit if unit.starts_with("dateTime") => {
            let since = Duration::try_from_secs_f64(value / 1e3).unwrap_or_default();
            let time = jiff::Timestamp::try_from(std::time::UNIX_EPOCH + since);
            time.map_or_else(|_| String::new(), |time| format!("{time:.0}"))
        }
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
