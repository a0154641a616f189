use super::{
    super::{fixtures, overview::overview, target_report::target, version},
    *,
};
use kubewarm_api::model::FaultReason;

fn written(sections: Vec<ReportSection>, width: usize) -> String {
    let format = ReportFormat::Text(TerminalLayout { width, ..TerminalLayout::default() });
    render(&CommandReport { sections, ..CommandReport::default() }, format).unwrap()
}

fn grid(name: &str, objects: &str, state: &str) -> ReportRow {
    ReportRow::of(vec![
        ReportFact::new(TextTone::Plain, name),
        ReportFact::number(objects),
        ReportFact::new(TextTone::Plain, state),
    ])
}

#[test]
fn each_check_is_a_line_with_its_next_step_below() {
    let sections = vec![
        ReportSection::new("API server", vec![ReportRow::good("answers")]),
        ReportSection::default(),
        ReportSection::new(
            "profiles",
            vec![
                ReportRow::bad("shop/a: \u{1b}[2J is not ready for a long reason")
                    .next("kubectl get cacheprofiles -A"),
                ReportRow::unseen("the lease", &RequestFault::new(FaultReason::Forbidden, "no")),
                ReportRow::note("paused"),
            ],
        ),
    ];
    let expected = "\
API server
✔ answers

profiles
✗ shop/a: \\u{1b}[2J is not
  ready for a long reason
    kubectl get cacheprofiles -A
? not checked: the lease: no
! paused
";
    assert_eq!(written(sections, 28), expected);
}

#[test]
fn facts_are_aligned_with_and_without_a_heading() {
    let rows =
        vec![grid("NAME", "OBJECTS", "STATE"), grid("a-name", "1", "warm"), grid("b", "-", "")];
    let table = "NAME    OBJECTS  STATE\na-name        1  warm\nb             -\n";
    assert_eq!(
        written(vec![ReportSection { rows: rows.clone(), ..ReportSection::default() }], 0),
        table
    );
    let indented = table.replace('\n', "\n  ");
    let indented = format!("shop\n  {}", indented.trim_end_matches(' '));
    assert_eq!(written(vec![ReportSection::new("shop", rows)], 0), indented);
}

#[test]
fn text_after_a_label_is_wrapped_in_its_column() {
    let rows = vec![
        ReportRow::labelled("synced", TextTone::Plain, "1 of 4"),
        ReportRow::labelled("problem", TextTone::Bad, "twenty columns of text and some more"),
    ];
    assert_eq!(
        written(vec![ReportSection::new("shop", rows)], 32),
        "shop\n  synced   1 of 4\n  problem  twenty columns of\n           text and some more\n"
    );
}

#[test]
fn control_characters_in_a_report_are_escaped() {
    let evil = "a\u{1b}[2J\nb\u{9b}31m\u{202e}c\u{200b}\u{7f}";
    let fact = || ReportFact::new(TextTone::Bad, evil).named("key", evil);
    let row = |mark| ReportRow {
        mark,
        facts: vec![fact(), ReportFact::number(evil), ReportFact::hidden("hidden", evil), fact()],
        details: vec![ReportRow::of(vec![fact()])],
        next: vec![evil.to_owned()],
    };
    let section = ReportSection {
        head: row(RowMark::Plain),
        rows: vec![row(RowMark::Bad), row(RowMark::Branch)],
    };
    let data = serde_json::json!({ "a": [evil], (evil): 1 });
    let names = Some(vec![evil.to_owned()]);
    let report = CommandReport { sections: vec![section], data, names, ..CommandReport::default() };
    let text = |width| ReportFormat::Text(TerminalLayout { width, ..TerminalLayout::default() });
    let without_data = CommandReport { data: Value::Null, ..report.clone() };
    let wide = ReportFormat::Wide(TerminalLayout::default());
    let texts = [text(0), text(40), text(9), wide, ReportFormat::Lines, ReportFormat::Names];
    let both = [&report, &without_data].into_iter();
    let documents =
        both.flat_map(|report| [(report, ReportFormat::Json), (report, ReportFormat::Yaml)]);
    for (report, format) in texts.map(|format| (&report, format)).into_iter().chain(documents) {
        let written = render(report, format).unwrap();
        let is_safe = |c: char| c == '\n' || !kubewarm_api::model::is_unsafe(c);
        assert!(written.chars().all(is_safe), "{format:?}: {written:?}");
        assert!(written.len() > 9, "{format:?}: {written:?}");
    }
    let json: Value = serde_json::from_str(&render(&report, ReportFormat::Json).unwrap()).unwrap();
    assert_eq!(json["a"][0], evil, "JSON is lossless");
}

#[test]
fn values_with_spaces_are_quoted() {
    let facts = vec![
        ReportFact::hidden("a", "b"),
        ReportFact::hidden("c", "say \"no\"\n"),
        ReportFact::hidden("d", ""),
    ];
    let report = CommandReport {
        sections: vec![ReportSection { head: ReportRow::of(facts), rows: Vec::new() }],
        ..CommandReport::default()
    };
    let text = render(&report, ReportFormat::Lines).unwrap();
    assert_eq!(text, "a=b c=\"say \\\"no\\\"\\n\" d=\"\"\n");
}

#[test]
fn only_failed_checks_fail_the_command() {
    let verdict = |row| {
        CommandReport::judged(vec![ReportSection::new("x", vec![ReportRow::good("a"), row])])
            .verdict
    };
    assert_eq!(verdict(ReportRow::bad("b")), CommandExitCode::Bad);
    let unseen = ReportRow::unseen("b", &RequestFault::new(FaultReason::Forbidden, "no"));
    for row in [ReportRow::note("b"), unseen] {
        assert_eq!(verdict(row), CommandExitCode::Good);
    }
}

#[test]
fn a_report_without_data_is_printed_as_sections() {
    let fault = RequestFault::new(FaultReason::Forbidden, "no");
    let details = vec![ReportRow::of(vec![ReportFact::new(TextTone::Plain, "why")])];
    let rows = vec![
        ReportRow { details, ..ReportRow::bad("a").next("kubectl get a") },
        ReportRow::unseen("b", &fault),
        ReportRow::of(vec![ReportFact::hidden("key", "value")]),
    ];
    let report = CommandReport::judged(vec![ReportSection::new("title", rows)]);
    let json: Value = serde_json::from_str(&render(&report, ReportFormat::Json).unwrap()).unwrap();
    let expected = serde_json::json!({
        "sections": [{
            "title": "title",
            "rows": [
                {
                    "result": "failed", "text": "a", "details": [{"text": "why"}],
                    "next": ["kubectl get a"],
                },
                {"result": "notChecked", "text": "not checked: b: no"},
                {"facts": {"key": "value"}},
            ],
        }],
        "verdict": "notOk",
    });
    assert_eq!(json, expected);
    let yaml: Value =
        serde_saphyr::from_str(&render(&report, ReportFormat::Yaml).unwrap()).unwrap();
    assert_eq!(yaml, expected);
}

#[test]
fn names_are_printed_one_per_line() {
    let names = |names: Option<Vec<String>>| {
        render(&CommandReport { names, ..CommandReport::default() }, ReportFormat::Names)
    };
    assert_eq!(names(Some(vec!["pod/a".into(), "pod/b".into()])).unwrap(), "pod/a\npod/b\n");
    assert_eq!(names(Some(Vec::new())).unwrap(), "");
    assert!(names(None).unwrap_err().to_string().contains("has no names"));
}

#[test]
fn every_report_of_profiles_has_every_format() {
    let profiles = [fixtures::ready(), fixtures::warming(), fixtures::untouched()];
    let reports = [
        overview(&profiles, "ops", fixtures::now()),
        target(&profiles[0], "pods", "ops", fixtures::now()).unwrap(),
        version::report(&[version::of_client()]),
    ];
    for report in reports {
        let json = render(&report, ReportFormat::Json).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let yaml: Value =
            serde_saphyr::from_str(&render(&report, ReportFormat::Yaml).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert!(
            !render(&report, ReportFormat::Wide(TerminalLayout::default())).unwrap().is_empty()
        );
    }
}
