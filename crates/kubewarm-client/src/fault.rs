//! Converts failed responses, watch errors and transport errors into [`RequestFault`]s.

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, MessageId, ObjectEncoding, RequestFault};
use kubewarm_wire::{
    protobuf::{JsonEncoder, Unknown, message_of_kind},
    upstream::UpstreamEvent,
};
use serde::Deserialize;
use std::{borrow::Cow, error::Error, time::Duration};

/// The fields of a `metav1.Status` that describe a failure. The parser ignores other fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    code: u16,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(default)]
    details: Option<StatusBodyDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBodyDetails {
    #[serde(default)]
    retry_after_seconds: Option<u64>,
}

/// Converts a response whose status is not 2xx into a [`RequestFault`].
///
/// `body` should be a `Status`. For any other body, such as the HTML page of a proxy, the fault
/// contains only the HTTP status code.
pub fn of_response(
    code: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> RequestFault {
    let json = status_of_protobuf(body);
    let status = parse(json.as_deref().unwrap_or(body));
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = header.and_then(|text| parse_retry_after(text, now));
    if let Some(status) = status {
        return classify(code.as_u16(), &status, retry_after);
    }
    let mut reason = reason_of(code.as_u16());
    // For an unknown path, the API server sends the text `404 page not found` instead of a
    // `Status`. A 404 with another body can come from a proxy. After the reason `NotServed`,
    // kubewarm removes all objects from the informer's store. So a proxy must not cause this
    // reason.
    if reason == FaultReason::NotServed && !body.starts_with(b"404 page not found") {
        reason = FaultReason::ServerError;
    }
    RequestFault::new(reason, format!("HTTP {code} without a Status"))
        .with_code(code.as_u16())
        .with_retry_after(retry_after)
}

/// Converts a watch's `ERROR` event into a [`RequestFault`].
pub fn of_event(event: &UpstreamEvent<'_>) -> RequestFault {
    match event.encoding {
        Some(ObjectEncoding::Protobuf(message)) => of_status(&status_json(message, event.object)),
        Some(ObjectEncoding::Json) | None => of_status(event.object),
    }
}

/// Converts a `Status` in JSON, which a watch can send without an event around it.
pub fn of_status(object: &[u8]) -> RequestFault {
    match parse(object) {
        Some(status) => classify(status.code, &status, None),
        None => RequestFault::new(
            FaultReason::Malformed,
            "the watch sent an error that is not a Status",
        ),
    }
}

/// Converts a `Status` in protobuf to JSON. The result is empty if `object` is not a `Status`.
fn status_json(message: MessageId, object: &[u8]) -> Vec<u8> {
    if message_of_kind("v1", "Status") != Some(message) {
        return Vec::new();
    }
    let mut json = br#"{"kind":"Status","#.to_vec();
    let mut members = Vec::new();
    match JsonEncoder::default().write_object(message, object, &mut members) {
        Ok(()) => json.extend_from_slice(members.get(1..).unwrap_or_default()),
        Err(_) => json.clear(),
    }
    json
}

/// Converts a failure below HTTP into a [`RequestFault`]: no connection, a broken connection, or a
/// proxy that rejects the request.
///
/// If `error` contains a [`RequestFault`], such as the failure of a token request, returns that
/// fault.
pub fn of_transport(error: &(dyn Error + 'static)) -> RequestFault {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    if let Some(fault) = chain.clone().find_map(|error| error.downcast_ref::<RequestFault>()) {
        return fault.clone();
    }
    // The innermost error of hyper and rustls contains the cause, so the message joins all errors
    // of the chain.
    let mut message = String::new();
    for error in chain {
        let text = error.to_string();
        if !message.ends_with(&text) {
            message = if message.is_empty() { text } else { format!("{message}: {text}") };
        }
    }
    RequestFault::new(FaultReason::Unreachable, message)
}

/// Converts the body of a response in protobuf to JSON. `None` if the body is not protobuf.
fn status_of_protobuf(body: &[u8]) -> Option<Vec<u8>> {
    let Unknown { api_version, kind, raw } = Unknown::parse(body).ok()?;
    Some(status_json(message_of_kind(api_version, kind)?, raw))
}

fn parse(body: &[u8]) -> Option<StatusBody<'_>> {
    serde_json::from_slice(body).ok().filter(|status: &StatusBody<'_>| status.kind == "Status")
}

fn classify(code: u16, status: &StatusBody<'_>, header: Option<Duration>) -> RequestFault {
    let details = status.details.as_ref();
    let reason = match &*status.reason {
        "Expired" | "Gone" => FaultReason::Gone,
        _ => reason_of(code),
    };
    let body = details.and_then(|details| details.retry_after_seconds).map(Duration::from_secs);
    let message = match status.message.as_ref() {
        "" => format!("HTTP {code} {}", status.reason),
        message => message.to_owned(),
    };
    RequestFault::new(reason, message).with_code(code).with_retry_after(header.or(body))
}

fn reason_of(code: u16) -> FaultReason {
    match code {
        400 | 422 => FaultReason::Unsupported,
        401 => FaultReason::Unauthorized,
        403 => FaultReason::Forbidden,
        404 => FaultReason::NotServed,
        405 => FaultReason::NotListable,
        410 => FaultReason::Gone,
        429 => FaultReason::Throttled,
        _ => FaultReason::ServerError,
    }
}

/// Parses a `Retry-After` header: a number of seconds or an HTTP date (RFC 9110, 10.2.3). A date in
/// the past results in zero.
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn fault(code: u16, body: impl AsRef<[u8]>, retry_after: Option<&str>) -> RequestFault {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        of_response(StatusCode::from_u16(code).unwrap(), &headers, body.as_ref(), now)
    }

    #[test]
    fn status_code_and_reason_determine_the_fault() {
        let too_large = r#"{"kind":"Status","reason":"Timeout","message":"Too large resource version","code":504,
            "details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}}"#;
        let cases = [
            (
                403,
                r#"{"kind":"Status","reason":"Forbidden","message":"no"}"#,
                FaultReason::Forbidden,
            ),
            (410, r#"{"kind":"Status","reason":"Expired","message":"too old"}"#, FaultReason::Gone),
            (
                404,
                r#"{"kind":"Status","reason":"NotFound","message":"gone"}"#,
                FaultReason::NotServed,
            ),
            (404, "<html>no such page</html>", FaultReason::ServerError),
            (404, "{}", FaultReason::ServerError),
            (410, "<html>", FaultReason::Gone),
            (429, "", FaultReason::Throttled),
            (504, too_large, FaultReason::ServerError),
            (504, "{}", FaultReason::ServerError),
            (404, "404 page not found", FaultReason::NotServed),
            (302, "", FaultReason::ServerError),
        ];
        for (code, body, reason) in cases {
            assert_eq!(fault(code, body, None).reason(), reason, "{code} {body}");
        }
        assert_eq!(fault(504, too_large, None).retry_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_body_in_protobuf_must_be_a_status() {
        for (kind, reason) in
            [("Status", FaultReason::NotServed), ("Pod", FaultReason::ServerError)]
        {
            let mut body = Vec::new();
            Unknown { api_version: "v1", kind, raw: &[] }.write(&mut body);
            assert_eq!(fault(404, body, None).reason(), reason, "{kind}");
        }
    }

    #[test]
    fn the_fault_does_not_quote_a_body_that_is_not_a_status() {
        let shown = fault(502, "<html>secret</html>", None).to_string();
        assert!(shown.contains("502") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let seconds = |text| fault(429, "{}", Some(text)).retry_after().map(|d| d.as_secs());
        assert_eq!(seconds("30"), Some(30));
        assert_eq!(seconds("Thu, 01 Jan 2026 00:00:20 GMT"), Some(20));
        assert_eq!(seconds("Thu, 01 Jan 2015 00:00:20 GMT"), Some(0));
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("-1"), None);
    }

    #[test]
    fn an_error_event_must_be_a_status() {
        let gone = br#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
        assert_eq!(of_status(gone).reason(), FaultReason::Gone);
        assert_eq!(of_status(b"{}").reason(), FaultReason::Malformed);
    }
}
