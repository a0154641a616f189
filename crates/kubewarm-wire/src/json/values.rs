//! Finds the values of many field paths in one walk of a body.

use super::{
    Cursor,
    paths::{Node, Paths},
    unescape,
};
use std::{collections::BTreeMap, mem};

/// A walk for the values of some paths. It recurses as deep as their steps, of which a path has 64 at most.
struct Walk<'w, E> {
    each: &'w mut E,
    /// Objects that have been gone into.
    objects: usize,
    /// By a field's number, in which of these it was found last.
    found_in: Vec<usize>,
}

impl Cursor<'_> {
    /// Calls `each` with every scalar that the paths lead to, and with which of them it was: strings
    /// unescaped, numbers and booleans as written. Objects, lists and nulls at the end of a path are no values.
    /// Of members of one name the first counts. What is found of a path does not depend on the others.
    ///
    /// `None` where the text is not JSON, as far as it was read; what could be read is found before.
    ///
    /// # Cost
    ///
    /// One walk over the text, up to where nothing is left to find: about 1 ns a byte, whatever the number of
    /// paths and wherever they part. Of JSON no byte is stepped over twice. A name of an object on the way is
    /// looked up among those that are looked for there.
    pub fn values(mut self, paths: &Paths, each: &mut impl FnMut(usize, &str)) -> Option<()> {
        let mut walk = Walk { each, objects: 0, found_in: vec![0; paths.fields()] };
        self.value(paths.root(), &mut walk).map(|_left_open| ())
    }

    /// Goes into the value here for what `node` is about. Answers how many lists and objects are left open: it
    /// ends as soon as nothing is left to find, and who has more to find steps over the rest.
    fn value<E: FnMut(usize, &str)>(
        &mut self,
        node: &Node,
        walk: &mut Walk<'_, E>,
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
                // What is no text is no value.
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

    /// Goes through the members of an object, whose bracket has been stepped over; answers as
    /// [`Cursor::value`].
    fn members<E: FnMut(usize, &str)>(
        &mut self,
        fields: &BTreeMap<Box<[u8]>, Node>,
        walk: &mut Walk<'_, E>,
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
                // No field of a path has anything to escape.
                memchr::memchr(b'\\', name)?;
                fields.get(unescape(name)?.as_bytes())
            });
            let first = field.filter(|field| {
                let found_in = walk.found_in.get_mut(field.number);
                found_in.is_some_and(|found_in| mem::replace(found_in, object) != object)
            });
            if let Some(field) = first {
                left -= 1;
                let begun = *self;
                match self.value(field, walk) {
                    Some(open) if left == 0 => return Some(open + 1),
                    open => self.leave(begun, open)?,
                }
            } else {
                self.skip()?;
            }
            if !self.more(b'}')? {
                return Some(0);
            }
        }
    }

    /// Goes through the elements of a list, whose bracket has been stepped over; answers as
    /// [`Cursor::value`].
    fn elements<E: FnMut(usize, &str)>(
        &mut self,
        node: &Node,
        walk: &mut Walk<'_, E>,
    ) -> Option<usize> {
        if self.peek()? == b']' {
            self.step();
            return Some(0);
        }
        loop {
            let begun = *self;
            let open = self.value(node, walk);
            self.leave(begun, open)?;
            if !self.more(b']')? {
                return Some(0);
            }
        }
    }

    /// Goes behind the value that begins at `begun` and of which so much is left open; `None`: it is no JSON.
    /// Even that is stepped over if its brackets match, as by whoever looks for nothing in it: so what is
    /// found behind it does not depend on what is looked for in it.
    fn leave(&mut self, begun: Self, open: Option<usize>) -> Option<()> {
        match open {
            Some(0) => return Some(()),
            Some(open) if self.step_over(open).is_some() => return Some(()),
            Some(_) | None => *self = begun,
        }
        self.skip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::LOOKS;
    use kubewarm_api::model::FieldPath;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn paths(texts: &[&str]) -> Paths {
        texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect()
    }

    /// What is found of each of the paths.
    fn all_values(json: &[u8], paths: &Paths) -> (Vec<Vec<String>>, Option<()>) {
        let mut seen = vec![Vec::new(); paths.all().len()];
        let done =
            Cursor::new(json).values(paths, &mut |path, value| seen[path].push(value.to_owned()));
        (seen, done)
    }

    fn values(json: &str, path: &str) -> Option<Vec<String>> {
        let (mut seen, done) = all_values(json.as_bytes(), &paths(&[path]));
        done.and_then(|()| seen.pop())
    }

    /// The same in the plain way: one path, step by step, of what a parser has made of the text.
    fn plainly(value: &Value, steps: &[(&str, bool)], found: &mut Vec<String>) {
        let Some((&(field, is_list), rest)) = steps.split_first() else {
            match value {
                Value::String(text) => found.push(text.clone()),
                Value::Number(_) | Value::Bool(_) => found.push(value.to_string()),
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
                    plainly(element, rest, found);
                }
            }
            (true, _) => {}
            (false, value) => plainly(value, rest, found),
        }
    }

    #[test]
    fn a_path_leads_to_scalars_through_every_element() {
        let json = r#"{"a":[{"x":[1,{"y":"]"}],"b":{"c":"p"}},{"b":{"c":true}},{"b":{}},
            {"b":{"c":null}}, {"b":{"c":[2]}},7 ,{"b":{"c":-1.5e3}},{"b":{"c":"q\"\u0041"}}]}"#;
        assert_eq!(values(json, "a[*].b.c").unwrap(), ["p", "true", "-1.5e3", "q\"A"]);
        assert_eq!(values(r#"{"a":["x",2,[3],{}]}"#, "a[*]").unwrap(), ["x", "2"]);
        assert_eq!(values(r#"{"\u0061":{"b":"v"}}"#, "a.b").unwrap(), ["v"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_has_no_values() {
        for json in ["{}", "[]", "3", r#"{"a":{}}"#, r#"{"a":[]}"#, r#"{"a":"b"}"#] {
            assert_eq!(values(json, "a.b").unwrap(), Vec::<String>::new(), "{json}");
            assert_eq!(values(json, "a[*].b").unwrap(), Vec::<String>::new(), "{json}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_noticed() {
        for json in ["", "{", r#"{"a"#, r#"{"b":1"#, r#"{"b":,}"#, r#"{"a":{"b":"x}"#, r#"{"b":"\"#]
        {
            assert_eq!(values(json, "a.b"), None, "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert_eq!(values(&format!(r#"{{"x":{deep}"#), "a.b"), None);
    }

    #[test]
    fn of_members_of_one_name_the_first_counts_and_what_is_no_text_is_no_value() {
        let json = r#"{"a":{"b":1,"b":2},"\u0061":{"b":3},"c":["\ud800","x"],"\ud800":0,"d":4}"#;
        let (seen, done) = all_values(json.as_bytes(), &paths(&["a.b", "c[*]", "d"]));
        assert_eq!(seen, [vec!["1"], vec!["x"], vec!["4"]]);
        assert!(done.is_some());
    }

    /// How often it was looked what comes next while `paths` were looked for in `json`.
    fn looks(json: &str, paths: &Paths) -> usize {
        let before = LOOKS.get();
        all_values(json.as_bytes(), paths);
        LOOKS.get() - before
    }

    #[test]
    fn many_paths_cost_one_walk_however_deep_they_are_and_wherever_they_part() {
        // Each of 64 paths ends in a field of its own, behind lists in lists.
        let deep = |value: Value| json!([{"c": [{"d": [value, {"e": "f"}]}, {"d": []}]}]);
        let fields: serde_json::Map<_, _> =
            (0..64).map(|n| (format!("x{n:02}"), json!(n))).collect();
        let body = json!({"a": {"b": deep(Value::Object(fields))}, "z": 0});
        let texts: Vec<_> = (0..64).map(|n| format!("a.b[*].c[*].d[*].x{n:02}")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let body = body.to_string();
        let (seen, _) = all_values(body.as_bytes(), &paths(&texts));
        assert!(seen.iter().enumerate().all(|(n, seen)| *seen == [n.to_string()]));
        // To come to `z`, all of it is stepped over.
        let one_walk = looks(&body, &paths(&["z"]));
        let [one, all] = [&texts[63..], &texts[..]].map(|texts| looks(&body, &paths(texts)));
        assert!(one_walk > 64 * 3, "{one_walk}");
        assert!(one < 2 * one_walk && all < 2 * one_walk, "{one} {all}, {one_walk} to walk it");
    }

    #[test]
    fn nothing_is_walked_behind_what_is_looked_for() {
        let rest = json!(vec![0; 1_000]).to_string();
        let body = format!(r#"{{"a":{{"b":{{"c":1,"d":{rest}}},"e":{rest}}},"f":{rest}}}"#);
        let (seen, _) = all_values(body.as_bytes(), &paths(&["a.b.c"]));
        assert_eq!(seen, [["1"]]);
        assert!(looks(&body, &paths(&["a.b.c"])) < 30);
        // Nor in what is no object, and was to be one.
        assert!(looks(&body, &paths(&["a.e.x", "a.b.d.x"])) < 2_500, "`d` is, on the way to `e`");
    }

    /// Documents in which the paths below lead somewhere.
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
        fn all_paths_at_once_are_as_each_of_them_plainly(
            document in document(),
            wanted in some_paths(),
        ) {
            let together: Paths = wanted.into_iter().collect();
            let (found, done) = all_values(document.to_string().as_bytes(), &together);
            prop_assert!(done.is_some());
            for (path, found) in together.all().iter().zip(found) {
                let steps: Vec<_> = path.steps().collect();
                let mut expected = Vec::new();
                plainly(&document, &steps, &mut expected);
                prop_assert_eq!(found, expected, "{}", path);
            }
        }

        #[test]
        fn what_is_found_of_a_path_depends_on_no_other_even_in_what_is_no_json(
            text in r#"(\{"[abc]":|"[abc]":|\[|\]|\}|,|:|"x"|1|\\|"| |\{){0,30}"#,
            wanted in some_paths(),
        ) {
            let together: Paths = wanted.into_iter().collect();
            let (found, _) = all_values(text.as_bytes(), &together);
            for (path, found) in together.all().iter().zip(found) {
                let alone: Paths = [path.clone()].into_iter().collect();
                prop_assert_eq!(&found, &all_values(text.as_bytes(), &alone).0[0], "{}", path);
            }
        }

        #[test]
        fn any_bytes_are_walked_without_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\ab1 ]{0,40}"#) {
            let paths = paths(&["a[*].b", "a", "b.a"]);
            let _ = Cursor::new(&bytes).values(&paths, &mut |_, _| ());
            let _ = Cursor::new(&bytes).strings(&mut |_, _| ());
            let _ = Cursor::new(text.as_bytes()).strings(&mut |_, _| ());
            let _ = Cursor::new(text.as_bytes()).values(&paths, &mut |_, _| ());
        }
    }
}
