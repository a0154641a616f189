//! Draws curves with logarithmic axes as SVG.

use crate::report::number;
use std::iter;

const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 160.0;

/// One curve with its own axes.
pub(crate) struct ChartPanel {
    pub(crate) title: &'static str,
    /// Sizes and values, in the order of the sizes.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws panels side by side. `sizes` is the title of all horizontal axes.
pub(crate) fn draw(sizes: &str, panels: &[ChartPanel]) -> String {
    let width = panels.iter().map(|_| WIDTH).sum::<f64>();
    let mut lines = vec![format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="9" text-anchor="middle" fill="#333">
<rect width="{width}" height="{HEIGHT}" fill="#fff"/>"##
    )];
    let mut left = 0.0;
    for ChartPanel { title, points } in panels {
        let x = LogAxis::new(points.iter().map(|point| point.0), left + 45.0, left + WIDTH - 25.0);
        let y = LogAxis::new(points.iter().map(|point| point.1), BOTTOM, TOP);
        let middle = f64::midpoint(x.from, x.to);
        lines.push(format!(r#"<text x="{middle}" y="18" font-size="12">{title}</text>"#));
        lines.push(format!(r#"<text x="{middle}" y="190">{sizes}</text>"#));
        for (at, tick) in x.ticks() {
            lines.push(format!(r##"<path d="M{at:.1} {TOP}V{BOTTOM}" stroke="#ddd"/>"##));
            lines.push(format!(r#"<text x="{at:.1}" y="174">{tick}</text>"#));
        }
        for (at, tick) in y.ticks() {
            lines.push(format!(r##"<path d="M{} {at:.1}H{}" stroke="#ddd"/>"##, x.from, x.to));
            let label = format!(r#"x="{}" y="{:.1}" text-anchor="end""#, x.from - 5.0, at + 3.0);
            lines.push(format!("<text {label}>{tick}</text>"));
        }
        let mut curve = Vec::new();
        for (size, value) in points {
            let (x, y, text) = (x.position(*size), y.position(*value), number(*value));
            curve.push(format!("{x:.1},{y:.1}"));
            lines.push(format!(r##"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="#1f60c4"/>"##));
            lines.push(format!(r#"<text x="{x:.1}" y="{:.1}">{text}</text>"#, y - 7.0));
        }
        let line = format!(r##"points="{}" fill="none" stroke="#1f60c4""##, curve.join(" "));
        lines.push(format!("<polyline {line}/>"));
        left += WIDTH;
    }
    lines.join("\n") + "\n</svg>\n"
}

/// An axis from `10^low` to `10^high`. `from` and `to` are its ends in the picture.
struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let exponents: Vec<_> = values.map(|value| value.max(1e-9).log10()).collect();
        let low = exponents.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let high = exponents.iter().copied().fold(low + 1.0, f64::max).ceil();
        Self { low, high, from, to }
    }

    fn position(&self, value: f64) -> f64 {
        let share = (value.max(1e-9).log10() - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// The powers of ten with their positions.
    fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        let powers = iter::successors(Some(self.low), |power| Some(power + 1.0));
        let powers = powers.take_while(|power| *power <= self.high);
        powers.map(|power| 10_f64.powf(power)).map(|tick| (self.position(tick), tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_powers_of_ten_and_equal_factors_are_equally_long() {
        let axis = LogAxis::new([50.0, 5_000.0].into_iter(), 0.0, 300.0);
        let ticks: Vec<_> = axis.ticks().map(|(at, tick)| format!("{at:.0}:{tick:.0}")).collect();
        assert_eq!(ticks, ["0:10", "100:100", "200:1000", "300:10000"]);
        assert!((axis.position(31.622_776_6) - 50.0).abs() < 1e-3);
    }
}
