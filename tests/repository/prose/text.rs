//! Finds the words of a file and the sentences of a document, for `make prose`.

use std::mem;

/// Characters that can stand between two words of one phrase, in addition to blanks: underscores of
/// names, and marks of comments and strings.
const MARKS: &str = "_/#*!>|-\"\\";

/// A word of a file, in lower case.
pub(super) struct Word {
    text: String,
    pub(super) line: usize,
    /// Whether only blanks and [`MARKS`] separate it from the word before.
    follows: bool,
}

/// Splits `text` at all characters that are not ASCII letters.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut word, mut line, mut follows) = (String::new(), 1, false);
    for c in text.chars().chain([' ']) {
        if c.is_ascii_alphabetic() {
            word.push(c.to_ascii_lowercase());
            continue;
        }
        if !word.is_empty() {
            words.push(Word { text: mem::take(&mut word), line, follows });
            follows = true;
        }
        follows &= c.is_whitespace() || MARKS.contains(c);
        line += usize::from(c == '\n');
    }
    words
}

/// The lines on which `phrase` begins. `phrase` must be in lower case, with one blank between two
/// words.
pub(super) fn lines_with(words: &[Word], phrase: &str) -> Vec<usize> {
    let parts: Vec<_> = phrase.split(' ').collect();
    let is_phrase = |window: &&[Word]| {
        let is_same = window.iter().zip(&parts).all(|(word, part)| word.text == *part);
        is_same && window.iter().skip(1).all(|word| word.follows)
    };
    let phrases = words.windows(parts.len()).filter(is_phrase);
    phrases.filter_map(|window| window.first().map(|word| word.line)).collect()
}

/// The headings, paragraphs, list items and table cells of a Markdown page, each with its first
/// line. Blocks of code and HTML comments are left out, and each span of code is one word.
pub(super) fn units(page: &str) -> Vec<(usize, String)> {
    let page = without_html_comments(page);
    let mut units: Vec<(usize, String)> = Vec::new();
    let (mut block, mut is_open) = (None, false);
    for (line, text) in (1..).zip(page.lines()) {
        let text = text.trim().trim_start_matches("> ");
        let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        if block.is_some() || mark.is_some() {
            block = if block.is_none() { mark } else { block.filter(|open| mark != Some(*open)) };
            is_open = false;
        } else if text.is_empty() {
            is_open = false;
        } else if text.starts_with('#') {
            units.push((line, text.to_owned()));
            is_open = false;
        } else if text.starts_with('|') {
            units.extend(text.split('|').map(|informer| (line, informer.to_owned())));
            is_open = false;
        } else if let Some(item) = list_item(text) {
            units.push((line, item.to_owned()));
            is_open = true;
        } else if let Some((_, unit)) = units.last_mut().filter(|_| is_open) {
            unit.push(' ');
            unit.push_str(text);
        } else {
            units.push((line, text.to_owned()));
            is_open = true;
        }
    }
    units.into_iter().map(|(line, unit)| (line, with_short_code(&unit))).collect()
}

/// The number of words of each sentence of a unit. A sentence ends at `.`, `?` or `!` before a
/// blank.
pub(super) fn lengths(unit: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut length = 0;
    for part in unit.split_whitespace() {
        length += usize::from(part.contains(char::is_alphanumeric));
        let is_end = part.trim_end_matches(['"', '\'', ')', ']', '*']).ends_with(['.', '?', '!']);
        if is_end {
            lengths.push(mem::take(&mut length));
        }
    }
    lengths.push(length);
    lengths
}

/// The text of a list item, if `line` starts one.
fn list_item(line: &str) -> Option<&str> {
    let bullet = ["- ", "* "].into_iter().find_map(|mark| line.strip_prefix(mark));
    bullet.or_else(|| {
        let (number, text) = line.split_once(". ")?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)
    })
}

/// `page` without HTML comments. The number of lines stays the same.
fn without_html_comments(page: &str) -> String {
    let (mut kept, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once("<!--") {
        let (comment, behind) = after.split_once("-->").unwrap_or((after, ""));
        kept.push_str(before);
        kept.extend(comment.chars().filter(|c| *c == '\n'));
        rest = behind;
    }
    kept + rest
}

/// `unit` with one word in place of each span of code.
fn with_short_code(unit: &str) -> String {
    let parts = unit.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { "code" } else { part }).collect()
}
