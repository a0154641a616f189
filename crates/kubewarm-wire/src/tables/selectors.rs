use super::json_view::JsonView;

const NONE: &str = "<none>";

pub(super) fn labels(labels: JsonView<'_>) -> String {
    let mut all: Vec<_> =
        labels.entries().map(|(key, value)| format!("{key}={}", value.text())).collect();
    all.sort_unstable();
    or_none(&all)
}

pub(super) fn selector(selector: JsonView<'_>) -> String {
    let equal = selector.at("matchLabels").entries();
    let equal = equal.map(|(key, value)| (key, format!("{key}={}", value.text())));
    let expressions = selector.at("matchExpressions").items().map(|expression| {
        let key = expression.at("key").text();
        let mut values: Vec<_> = expression.at("values").items().map(JsonView::text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression.at("operator").text() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, text)
    });
    let mut all: Vec<_> = equal.chain(expressions).collect();
    all.sort_by_key(|(key, _)| *key);
    or_none(&all.into_iter().map(|(_, text)| text).collect::<Vec<_>>())
}

fn or_none(all: &[String]) -> String {
    if all.is_empty() { NONE.to_owned() } else { all.join(",") }
}

/// Returns the names and the images of the containers in a pod spec: two texts, each joined with
/// commas.
pub(super) fn containers(spec: JsonView<'_>) -> [String; 2] {
    ["name", "image"].map(|field| {
        let all = spec.at("containers").items().map(|container| container.at(field).text());
        all.collect::<Vec<_>>().join(",")
    })
}

/// Joins at most `max` texts of `all` with `between`. If `all` has more, appends the number of
/// omitted texts, such as `+ 2 more...`.
pub(super) fn first_of(all: &[String], max: usize, between: &str) -> String {
    match all.split_at_checked(max) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} + {} more...", first.join(between), rest.len())
        }
        _ => all.join(between),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_formatted_as_in_a_query() {
        let selector_json = json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "d", "operator": "In", "values": ["y", "x"]},
                {"key": "c", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"},
                {"key": "aa", "operator": "NotIn", "values": ["x"]},
            ],
        });
        assert_eq!(
            selector(JsonView(Some(&selector_json))),
            "a=1,aa notin (x),b=2,c,d in (x,y),!e"
        );
        assert_eq!((selector(JsonView(None)), labels(JsonView(None))), (NONE.into(), NONE.into()));
        assert_eq!(labels(JsonView(Some(&selector_json["matchLabels"]))), "a=1,b=2");
    }

    #[test]
    fn texts_above_the_maximum_are_counted() {
        let all: Vec<_> = (0..5).map(|n| n.to_string()).collect();
        assert_eq!(first_of(&all, 3, ","), "0,1,2 + 2 more...");
        assert_eq!(first_of(&all[..3], 3, ","), "0,1,2");
        assert_eq!(first_of(&[], 3, ","), "");
    }
}
