//! Tests the links between the Markdown documents of the repository.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn relative_links_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    for page in pages(root) {
        let text = read(&page);
        let name = page.strip_prefix(root).expect("the page is below the root").display();
        for (line, link) in links(&text) {
            if let Some(problem) = problem(&page, &link) {
                broken.push(format!("{name}:{line}: {link}: {problem}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Why a link of `page` leads nowhere. Links to other hosts are not checked.
fn problem(page: &Path, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        page.parent().expect("a page is in a folder").join(path)
    };
    if !target.exists() {
        return Some("no such file");
    }
    let is_page = target.extension().is_some_and(|extension| extension == "md");
    let is_missing = is_page && !anchor.is_empty() && !anchors(&read(&target)).contains(anchor);
    is_missing.then_some("no such heading")
}

/// All Markdown files below `folder`, except files in hidden folders and in `target`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let entry = entry.expect("the folder is readable");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type().expect("the type is known").is_dir() {
            if !name.starts_with('.') && name != "target" {
                paths.extend(pages(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    paths
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).expect("the page is readable")
}

/// Lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_mark = line.trim_start().starts_with("```");
        is_code ^= is_mark;
        (!is_code && !is_mark).then_some((index + 1, line))
    })
}

/// The targets of links, with their lines. Code within a line has none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line: String = line.split('`').step_by(2).collect();
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.extend(targets.map(|(target, _)| (number, target.to_owned())));
    }
    links
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line)).collect()
}

fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn anchors_are_made_from_headings_outside_code() {
    let page = "# A whole client: `--forward`\n```sh\n# comment\n```\n## When one fails, retry\n";
    let expected = ["a-whole-client---forward", "when-one-fails-retry"];
    assert_eq!(anchors(page), BTreeSet::from(expected.map(str::to_owned)));
}

#[test]
fn links_are_found_with_their_lines() {
    let page = "[a](b.md) and [`c`](d.md#e), not `[f](g)`\n```\n[h](i)\n```\n[j](#k)";
    let expected = [(1, "b.md"), (1, "d.md#e"), (5, "#k")];
    assert_eq!(links(page), expected.map(|(line, link)| (line, link.to_owned())));
}
