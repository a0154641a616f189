//! Removes members from a JSON object by byte range. All other bytes stay unchanged.

use std::ops::Range;

/// Appends `json` to `into` without the members whose byte ranges are in `holes`. Each range must
/// come from [`member`], which includes the member's comma.
pub(super) fn cut(into: &mut Vec<u8>, json: &str, mut holes: [Option<Range<usize>>; 3]) {
    holes.sort_by_key(|hole| hole.as_ref().map_or(usize::MAX, |hole| hole.start));
    let json = json.as_bytes();
    let mut from = 0;
    for hole in holes.into_iter().flatten() {
        into.extend_from_slice(json.get(from..hole.start).unwrap_or_default());
        let is_last = !json.get(hole.clone()).unwrap_or_default().ends_with(b",");
        from = hole.end;
        if is_last {
            // The last member has no comma after it, so remove the comma before it.
            let kept = into.trim_ascii_end();
            let kept = kept.strip_suffix(b",").unwrap_or(kept).len();
            into.truncate(kept);
        }
    }
    into.extend_from_slice(json.get(from..).unwrap_or_default());
}

/// Returns the byte range of the member with this value in `json`. The range covers key, colon,
/// value and the comma after it, if any.
///
/// `value` must be a slice of `json`, and `json` must be valid JSON.
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
