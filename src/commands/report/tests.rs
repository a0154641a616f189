use super::{
    super::{overview::overview, sample, target::target, version},
    *,
};
use kubewarm_api::model::Reason;

fn written(sections: Vec<Section>, width: usize) -> String {
    let format = Format::Text(Terminal { width, ..Terminal::default() });
    render(&Report { sections, ..Report::default() }, format).unwrap()
}

fn grid(name: &str, objects: &str, state: &str) -> ReportRow {
    ReportRow::of(vec![
        Fact::new(Tone::Plain, name),
        Fact::number(objects),
        Fact::new(Tone::Plain, state),
    ])
}

#[test]
fn each_check_is_a_line_with_its_next_step_below() {
    let sections = vec![
        Section::new("API server", vec![ReportRow::good("answers")]),
        Section::default(),
        Section::new(
            "profiles",
            vec![
                ReportRow::bad("shop/a: \u{1b}[2J is not ready for a long reason")
                    .next("kubectl get cacheprofiles -A"),
                ReportRow::unseen("the lease", &Fault::new(Reason::Forbidden, "no")),
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
    assert_eq!(written(vec![Section { rows: rows.clone(), ..Section::default() }], 0), table);
    let indented = table.replace('\n', "\n  ");
    let indented = format!("shop\n  {}", indented.trim_end_matches(' '));
    assert_eq!(written(vec![Section::new("shop", rows)], 0), indented);
}

#[test]
fn text_after_a_label_is_wrapped_in_its_column() {
    let rows = vec![
        ReportRow::labelled("synced", Tone::Plain, "1 of 4"),
        ReportRow::labelled("problem", Tone::Bad, "twenty columns of text and some more"),
    ];
    assert_eq!(
        written(vec![Section::new("shop", rows)], 32),
        "shop\n  synced   1 of 4\n  problem  twenty columns of\n           text and some more\n"
    );
}

/// Each text of the report, visible or hidden, contains control characters.
#[test]
fn control_characters_in_a_report_are_escaped() {
    let evil = "a\u{1b}[2J\nb\u{9b}31m\u{202e}c\u{200b}\u{7f}";
    let fact = || Fact::new(Tone::Bad, evil).named("key", evil);
    let row = |mark| ReportRow {
        mark,
        facts: vec![fact(), Fact::number(evil), Fact::hidden("hidden", evil), fact()],
        details: vec![ReportRow::of(vec![fact()])],
        next: vec![evil.to_owned()],
    };
    let section = Section { head: row(Mark::Plain), rows: vec![row(Mark::Bad), row(Mark::Branch)] };
    let data = serde_json::json!({ "a": [evil] });
    let names = Some(vec![evil.to_owned()]);
    let report = Report { sections: vec![section], data, names, ..Report::default() };
    let text = |width| Format::Text(Terminal { width, ..Terminal::default() });
    let without_data = Report { data: Value::Null, ..report.clone() };
    let wide = Format::Wide(Terminal::default());
    let texts = [text(0), text(40), text(9), wide, Format::Lines, Format::Names];
    let both = [&report, &without_data].into_iter();
    let documents = both.flat_map(|it| [(it, Format::Json), (it, Format::Yaml)]);
    for (report, format) in texts.map(|format| (&report, format)).into_iter().chain(documents) {
        let written = render(report, format).unwrap();
        let is_safe = |c: char| c == '\n' || !kubewarm_api::model::is_unsafe(c);
        assert!(written.chars().all(is_safe), "{format:?}: {written:?}");
        assert!(written.len() > 9, "{format:?}: {written:?}");
    }
    let json: Value = serde_json::from_str(&render(&report, Format::Json).unwrap()).unwrap();
    assert_eq!(json["a"][0], evil, "JSON is lossless");
}

#[test]
fn values_with_spaces_are_quoted() {
    let facts =
        vec![Fact::hidden("a", "b"), Fact::hidden("c", "say \"no\"\n"), Fact::hidden("d", "")];
    let report = Report {
        sections: vec![Section { head: ReportRow::of(facts), rows: Vec::new() }],
        ..Report::default()
    };
    let text = render(&report, Format::Lines).unwrap();
    assert_eq!(text, "a=b c=\"say \\\"no\\\"\\n\" d=\"\"\n");
}

#[test]
fn only_failed_checks_fail_the_command() {
    let of = |row| Report::judged(vec![Section::new("x", vec![ReportRow::good("a"), row])]).verdict;
    assert_eq!(of(ReportRow::bad("b")), Verdict::Bad);
    let unseen = ReportRow::unseen("b", &Fault::new(Reason::Forbidden, "no"));
    for row in [ReportRow::note("b"), unseen] {
        assert_eq!(of(row), Verdict::Good);
    }
}

#[test]
fn a_report_without_data_is_printed_as_sections() {
    let fault = Fault::new(Reason::Forbidden, "no");
    let details = vec![ReportRow::of(vec![Fact::new(Tone::Plain, "why")])];
    let rows = vec![
        ReportRow { details, ..ReportRow::bad("a").next("kubectl get a") },
        ReportRow::unseen("b", &fault),
        ReportRow::of(vec![Fact::hidden("key", "value")]),
    ];
    let report = Report::judged(vec![Section::new("title", rows)]);
    let json: Value = serde_json::from_str(&render(&report, Format::Json).unwrap()).unwrap();
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
    let yaml: Value = serde_saphyr::from_str(&render(&report, Format::Yaml).unwrap()).unwrap();
    assert_eq!(yaml, expected);
}

#[test]
fn names_are_printed_one_per_line() {
    let names =
        |names: Option<Vec<String>>| render(&Report { names, ..Report::default() }, Format::Names);
    assert_eq!(names(Some(vec!["pod/a".into(), "pod/b".into()])).unwrap(), "pod/a\npod/b\n");
    assert_eq!(names(Some(Vec::new())).unwrap(), "");
    assert!(names(None).unwrap_err().to_string().contains("has no names"));
}

#[test]
fn every_report_of_profiles_has_every_format() {
    let profiles = [sample::ready(), sample::warming(), sample::untouched()];
    let reports = [
        overview(&profiles, sample::now()),
        target(&profiles[0], "pods", sample::now()).unwrap(),
        version::report(),
    ];
    for report in reports {
        let json = render(&report, Format::Json).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let yaml: Value = serde_saphyr::from_str(&render(&report, Format::Yaml).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert!(!render(&report, Format::Wide(Terminal::default())).unwrap().is_empty());
    }
}
