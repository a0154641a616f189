//! The figures that are held against a target, and how each follows from the samples.

use crate::samples::Samples;

/// How a figure follows from the samples.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The median of one sample, times a factor that brings it to the figure's unit.
    Median(&'static str, f64),
    /// The median ratio of two samples.
    Ratio(&'static str, &'static str),
    /// By which factor the median ratio of two samples is off, up or down; at least 1.
    OffBy(&'static str, &'static str),
    /// The median ratio to the smallest of the three drains.
    RatioToBestDrain(&'static str),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// At most this on plain pods, in `unit`.
    pub target: f64,
    /// At most this on pods with status, where it differs.
    pub target_with_status: Option<f64>,
    /// Behind the number; empty for ratios.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What measures it alone.
    pub command: &'static str,
}

const DRAINS: [&str; 3] = ["drain.whole.seconds", "drain.streaming.seconds", "drain.paged.seconds"];

/// Every row, in the order of the table.
pub const FIGURES: [Figure; 23] = [
    ratio(
        "time to synced, whole ÷ draining the same",
        1.15,
        ("warm.whole.seconds", "drain.whole.seconds"),
        "warm whole, drain whole",
    ),
    ratio(
        "time to synced, streaming ÷ draining the same",
        1.15,
        ("warm.streaming.seconds", "drain.streaming.seconds"),
        "warm streaming, drain streaming",
    ),
    ratio(
        "time to synced, pages of 500 ÷ draining the same",
        1.25,
        ("warm.paged.seconds", "drain.paged.seconds"),
        "warm paged, drain paged",
    ),
    Figure {
        name: "time to synced, Auto ÷ the best of the three drains",
        target: 1.2,
        target_with_status: None,
        unit: "",
        source: Source::RatioToBestDrain("warm.auto.seconds"),
        command: "warm auto",
    },
    ratio(
        "time to synced ÷ client-go's dynamic informer",
        0.2,
        ("warm.auto.seconds", "dynamic.seconds"),
        "warm auto; peer dynamic",
    ),
    ratio(
        "time to synced ÷ client-go's typed informer (protobuf)",
        1.2,
        ("warm.auto.seconds", "typed.seconds"),
        "warm auto; peer typed",
    ),
    ratio(
        "time to synced ÷ kube-rs' reflector, DynamicObject, streaming",
        0.5,
        ("warm.auto.seconds", "kube-rs.seconds"),
        "warm auto; peer-kube-rs",
    ),
    Figure {
        name: "resident memory after sync, whole process, per object",
        target: 0.7,
        target_with_status: Some(1.0),
        unit: " KiB",
        source: Source::Median("operator.kib_per_object", 1.0),
        command: "operator",
    },
    ratio(
        "peak during the first sync ÷ steady",
        1.15,
        ("operator.first_peak_kib", "operator.rss_kib"),
        "operator",
    ),
    ratio(
        "peak during a relist ÷ steady",
        1.15,
        ("operator.relist_peak_kib", "operator.rss_kib"),
        "operator",
    ),
    milliseconds(
        "list by one label, 250 of 50,000, decoded to bytes, p50",
        1.0,
        "warm.list.p50_seconds",
        "warm auto",
    ),
    ratio(
        "lag at 500 events/s, p99 ÷ client-go's dynamic informer",
        1.0,
        ("warm.lag.p99_seconds", "dynamic.lag.p99_seconds"),
        "warm auto, peer dynamic, write",
    ),
    ratio(
        "lag at 500 events/s, p99 ÷ client-go's typed informer",
        1.0,
        ("warm.lag.p99_seconds", "typed.lag.p99_seconds"),
        "warm auto, peer typed, write",
    ),
    Figure {
        name: "CPU for the first sync, whole process",
        target: 2.7,
        target_with_status: None,
        unit: " s",
        source: Source::Median("operator.cpu_seconds", 1.0),
        command: "operator",
    },
    forecast(
        "forecast of objects, off by a factor of",
        1.0,
        ("forecast.objects", "operator.objects"),
    ),
    forecast(
        "forecast of memory, off by a factor of",
        1.25,
        ("forecast.bytes", "operator.store_bytes"),
    ),
    forecast(
        "forecast of the time until warm, off by a factor of",
        2.0,
        ("forecast.seconds", "operator.seconds"),
    ),
    Figure {
        name: "start to ready, no profile",
        target: 1.0,
        target_with_status: None,
        unit: " s",
        source: Source::Median("start.seconds", 1.0),
        command: "start",
    },
    Figure {
        name: "one small profile, at rest, resident",
        target: 25.0,
        target_with_status: None,
        unit: " MiB",
        source: Source::Median("start.rss_mib", 1.0),
        command: "start",
    },
    Figure {
        name: "200 cells warm, small objects",
        target: 3.0,
        target_with_status: None,
        unit: " s",
        source: Source::Median("cells.seconds", 1.0),
        command: "cells",
    },
    Figure {
        name: "200 cells warm, requests to the server per cell",
        target: 2.0,
        target_with_status: None,
        unit: "",
        source: Source::Median("cells.requests_per_cell", 1.0),
        command: "cells",
    },
    Figure {
        name: "2,000 idle cells, resident per cell",
        target: 64.0,
        target_with_status: None,
        unit: " KiB",
        source: Source::Median("idle.kib_per_cell", 1.0),
        command: "idle",
    },
    Figure {
        name: "2,000 idle cells, share of a core",
        target: 2.0,
        target_with_status: None,
        unit: " %",
        source: Source::Median("idle.core_share", 100.0),
        command: "idle",
    },
];

const fn ratio(
    name: &'static str,
    target: f64,
    (of, to): (&'static str, &'static str),
    command: &'static str,
) -> Figure {
    let source = Source::Ratio(of, to);
    Figure { name, target, target_with_status: None, unit: "", source, command }
}

const fn forecast(
    name: &'static str,
    target: f64,
    (forecast, actual): (&'static str, &'static str),
) -> Figure {
    let source = Source::OffBy(forecast, actual);
    Figure { name, target, target_with_status: None, unit: "", source, command: "operator" }
}

const fn milliseconds(
    name: &'static str,
    target: f64,
    sample: &'static str,
    command: &'static str,
) -> Figure {
    let source = Source::Median(sample, 1000.0);
    Figure { name, target, target_with_status: None, unit: " ms", source, command }
}

impl Figure {
    /// The figure; `None` if something it needs was not measured.
    #[must_use]
    pub fn seen(&self, samples: &Samples) -> Option<f64> {
        match self.source {
            Source::Median(name, factor) => Some(samples.median(name)? * factor),
            Source::Ratio(name, to) => samples.ratio(name, to),
            Source::OffBy(name, to) => {
                samples.ratio(name, to).map(|ratio| ratio.max(ratio.recip()))
            }
            Source::RatioToBestDrain(name) => samples.ratio_to_least(name, &DRAINS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_its_samples_is_absent_not_zero() {
        assert!(FIGURES.iter().all(|figure| figure.seen(&Samples::default()).is_none()));
    }

    #[test]
    fn a_forecast_is_as_far_off_when_it_is_too_low() {
        let mut samples = Samples::default();
        for (name, value) in [("forecast.bytes", 50.0), ("operator.store_bytes", 100.0)] {
            samples.push(name, value);
        }
        let memory = FIGURES.iter().find(|figure| figure.name.starts_with("forecast of memory"));
        assert_eq!(memory.unwrap().seen(&samples), Some(2.0));
    }

    #[test]
    fn auto_is_held_against_the_fastest_way_of_its_round() {
        let mut samples = Samples::default();
        for (name, value) in DRAINS.iter().zip([3.0, 5.0, 2.0]) {
            samples.push(name, value);
        }
        samples.push("warm.auto.seconds", 4.0);
        let auto = FIGURES.iter().find(|figure| figure.command == "warm auto").unwrap();
        assert_eq!(auto.seen(&samples), Some(2.0));
    }
}
