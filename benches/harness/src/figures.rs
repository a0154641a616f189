//! The figures of the document with their targets and their computation from samples.

use crate::samples::Samples;

/// The computation of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The median of one sample, times a factor that brings it to the figure's unit.
    Median(&'static str, f64),
    /// The median ratio of two samples.
    Ratio(&'static str, &'static str),
    /// The median ratio of the first two samples, divided by that of the last two. The second
    /// sample of each pair is a control: the same work in the same minutes. It removes the
    /// machine's drift between two parts of a run.
    RatioOfRatios([&'static str; 2], [&'static str; 2]),
    /// The factor between two samples, as the median over the rounds. It is at least 1, whichever
    /// of the two is larger.
    OffBy(&'static str, &'static str),
    /// The median ratio to the best of the three drains, the lower bound.
    RatioToBestDrain(&'static str),
}

/// The target of a figure, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureTarget {
    /// The figure must be at most this.
    AtMost(f64),
    /// The figure must be at least this.
    AtLeast(f64),
    /// No target. The figure is for comparison.
    None,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The text of the first column.
    pub name: &'static str,
    /// The target for plain pods.
    pub target: FigureTarget,
    /// The target for pods with status, if it differs.
    pub target_with_status: Option<FigureTarget>,
    /// The unit behind the number; empty for ratios.
    pub unit: &'static str,
    /// The computation from samples.
    pub source: Source,
    /// The command that measures this figure alone.
    pub command: &'static str,
}

use FigureTarget::{AtLeast, AtMost};

const DRAINS: [&str; 3] = ["drain.whole.seconds", "drain.streaming.seconds", "drain.paged.seconds"];

/// Every row, in the order of the table.
pub const FIGURES: [Figure; 94] = [
    ratio(
        "time to synced, whole ÷ draining the same",
        1.15,
        "warm.whole.seconds",
        "drain.whole.seconds",
        "warm whole, drain whole",
    ),
    ratio(
        "time to synced, streaming ÷ draining the same",
        1.15,
        "warm.streaming.seconds",
        "drain.streaming.seconds",
        "warm streaming, drain streaming",
    ),
    ratio(
        "time to synced, pages of 500 ÷ draining the same",
        1.25,
        "warm.paged.seconds",
        "drain.paged.seconds",
        "warm paged, drain paged",
    ),
    Figure {
        name: "time to synced, Auto ÷ the best of the three drains",
        target: AtMost(1.2),
        target_with_status: None,
        unit: "",
        source: Source::RatioToBestDrain("warm.auto.seconds"),
        command: "warm auto",
    },
    ratio(
        "time to synced ÷ client-go's dynamic informer",
        0.2,
        "warm.auto.seconds",
        "dynamic.seconds",
        "warm auto; peer dynamic",
    ),
    ratio(
        "time to synced ÷ client-go's typed informer",
        0.7,
        "warm.auto.seconds",
        "typed.seconds",
        "warm auto; peer typed",
    ),
    ratio(
        "time to synced ÷ kube-rs' reflector, DynamicObject, streaming",
        0.5,
        "warm.auto.seconds",
        "kube-rs.seconds",
        "warm auto; peer-kube-rs",
    ),
    Figure {
        name: "resident memory after sync, whole process, per object",
        target: AtMost(0.7),
        target_with_status: Some(AtMost(0.9)),
        unit: " KiB",
        source: Source::Median("operator.kib_per_object", 1.0),
        command: "operator",
    },
    ratio(
        "peak during the first sync ÷ steady",
        1.15,
        "operator.first_peak_kib",
        "operator.rss_kib",
        "operator",
    ),
    ratio(
        "peak during a relist ÷ steady",
        1.15,
        "operator.relist_peak_kib",
        "operator.rss_kib",
        "operator",
    ),
    milliseconds(
        "list by one label, 250 of 50,000, decompressed, p50",
        1.0,
        "warm.list.p50_seconds",
        "warm auto",
    ),
    ratio(
        "lag, p99 ÷ client-go's dynamic informer",
        1.0,
        "warm.lag.p99_seconds",
        "dynamic.lag.p99_seconds",
        "warm auto, peer dynamic, write",
    ),
    ratio(
        "lag, p99 ÷ client-go's typed informer",
        1.0,
        "warm.lag.p99_seconds",
        "typed.lag.p99_seconds",
        "warm auto, peer typed, write",
    ),
    ratio(
        "CPU for the first sync, whole process ÷ CPU for draining the same",
        1.2,
        "operator.cpu_seconds",
        "drain.whole.cpu_seconds",
        "operator, drain whole",
    ),
    forecast(
        "forecast of objects, off by a factor of",
        1.0,
        "forecast.objects",
        "operator.objects",
    ),
    forecast(
        "forecast of memory, off by a factor of",
        1.25,
        "forecast.bytes",
        "operator.store_bytes",
    ),
    forecast(
        "forecast of the time until warm, off by a factor of",
        2.0,
        "forecast.seconds",
        "operator.seconds",
    ),
    read(
        "GET one of 1,000 pods: requests a second ÷ API server",
        AtLeast(5.0),
        "",
        Source::Ratio("reads.get.per_second", "reads.api.get.per_second"),
    ),
    read(
        "the same: p99 ÷ API server",
        AtMost(0.25),
        "",
        Source::Ratio("reads.get.p99_seconds", "reads.api.get.p99_seconds"),
    ),
    read(
        "the same: part of decisions that were cached",
        FigureTarget::None,
        " %",
        Source::Median("reads.get.cached_share", 100.0),
    ),
    read(
        "GET one of 1,000 pods in protobuf: requests a second ÷ API server",
        AtLeast(5.0),
        "",
        Source::Ratio("reads.protobuf.get.per_second", "reads.api.protobuf.get.per_second"),
    ),
    read(
        "GET every pod once in random order: requests a second ÷ API server",
        AtLeast(0.9),
        "",
        Source::Ratio("reads.each_name.per_second", "reads.api.each_name.per_second"),
    ),
    read(
        "the same with `--authorization=shared-reviews`",
        AtLeast(5.0),
        "",
        Source::Ratio("reads.all_names.per_second", "reads.api.all_names.per_second"),
    ),
    read(
        "the same with `--authorization=rbac`",
        AtLeast(4.0),
        "",
        Source::Ratio("reads.rbac_names.per_second", "reads.api.rbac_names.per_second"),
    ),
    read(
        "LIST 250 of 50,000 by label: requests a second ÷ API server",
        AtLeast(20.0),
        "",
        Source::Ratio("reads.by_label.per_second", "reads.api.by_label.per_second"),
    ),
    read(
        "LIST one namespace of 2,500: requests a second ÷ API server",
        AtLeast(8.0),
        "",
        Source::Ratio("reads.namespace.per_second", "reads.api.namespace.per_second"),
    ),
    read(
        "LIST everything: time ÷ API server",
        AtMost(0.1),
        "",
        Source::Ratio("reads.everything.seconds", "reads.api.everything.seconds"),
    ),
    read(
        "streaming list of everything: time ÷ API server",
        AtMost(0.1),
        "",
        Source::Ratio("reads.streaming.seconds", "reads.api.streaming.seconds"),
    ),
    read(
        "LIST everything in protobuf: time ÷ API server",
        AtMost(0.3),
        "",
        Source::Ratio("reads.protobuf.everything.seconds", "reads.api.protobuf.everything.seconds"),
    ),
    read(
        "the same: processor time ÷ API server",
        AtMost(0.2),
        "",
        Source::Ratio(
            "reads.protobuf.everything.cpu_seconds",
            "reads.api.protobuf.everything.cpu_seconds",
        ),
    ),
    read(
        "streaming list of everything in protobuf: time ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.protobuf.streaming.seconds", "reads.api.protobuf.streaming.seconds"),
    ),
    read(
        "processor time for a GB of lists: custom resources in JSON",
        AtMost(0.7),
        " s",
        Source::Median("reads.custom.cpu_seconds_per_gb", 1.0),
    ),
    read(
        "the same: pods in JSON",
        AtMost(1.2),
        " s",
        Source::Median("reads.cpu_seconds_per_gb", 1.0),
    ),
    read(
        "the same: pods in protobuf",
        AtMost(0.5),
        " s",
        Source::Median("reads.protobuf.cpu_seconds_per_gb", 1.0),
    ),
    read(
        "processor time for a GB of lists of pods in JSON ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.cpu_seconds_per_gb", "reads.api.cpu_seconds_per_gb"),
    ),
    read(
        "more memory while 8 clients list everything",
        AtMost(64.0),
        " MiB",
        Source::Median("reads.crowd.more_mib", 1.0),
    ),
    read(
        "client-go's dynamic informer, time to synced ÷ API server",
        AtMost(0.7),
        "",
        Source::Ratio("reads.dynamic.seconds", "reads.api.dynamic.seconds"),
    ),
    read(
        "client-go's typed informer, time to synced ÷ API server",
        AtMost(0.7),
        "",
        Source::Ratio("reads.typed.seconds", "reads.api.typed.seconds"),
    ),
    read(
        "client-go's metadata informer, time to synced ÷ API server",
        AtMost(0.8),
        "",
        Source::Ratio("reads.metadata.seconds", "reads.api.metadata.seconds"),
    ),
    read(
        "controller-runtime's typed cache, time to synced ÷ API server",
        AtMost(0.75),
        "",
        Source::Ratio("reads.controller-runtime.seconds", "reads.api.controller-runtime.seconds"),
    ),
    read(
        "GET one of 1,000 pods, `managedFields: Drop`: requests a second ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.get.per_second", "reads.drop.api.get.per_second"),
    ),
    read(
        "the same, `managedFields: Drop`: p99 ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.get.p99_seconds", "reads.drop.api.get.p99_seconds"),
    ),
    read(
        "LIST 250 of 50,000 by label, `managedFields: Drop`: requests a second ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.by_label.per_second", "reads.drop.api.by_label.per_second"),
    ),
    read(
        "LIST one namespace of 2,500, `managedFields: Drop`: requests a second ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.namespace.per_second", "reads.drop.api.namespace.per_second"),
    ),
    read(
        "LIST everything, `managedFields: Drop`: time ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.everything.seconds", "reads.drop.api.everything.seconds"),
    ),
    read(
        "streaming list of everything, `managedFields: Drop`: time ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.streaming.seconds", "reads.drop.api.streaming.seconds"),
    ),
    read(
        "processor time for a GB of lists, `managedFields: Drop`",
        FigureTarget::None,
        " s",
        Source::Median("reads.drop.cpu_seconds_per_gb", 1.0),
    ),
    read(
        "the same, `managedFields: Drop` ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.cpu_seconds_per_gb", "reads.drop.api.cpu_seconds_per_gb"),
    ),
    read(
        "more memory while 8 clients list everything, `managedFields: Drop`",
        FigureTarget::None,
        " MiB",
        Source::Median("reads.drop.crowd.more_mib", 1.0),
    ),
    read(
        "client-go's dynamic informer, `managedFields: Drop`, time to synced ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("reads.drop.dynamic.seconds", "reads.drop.api.dynamic.seconds"),
    ),
    read(
        "client-go's typed informer, `managedFields: Drop`, time to synced ÷ API server",
        AtMost(0.95),
        "",
        Source::Ratio("reads.drop.typed.seconds", "reads.drop.api.typed.seconds"),
    ),
    read(
        "`managedFields`: resident memory, `Keep` ÷ `Drop`",
        AtMost(1.25),
        "",
        Source::Ratio("reads.rss_kib", "reads.drop.rss_kib"),
    ),
    read(
        "`managedFields`: LIST 250 of 50,000 by label, requests a second, `Keep` ÷ `Drop`",
        AtLeast(0.75),
        "",
        Source::RatioOfRatios(
            ["reads.by_label.per_second", "reads.api.by_label.per_second"],
            ["reads.drop.by_label.per_second", "reads.drop.api.by_label.per_second"],
        ),
    ),
    read(
        "`managedFields`: client-go's typed informer, time to synced, `Keep` ÷ `Drop`",
        AtMost(1.15),
        "",
        Source::RatioOfRatios(
            ["reads.typed.seconds", "reads.api.typed.seconds"],
            ["reads.drop.typed.seconds", "reads.drop.api.typed.seconds"],
        ),
    ),
    milliseconds(
        "forwarded write of a caller that was silent before, p50: additional time compared with the API server",
        1.0,
        "forwarded.more_seconds",
        "forwarded-writes",
    ),
    milliseconds(
        "forwarded write, interleaved with writes at the API server, p99: additional time",
        5.0,
        "forwarded.write.more_p99_seconds",
        "forwarded-writes",
    ),
    milliseconds(
        "the same for the renewal of a Lease, p99: additional time",
        5.0,
        "forwarded.lease.more_p99_seconds",
        "forwarded-writes",
    ),
    milliseconds(
        "the same from the write of a pod until the writer's watch has received it, p99: additional time",
        5.0,
        "forwarded.seen.more_p99_seconds",
        "forwarded-writes",
    ),
    manager(
        "controller-runtime manager with a cache of all pods, resident",
        FigureTarget::None,
        " MiB",
        Source::Median("managers.api.typed.rss_mib", 1.0),
    ),
    manager(
        "the same with metadata informers as triggers, and reads at kubewarm: ÷ with the cache",
        AtMost(0.25),
        "",
        Source::Ratio("managers.metadata.rss_mib", "managers.api.typed.rss_mib"),
    ),
    manager(
        "the same without informers, resident",
        AtMost(60.0),
        " MiB",
        Source::Median("managers.none.rss_mib", 1.0),
    ),
    manager(
        "the manager with the cache: reconciles a second; a reconcile reads its pod",
        FigureTarget::None,
        "",
        Source::Median("managers.api.typed.reconciles_per_second", 1.0),
    ),
    manager(
        "the same for the manager without informers, with reads at kubewarm",
        FigureTarget::None,
        "",
        Source::Median("managers.none.reconciles_per_second", 1.0),
    ),
    manager(
        "the same, p99 of a read",
        FigureTarget::None,
        " ms",
        Source::Median("managers.none.get.p99_seconds", 1000.0),
    ),
    milliseconds(
        "1,000 watches of pods, 20 changes a second: from the write to its watch event, p99",
        250.0,
        "watchers.lag.p99_seconds",
        "watchers",
    ),
    watchers(
        "the same: p50 ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("watchers.lag.p50_seconds", "watchers.api.lag.p50_seconds"),
    ),
    watchers(
        "the same: p99 ÷ API server",
        FigureTarget::None,
        "",
        Source::Ratio("watchers.lag.p99_seconds", "watchers.api.lag.p99_seconds"),
    ),
    watchers(
        "an idle watch with its connection, resident",
        AtMost(64.0),
        " KiB",
        Source::Median("watchers.kib_per_watch", 1.0),
    ),
    Figure {
        name: "start to ready, no profile",
        target: AtMost(1.0),
        target_with_status: None,
        unit: " s",
        source: Source::Median("start.seconds", 1.0),
        command: "start",
    },
    Figure {
        name: "one small profile, at rest, resident",
        target: AtMost(25.0),
        target_with_status: None,
        unit: " MiB",
        source: Source::Median("start.rss_mib", 1.0),
        command: "start",
    },
    Figure {
        name: "200 informers warm, small objects",
        target: AtMost(3.0),
        target_with_status: None,
        unit: " s",
        source: Source::Median("informers.seconds", 1.0),
        command: "informers",
    },
    Figure {
        name: "200 informers warm, requests to the server per informer",
        target: AtMost(2.0),
        target_with_status: None,
        unit: "",
        source: Source::Median("informers.requests_per_informer", 1.0),
        command: "informers",
    },
    Figure {
        name: "second replica of 50,000 pods warm, copied",
        target: AtMost(1.5),
        target_with_status: None,
        unit: " s",
        source: Source::Median("copies.pods.copy.seconds", 1.0),
        command: "copies",
    },
    Figure {
        name: "the same ÷ listed",
        target: FigureTarget::None,
        target_with_status: None,
        unit: "",
        source: Source::Ratio("copies.pods.copy.seconds", "copies.pods.list.seconds"),
        command: "copies",
    },
    Figure {
        name: "the same, lists of more than one object",
        target: AtMost(0.0),
        target_with_status: None,
        unit: "",
        source: Source::Median("copies.pods.copy.lists", 1.0),
        command: "copies",
    },
    Figure {
        name: "the same, peak ÷ steady, copying replica",
        target: AtMost(1.15),
        target_with_status: None,
        unit: "",
        source: Source::Median("copies.pods.copy.peak_to_steady", 1.0),
        command: "copies",
    },
    Figure {
        name: "the same, peak ÷ steady, copied replica",
        target: AtMost(1.15),
        target_with_status: None,
        unit: "",
        source: Source::Median("copies.pods.copy.peak_to_steady_of_first", 1.0),
        command: "copies",
    },
    Figure {
        name: "second replica of 200 informers warm, copied",
        target: AtMost(1.5),
        target_with_status: None,
        unit: " s",
        source: Source::Median("copies.informers.copy.seconds", 1.0),
        command: "copies",
    },
    Figure {
        name: "the same, lists of more than one object",
        target: AtMost(0.0),
        target_with_status: None,
        unit: "",
        source: Source::Median("copies.informers.copy.lists", 1.0),
        command: "copies",
    },
    Figure {
        name: "2,000 idle informers, resident per informer",
        target: AtMost(64.0),
        target_with_status: None,
        unit: " KiB",
        source: Source::Median("idle.kib_per_informer", 1.0),
        command: "idle",
    },
    Figure {
        name: "2,000 idle informers, part of a core",
        target: AtMost(2.0),
        target_with_status: None,
        unit: " %",
        source: Source::Median("idle.core_share", 100.0),
        command: "idle",
    },
    Figure {
        name: "200 informers of 20 kinds, no change, lists at the API server a minute",
        target: AtMost(25.0),
        target_with_status: None,
        unit: "",
        source: Source::Median("rest.informers.lists_per_minute", 1.0),
        command: "rest",
    },
    Figure {
        name: "list of the metadata of 1,000 Events, processor time of the API server",
        target: AtMost(50.0),
        target_with_status: None,
        unit: " ms",
        source: Source::Median("rest.events-1000.list_cpu_seconds", 1000.0),
        command: "rest",
    },
    Figure {
        name: "50,000 Events, no change, lists at the API server a minute",
        target: AtMost(1.5),
        target_with_status: None,
        unit: "",
        source: Source::Median("rest.events-50000.lists_per_minute", 1.0),
        command: "rest",
    },
    milliseconds(
        "`Strict` GET of a store of 200 objects, `--forward`, p99",
        60.0,
        "consistency.forwarded.200.get.p99_seconds",
        "consistency",
    ),
    milliseconds(
        "the same, LIST: additional time compared with the API server",
        60.0,
        "consistency.forwarded.200.list.more_seconds",
        "consistency",
    ),
    Figure {
        name: "the same, GET without `--forward`",
        target: FigureTarget::None,
        target_with_status: None,
        unit: " ms",
        source: Source::Median("consistency.strict.200.get.p99_seconds", 1000.0),
        command: "consistency",
    },
    milliseconds(
        "`Strict` GET of a store of 2,000 objects, `--forward`, p99",
        60.0,
        "consistency.forwarded.2000.get.p99_seconds",
        "consistency",
    ),
    milliseconds(
        "the same, LIST: additional time compared with the API server",
        60.0,
        "consistency.forwarded.2000.list.more_seconds",
        "consistency",
    ),
    Figure {
        name: "the same, GET without `--forward`",
        target: FigureTarget::None,
        target_with_status: None,
        unit: " ms",
        source: Source::Median("consistency.strict.2000.get.p99_seconds", 1000.0),
        command: "consistency",
    },
    milliseconds(
        "`Strict` GET of a store of 50,000 objects, `--forward`, p99",
        60.0,
        "consistency.forwarded.50000.get.p99_seconds",
        "consistency",
    ),
    milliseconds(
        "the same, LIST: additional time compared with the API server",
        60.0,
        "consistency.forwarded.50000.list.more_seconds",
        "consistency",
    ),
    Figure {
        name: "the same, GET without `--forward`",
        target: FigureTarget::None,
        target_with_status: None,
        unit: " ms",
        source: Source::Median("consistency.strict.50000.get.p99_seconds", 1000.0),
        command: "consistency",
    },
    Figure {
        name: "refused reads of all consistencies",
        target: AtMost(0.0),
        target_with_status: None,
        unit: "",
        source: Source::Median("consistency.all_refused", 1.0),
        command: "consistency",
    },
];

const fn ratio(
    name: &'static str,
    target: f64,
    from: &'static str,
    to: &'static str,
    command: &'static str,
) -> Figure {
    let source = Source::Ratio(from, to);
    Figure { name, target: AtMost(target), target_with_status: None, unit: "", source, command }
}

const fn read(
    name: &'static str,
    target: FigureTarget,
    unit: &'static str,
    source: Source,
) -> Figure {
    Figure { name, target, target_with_status: None, unit, source, command: "reads" }
}

const fn watchers(
    name: &'static str,
    target: FigureTarget,
    unit: &'static str,
    source: Source,
) -> Figure {
    Figure { name, target, target_with_status: None, unit, source, command: "watchers" }
}

const fn manager(
    name: &'static str,
    target: FigureTarget,
    unit: &'static str,
    source: Source,
) -> Figure {
    Figure { name, target, target_with_status: None, unit, source, command: "managers" }
}

const fn forecast(
    name: &'static str,
    target: f64,
    forecast: &'static str,
    actual: &'static str,
) -> Figure {
    let source = Source::OffBy(forecast, actual);
    Figure {
        name,
        target: AtMost(target),
        target_with_status: None,
        unit: "",
        source,
        command: "operator",
    }
}

const fn milliseconds(
    name: &'static str,
    target: f64,
    sample: &'static str,
    command: &'static str,
) -> Figure {
    let source = Source::Median(sample, 1000.0);
    Figure { name, target: AtMost(target), target_with_status: None, unit: " ms", source, command }
}

impl Figure {
    /// The measured value of the figure, or `None` if a sample is missing.
    #[must_use]
    pub fn seen(&self, samples: &Samples) -> Option<f64> {
        match self.source {
            Source::Median(name, factor) => Some(samples.median(name)? * factor),
            Source::Ratio(name, to) => samples.ratio(name, to),
            Source::RatioOfRatios([name, to], [other, other_to]) => {
                Some(samples.ratio(name, to)? / samples.ratio(other, other_to)?)
            }
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
    fn a_forecast_that_is_too_low_counts_like_one_that_is_too_high() {
        let mut samples = Samples::default();
        for (name, value) in [("forecast.bytes", 50.0), ("operator.store_bytes", 100.0)] {
            samples.push(name, value);
        }
        let memory = FIGURES.iter().find(|figure| figure.name.starts_with("forecast of memory"));
        assert_eq!(memory.unwrap().seen(&samples), Some(2.0));
    }

    #[test]
    fn a_slower_machine_does_not_change_a_ratio_of_ratios() {
        let mut samples = Samples::default();
        for (name, value) in [
            ("reads.typed.seconds", 3.0),
            ("reads.api.typed.seconds", 4.0),
            ("reads.drop.typed.seconds", 4.0),
            ("reads.drop.api.typed.seconds", 8.0),
        ] {
            samples.push(name, value);
        }
        let typed =
            FIGURES.iter().rfind(|figure| figure.name.contains("client-go's typed informer"));
        assert_eq!(typed.unwrap().seen(&samples), Some(1.5));
    }

    #[test]
    fn auto_is_compared_with_the_fastest_method_of_its_round() {
        let mut samples = Samples::default();
        for (name, value) in DRAINS.iter().zip([3.0, 5.0, 2.0]) {
            samples.push(name, value);
        }
        samples.push("warm.auto.seconds", 4.0);
        let auto = FIGURES.iter().find(|figure| figure.command == "warm auto").unwrap();
        assert_eq!(auto.seen(&samples), Some(2.0));
    }
}
