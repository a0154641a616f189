//! Cuts members out of an object by byte range; every other byte stays as it came.

use std::ops::Range;

/// Appends `json` without the members at `holes`, which [`member`] found.
pub(super) fn cut(into: &mut Vec<u8>, json: &str, mut holes: [Option<Range<usize>>; 3]) {
    holes.sort_by_key(|hole| hole.as_ref().map_or(usize::MAX, |hole| hole.start));
    let json = json.as_bytes();
    let mut from = 0;
    for hole in holes.into_iter().flatten() {
        into.extend_from_slice(json.get(from..hole.start).unwrap_or_default());
        let is_last = !json.get(hole.clone()).unwrap_or_default().ends_with(b",");
        from = hole.end;
        if is_last {
            // No comma was behind it, so the one before it must go.
            let kept = into.trim_ascii_end();
            let kept = kept.strip_suffix(b",").unwrap_or(kept).len();
            into.truncate(kept);
        }
    }
    into.extend_from_slice(json.get(from..).unwrap_or_default());
}

/// Where the member with this value is in `json`: its key, colon, value and the comma behind it, if there is one.
///
/// `value` must be a slice of `json`; the syntax around it has been checked by whoever parsed it.
pub(super) fn member(json: &str, value: &str) -> Option<Range<usize>> {
    let bytes = json.as_bytes();
    let start = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let end = start.checked_add(value.len()).filter(|&end| end <= bytes.len())?;
    let trimmed = |end: usize| bytes.get(..end).map(|head| head.trim_ascii_end().len());

    let colon = trimmed(start)?.checked_sub(1)?;
    let key_end = trimmed(colon)?.checked_sub(1)?;
    let key_start = memchr::memrchr(b'"', bytes.get(..key_end)?)?;
    let rest = bytes.get(end..)?;
    let after = rest.trim_ascii_start();
    let comma = if after.first() == Some(&b',') { rest.len() - after.len() + 1 } else { 0 };
    Some(key_start..end + comma)
}
