//! Parses field selectors. Does not check whether a kind supports the fields.

use super::StatusError;
use kubewarm_api::model::{FieldSelector, FieldSelectorError, FieldSelectorLimits};

/// Maximum number of requirements of a client's field selector. The API server supports about ten
/// fields of a kind, and a store has at most 32 indexes of fields. The limit bounds memory and CPU
/// time: each watch keeps its requirements, and kubewarm compares each object with all of them.
const MOST: usize = 64;
/// Maximum length, in bytes, of a value in a client's field selector: four times the longest object
/// name. The limit bounds memory, because each watch keeps copies of the values, and access reviews
/// contain copies too.
const MOST_BYTES: usize = 1 << 10;

/// Parses a field selector that is already percent-decoded.
///
/// # Errors
///
/// 400 with the API server's message. If no kind can have the field name, the message reports an
/// unsupported field. The API server can accept a selector that exceeds `MOST` or `MOST_BYTES`. So
/// the 400 for such a selector permits kubewarm to forward the request.
pub(super) fn parse(text: &str) -> Result<FieldSelector, StatusError> {
    let limits = FieldSelectorLimits { requirements: MOST, value_bytes: MOST_BYTES };
    FieldSelector::parse(text, limits).map_err(|error| failure(text, error))
}

fn failure(text: &str, error: FieldSelectorError) -> StatusError {
    let invalid =
        |reason: String| StatusError::bad_request(format!("invalid field selector: {reason}"));
    match error {
        FieldSelectorError::Count { limit, .. } => {
            StatusError::too_much("field", limit, "requirements")
        }
        FieldSelectorError::Operator(term) => StatusError::bad_request(format!(
            "invalid selector: '{text}'; can't understand '{term}'"
        )),
        FieldSelectorError::Escape(sequence) => {
            invalid(format!("invalid escape sequence: {sequence}"))
        }
        // As in the API server's message, the unescaped character appears as a number.
        FieldSelectorError::Character(character) => {
            invalid(format!("unescaped character in value: {}", u32::from(character)))
        }
        FieldSelectorError::Length { limit } => {
            let message = format!(
                "a value of a field selector here has at most {limit} bytes; send longer ones to the API server"
            );
            StatusError::bad_request(message).specific_to_cache()
        }
        FieldSelectorError::Requirement { field, invalid } if invalid.part == "field" => {
            StatusError::unknown_field(&field)
        }
        FieldSelectorError::Requirement { invalid: reason, .. } => invalid(reason.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_are_parsed_as_in_the_api_server() {
        for (text, expected) in [
            ("", ""),
            (",,", ""),
            ("metadata.name=a", "metadata.name=a"),
            ("metadata.name==a", "metadata.name=a"),
            ("status.phase!=Succeeded,", "status.phase!=Succeeded"),
            ("b=1,a!=2", "a!=2,b=1"),
            ("a=", "a="),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=b!", "a=b!"),
            ("=,a=b,!=", "a=b"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn selectors_above_the_limits_are_rejected() {
        let many = |most: usize| vec!["spec.host!=a"; most].join(",");
        assert!(parse(&many(MOST)).is_ok());
        let refused = parse(&many(MOST + 1)).unwrap_err();
        assert!(refused.code() == 400 && refused.message().contains("at most 64"), "{refused:?}");
        let long = |most: usize| format!("metadata.name={}", "a".repeat(most));
        assert!(parse(&long(MOST_BYTES)).is_ok());
        let refused = parse(&long(MOST_BYTES + 1)).unwrap_err();
        assert!(refused.code() == 400 && refused.message().contains("at most 1024 bytes"));
        assert!(refused.is_specific_to_cache(), "the API server accepts it");
    }

    #[test]
    fn errors_have_the_messages_of_the_api_server() {
        for (text, expected) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
            ("=b", "field label not supported: "),
            ("a b=c", "field label not supported: a b"),
        ] {
            let failure = parse(text).unwrap_err();
            assert_eq!((failure.code(), failure.message()), (400, expected), "{text}");
        }
        assert_eq!(parse("a=b\nc").unwrap_err().code(), 400);
    }

    proptest! {
        #[test]
        fn no_selector_causes_a_panic(any in ".{0,60}", likely in r"[a.,=!\\é]{0,20}") {
            let _ = parse(&any);
            let _ = parse(&likely);
        }

        #[test]
        fn a_canonical_selector_parses_to_itself(likely in r"[ab,=!\\]{0,20}") {
            if let Ok(selector) = parse(&likely) {
                prop_assert_eq!(parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
