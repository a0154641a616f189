//! Draws pairs of bars as SVG: the API server itself next to kubewarm.

use super::document::cell;

const COLUMNS: usize = 3;
const WIDTH: f64 = 290.0;
const HEIGHT: f64 = 170.0;
/// The height of the legend.
const LEGEND: f64 = 24.0;
/// The top of the highest bar and the bottom of all, within a panel.
const TOP: f64 = 44.0;
const BOTTOM: f64 = 146.0;

/// Pairs of bars with one axis.
pub(crate) struct BarPanel {
    pub(crate) title: String,
    /// The label below a pair, and the values of both bars.
    pub(crate) pairs: Vec<(String, [f64; 2])>,
}

/// Draws panels in rows of three. `names` are the names of the first and the second bar of each
/// pair. The text follows the reader's light or dark theme, and there is no background.
pub(crate) fn draw(names: [&str; 2], panels: &[BarPanel]) -> String {
    let rows = u32::try_from(panels.len().div_ceil(COLUMNS)).unwrap_or(u32::MAX);
    let (width, height) = (WIDTH * 3.0, LEGEND + HEIGHT * f64::from(rows));
    let mut lines = vec![format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="9" text-anchor="middle">
<style>text{{fill:#24292f}}.a{{fill:#8c959f}}.b{{fill:#1f6feb}}path{{stroke:#8c959f}}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}}}</style>"#
    )];
    for (name, (class, x)) in names.iter().zip([("a", 20.0), ("b", 150.0)]) {
        lines.push(format!(r#"<rect class="{class}" x="{x}" y="6" width="10" height="10"/>"#));
        let x = x + 15.0;
        lines.push(format!(
            r#"<text x="{x}" y="15" font-size="11" text-anchor="start">{name}</text>"#
        ));
    }
    let (mut left, mut top) = (0.0, LEGEND);
    for row in panels.chunks(COLUMNS) {
        for panel in row {
            lines.extend(draw_panel(panel, left, top));
            left += WIDTH;
        }
        (left, top) = (0.0, top + HEIGHT);
    }
    lines.join("\n") + "\n</svg>\n"
}

fn draw_panel(panel: &BarPanel, left: f64, top: f64) -> Vec<String> {
    let BarPanel { title, pairs } = panel;
    let middle = left + WIDTH / 2.0;
    let mut lines =
        vec![format!(r#"<text x="{middle}" y="{}" font-size="11">{title}</text>"#, top + 20.0)];
    let most = pairs.iter().flat_map(|(_, values)| *values).fold(f64::MIN_POSITIVE, f64::max);
    let count = pairs.iter().map(|_| 1.0).sum::<f64>();
    let step = (WIDTH - 30.0) / count;
    // Wide enough for the five digits above it.
    let bar = (step * 0.43).min(30.0);
    let bottom = top + BOTTOM;
    let mut x = left + 15.0 + step / 2.0;
    for (label, values) in pairs {
        for (value, (class, from)) in values.iter().zip([("a", x - bar), ("b", x)]) {
            let height = value / most * (BOTTOM - TOP);
            let (y, middle) = (bottom - height, from + bar / 2.0);
            lines.push(format!(
                r#"<rect class="{class}" x="{from:.1}" y="{y:.1}" width="{:.1}" height="{height:.1}"/>"#,
                bar - 1.0
            ));
            let text = cell(*value);
            lines.push(format!(r#"<text x="{middle:.1}" y="{:.1}">{text}</text>"#, y - 3.0));
        }
        lines.push(format!(r#"<text x="{x:.1}" y="{:.1}">{label}</text>"#, bottom + 13.0));
        x += step;
    }
    lines.push(format!(r#"<path d="M{} {bottom}h{}"/>"#, left + 15.0, WIDTH - 30.0));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_has_the_full_height_and_the_others_their_share() {
        let panel =
            BarPanel { title: "CPU".to_owned(), pairs: vec![("300".to_owned(), [8.0, 2.0])] };
        let lines = draw_panel(&panel, 0.0, 0.0).join("\n");
        assert!(lines.contains(r#"y="44.0" width="29.0" height="102.0""#), "{lines}");
        assert!(lines.contains(r#"y="120.5" width="29.0" height="25.5""#), "{lines}");
    }

    #[test]
    fn four_panels_have_two_rows() {
        let panel =
            || BarPanel { title: "CPU".to_owned(), pairs: vec![("300".to_owned(), [0.0, 0.0])] };
        let svg = draw(["direct", "kubewarm"], &[panel(), panel(), panel(), panel()]);
        assert!(svg.contains(r#"viewBox="0 0 870 364""#), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
