//! Tests that `docs/reference/conditions.md` explains each reason of a condition, each Event and
//! each problem exactly once.

use crate::read;
use kubewarm::status::{Reference, reference};
use kubewarm_api::v1alpha1::CONDITION_TYPES;

const PAGE: &str = "docs/reference/conditions.md";

/// The explained names in the section with this heading, and the names in its lines that start with
/// `As above:`. Each line has one list of names.
fn explained(page: &str, heading: &str) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let section = page.split_once(&format!("\n{heading}\n")).unwrap_or_default().1;
    assert!(!section.is_empty(), "the page has no section {heading:?}");
    let section = section.split("\n#").next().unwrap_or_default();
    let reasons = section.lines().filter_map(|line| {
        let (names, explanation) = line.strip_prefix("- ")?.split_once(": ")?;
        assert!(explanation.ends_with(['.', '*']), "{line}");
        Some(quoted(names))
    });
    let above = section.lines().filter_map(|line| line.strip_prefix("As above: "));
    (reasons.collect(), above.flat_map(|names| names.split(", ")).map(quoted).collect())
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_reason_of_a_condition_is_explained_in_the_order_of_severity() {
    let page = read(PAGE);
    for condition in CONDITION_TYPES {
        let (reasons, above) = explained(&page, &format!("### {condition}"));
        let rows = reference().conditions.into_iter().filter(|[kind, ..]| *kind == condition);
        let expected: Vec<_> = rows.map(|[_, status, reason]| vec![status, reason]).collect();
        let (repeated, new): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|row| above.iter().any(|other| other == row));
        assert_eq!((reasons, above), (owned(new), owned(repeated)), "{condition}");
    }
    let (meanings, _) = explained(&page, "## Conditions");
    assert_eq!(meanings, owned(CONDITION_TYPES.map(|condition| vec![condition]).to_vec()));
}

#[test]
fn each_event_and_problem_is_explained() {
    let page = read(PAGE);
    let Reference { events, problems, .. } = reference();
    let mut expected = owned(events.into_iter().map(Vec::from).collect());
    let (mut names, _) = explained(&page, "## Events");
    expected.sort();
    names.sort();
    expected.dedup();
    assert_eq!(names, expected);
    let (names, _) = explained(&page, "## Problems");
    assert_eq!(names, owned(problems.into_iter().map(|problem| vec![problem]).collect()));
}

fn owned(rows: Vec<Vec<&str>>) -> Vec<Vec<String>> {
    rows.into_iter().map(|row| row.into_iter().map(str::to_owned).collect()).collect()
}
