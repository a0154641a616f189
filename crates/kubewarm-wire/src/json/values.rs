//! Finds the values of many field paths in one walk through an object's JSON.

use super::{
    JsonCursor,
    paths::{FieldPathNode, FieldPathSet},
    unescape,
};
use std::{collections::BTreeMap, mem};

/// The state of a walk through an object's JSON. The walk recurses once for each step of a field
/// path, and a field path has at most 64 steps.
struct PathWalkState<'w, E> {
    each: &'w mut E,
    /// Number of objects visited so far.
    objects: usize,
    /// For each `FieldPathNode::number`, the value of `objects` when the walk last found this
    /// field. If `objects` has not changed since, the walk is still in the same object. A further
    /// member with this name is then a duplicate, which the walk ignores.
    found_in: Vec<usize>,
}

impl JsonCursor<'_> {
    /// Calls `each` for every scalar that a field path finds, with the path's index in `paths` and
    /// the scalar's text. Strings are unescaped; numbers and booleans are unchanged. A path that
    /// ends at an object, a list or a null finds nothing. If an object has several members with the
    /// same name, only the first one counts. The values of a path do not depend on the other paths.
    ///
    /// Returns `None` if the part of the text that the walk has read is not JSON. `each` has
    /// received all values before this part.
    ///
    /// # Cost
    ///
    /// One walk through the text, up to the last possible value: about 1 ns for each byte, for any
    /// number of paths. If the text is JSON, the walk visits no byte twice. The walk looks up each
    /// member of an object in a map of the fields that the paths select.
    pub fn values(self, paths: &FieldPathSet, each: &mut impl FnMut(usize, &str)) -> Option<()> {
        self.values_at(paths, paths.root(), each)
    }

    /// Like [`JsonCursor::values`], if the value at the cursor is at the position `node` of the
    /// object.
    pub(crate) fn values_at(
        mut self,
        paths: &FieldPathSet,
        node: &FieldPathNode,
        each: &mut impl FnMut(usize, &str),
    ) -> Option<()> {
        let mut walk = PathWalkState { each, objects: 0, found_in: vec![0; paths.fields()] };
        self.value(node, &mut walk).map(|_left_open| ())
    }

    /// Finds the values of all field paths through `node`, in the value at the cursor. To save
    /// time, stops when no more values are possible, even inside nested lists and objects.
    ///
    /// Returns the number of lists and objects that the cursor has entered but not left. The caller
    /// passes this number to `JsonCursor::leave`, which moves the cursor behind the value.
    fn value<E: FnMut(usize, &str)>(
        &mut self,
        node: &FieldPathNode,
        walk: &mut PathWalkState<'_, E>,
    ) -> Option<usize> {
        match self.peek()? {
            b'{' => {
                self.step();
                if node.fields.is_empty() { Some(1) } else { self.members(&node.fields, walk) }
            }
            b'[' => {
                self.step();
                node.elements.as_ref().map_or(Some(1), |node| self.elements(node, walk))
            }
            b'"' => {
                let string = self.string()?;
                // A string with an invalid escape has no text, so it is not a value. It cannot
                // occur in a store, because the informer's decoder rejects such an object.
                if let Some(path) = node.end
                    && let Some(text) = unescape(string)
                {
                    (walk.each)(path, &text);
                }
                Some(0)
            }
            byte => {
                let raw = self.raw()?;
                if let Some(path) = node.end
                    && let Ok(text) = std::str::from_utf8(raw)
                    && byte != b'n'
                {
                    (walk.each)(path, text);
                }
                Some(0)
            }
        }
    }

    /// Visits the members of an object. The cursor is behind the opening brace. Like
    /// [`JsonCursor::value`], returns the number of lists and objects that the cursor has entered
    /// but not left.
    fn members<E: FnMut(usize, &str)>(
        &mut self,
        fields: &BTreeMap<Box<[u8]>, FieldPathNode>,
        walk: &mut PathWalkState<'_, E>,
    ) -> Option<usize> {
        if self.peek()? == b'}' {
            self.step();
            return Some(0);
        }
        walk.objects += 1;
        let (object, mut left) = (walk.objects, fields.len());
        loop {
            let name = self.string()?;
            self.take(b':')?;
            let field = fields.get(name).or_else(|| {
                // A field path contains no character that JSON escapes, so no name in `fields` has
                // an escape. A member's name with a backslash can match only after unescaping.
                memchr::memchr(b'\\', name)?;
                fields.get(unescape(name)?.as_bytes())
            });
            let first = field.filter(|field| {
                let found_in = walk.found_in.get_mut(field.number);
                found_in.is_some_and(|found_in| mem::replace(found_in, object) != object)
            });
            if let Some(field) = first {
                left -= 1;
                let start = *self;
                match self.value(field, walk) {
                    Some(open) if left == 0 => return Some(open + 1),
                    open => self.leave(start, open)?,
                }
            } else {
                self.skip()?;
            }
            if !self.has_more(b'}')? {
                return Some(0);
            }
        }
    }

    /// Visits the elements of a list. The cursor is behind the opening bracket. Like
    /// [`JsonCursor::value`], returns the number of lists and objects that the cursor has entered
    /// but not left.
    fn elements<E: FnMut(usize, &str)>(
        &mut self,
        node: &FieldPathNode,
        walk: &mut PathWalkState<'_, E>,
    ) -> Option<usize> {
        if self.peek()? == b']' {
            self.step();
            return Some(0);
        }
        loop {
            let start = *self;
            let open = self.value(node, walk);
            self.leave(start, open)?;
            if !self.has_more(b']')? {
                return Some(0);
            }
        }
    }

    /// Moves the cursor to the end of the value that begins at `start`. `open` is the result of
    /// [`JsonCursor::value`] for this value; `None` if the value is not JSON.
    ///
    /// The function skips an invalid value by counting its brackets, so that all paths that do not
    /// lead into this value still find theirs. Returns `None` if the brackets do not match.
    fn leave(&mut self, start: Self, open: Option<usize>) -> Option<()> {
        match open {
            Some(0) => return Some(()),
            Some(open) if self.step_over(open).is_some() => return Some(()),
            Some(_) | None => *self = start,
        }
        self.skip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::PEEKS;
    use kubewarm_api::model::FieldPath;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn paths(texts: &[&str]) -> FieldPathSet {
        texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect()
    }

    fn all_values(json: &[u8], paths: &FieldPathSet) -> (Vec<Vec<String>>, Option<()>) {
        let mut seen = vec![Vec::new(); paths.all().len()];
        let done = JsonCursor::new(json)
            .values(paths, &mut |path, value| seen[path].push(value.to_owned()));
        (seen, done)
    }

    fn values(json: &str, path: &str) -> Option<Vec<String>> {
        let (mut seen, done) = all_values(json.as_bytes(), &paths(&[path]));
        done.and_then(|()| seen.pop())
    }

    /// Collects the values that the walk must find: follows one field path step by step through a
    /// parsed document.
    fn reference_values(value: &Value, steps: &[(&str, bool)], texts: &mut Vec<String>) {
        let Some((&(field, is_list), rest)) = steps.split_first() else {
            match value {
                Value::String(text) => texts.push(text.clone()),
                Value::Number(_) | Value::Bool(_) => texts.push(value.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => {}
            }
            return;
        };
        let Some(value) = value.as_object().and_then(|object| object.get(field)) else {
            return;
        };
        match (is_list, value) {
            (true, Value::Array(list)) => {
                for element in list {
                    reference_values(element, rest, texts);
                }
            }
            (true, _) => {}
            (false, value) => reference_values(value, rest, texts),
        }
    }

    #[test]
    fn a_path_finds_scalars_in_every_element_of_a_list() {
        let json = r#"{"a":[{"x":[1,{"y":"]"}],"b":{"c":"p"}},{"b":{"c":true}},{"b":{}},
            {"b":{"c":null}}, {"b":{"c":[2]}},7 ,{"b":{"c":-1.5e3}},{"b":{"c":"q\"\u0041"}}]}"#;
        assert_eq!(values(json, "a[*].b.c").unwrap(), ["p", "true", "-1.5e3", "q\"A"]);
        assert_eq!(values(r#"{"a":["x",2,[3],{}]}"#, "a[*]").unwrap(), ["x", "2"]);
        assert_eq!(values(r#"{"\u0061":{"b":"v"}}"#, "a.b").unwrap(), ["v"]);
    }

    #[test]
    fn a_path_without_a_match_has_no_values() {
        for json in ["{}", "[]", "3", r#"{"a":{}}"#, r#"{"a":[]}"#, r#"{"a":"b"}"#] {
            assert_eq!(values(json, "a.b").unwrap(), Vec::<String>::new(), "{json}");
            assert_eq!(values(json, "a[*].b").unwrap(), Vec::<String>::new(), "{json}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_an_error() {
        for json in ["", "{", r#"{"a"#, r#"{"b":1"#, r#"{"b":,}"#, r#"{"a":{"b":"x}"#, r#"{"b":"\"#]
        {
            assert_eq!(values(json, "a.b"), None, "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert_eq!(values(&format!(r#"{{"x":{deep}"#), "a.b"), None);
    }

    #[test]
    fn the_first_of_duplicate_members_counts_and_lone_surrogates_are_replaced() {
        let json = r#"{"a":{"b":1,"b":2},"\u0061":{"b":3},"c":["\ud800","x"],"\ud800":0,"d":4}"#;
        let (seen, done) = all_values(json.as_bytes(), &paths(&["a.b", "c[*]", "d"]));
        assert_eq!(seen, [vec!["1"], vec!["\u{fffd}", "x"], vec!["4"]]);
        assert!(done.is_some());
    }

    /// Returns how often a walk through `json` for `paths` calls `JsonCursor::peek`.
    fn peeks(json: &str, paths: &FieldPathSet) -> usize {
        let before = PEEKS.get();
        all_values(json.as_bytes(), paths);
        PEEKS.get() - before
    }

    #[test]
    fn many_paths_cost_one_walk_at_any_depth() {
        // Each of the 64 field paths ends at a different field, inside nested lists.
        let deep = |value: Value| json!([{"c": [{"d": [value, {"e": "f"}]}, {"d": []}]}]);
        let fields: serde_json::Map<_, _> =
            (0..64).map(|n| (format!("x{n:02}"), json!(n))).collect();
        let body = json!({"a": {"b": deep(Value::Object(fields))}, "z": 0});
        let texts: Vec<_> = (0..64).map(|n| format!("a.b[*].c[*].d[*].x{n:02}")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let body = body.to_string();
        let (seen, _) = all_values(body.as_bytes(), &paths(&texts));
        assert!(seen.iter().enumerate().all(|(n, seen)| *seen == [n.to_string()]));
        // `z` is the last member of the JSON object, so this walk visits the complete text.
        let one_walk = peeks(&body, &paths(&["z"]));
        let [single, all] = [&texts[63..], &texts[..]].map(|texts| peeks(&body, &paths(texts)));
        assert!(one_walk > 64 * 3, "{one_walk}");
        assert!(
            single < 2 * one_walk && all < 2 * one_walk,
            "{single} {all}, one walk: {one_walk}"
        );
    }

    #[test]
    fn a_walk_stops_after_the_last_possible_value() {
        let rest = json!(vec![0; 1_000]).to_string();
        let body = format!(r#"{{"a":{{"b":{{"c":1,"d":{rest}}},"e":{rest}}},"f":{rest}}}"#);
        let (seen, _) = all_values(body.as_bytes(), &paths(&["a.b.c"]));
        assert_eq!(seen, [["1"]]);
        assert!(peeks(&body, &paths(&["a.b.c"])) < 30);
        // A field path without `[*]` finds nothing in a list, so the walk skips the lists `d` and
        // `e`.
        assert!(
            peeks(&body, &paths(&["a.e.x", "a.b.d.x"])) < 2_500,
            "the walk searches `d` or `e`"
        );
    }

    /// Generates documents in which the paths of `some_paths` find values.
    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (-9..9_i32).prop_map(Value::from),
            "[a-c\"\\\\é]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc\\\\]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn some_paths() -> impl Strategy<Value = Vec<FieldPath>> {
        let path = "[abc](\\[\\*\\])?(\\.[abc](\\[\\*\\])?){0,3}";
        let path = path.prop_map(|text| FieldPath::parse(&text).unwrap());
        prop::collection::vec(path, 1..9)
    }

    proptest! {
        #[test]
        fn many_paths_together_find_the_expected_values_of_each(
            document in document(),
            wanted in some_paths(),
        ) {
            let together: FieldPathSet = wanted.into_iter().collect();
            let (values, done) = all_values(document.to_string().as_bytes(), &together);
            prop_assert!(done.is_some());
            for (path, texts) in together.all().iter().zip(values) {
                let steps: Vec<_> = path.steps().collect();
                let mut expected = Vec::new();
                reference_values(&document, &steps, &mut expected);
                prop_assert_eq!(texts, expected, "{}", path);
            }
        }

        #[test]
        fn the_values_of_a_path_do_not_depend_on_other_paths_even_in_invalid_json(
            text in r#"(\{"[abc]":|"[abc]":|\[|\]|\}|,|:|"x"|1|\\|"| |\{){0,30}"#,
            wanted in some_paths(),
        ) {
            let together: FieldPathSet = wanted.into_iter().collect();
            let (values, _) = all_values(text.as_bytes(), &together);
            for (path, texts) in together.all().iter().zip(values) {
                let alone: FieldPathSet = [path.clone()].into_iter().collect();
                prop_assert_eq!(&texts, &all_values(text.as_bytes(), &alone).0[0], "{}", path);
            }
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\ab1 ]{0,40}"#) {
            let paths = paths(&["a[*].b", "a", "b.a"]);
            let _ = JsonCursor::new(&bytes).values(&paths, &mut |_, _| ());
            let _ = JsonCursor::new(&bytes).strings(&mut |_, _| ());
            let _ = JsonCursor::new(text.as_bytes()).strings(&mut |_, _| ());
            let _ = JsonCursor::new(text.as_bytes()).values(&paths, &mut |_, _| ());
        }
    }
}
