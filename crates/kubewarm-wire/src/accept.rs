//! Content negotiation: selects the form of a response from the `Accept` header, by the API
//! server's rules.

use super::{JSON, PROTOBUF, StatusError};

/// The form of a response to a request for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseForm {
    /// One object, or a list of objects.
    Object(ObjectPart),
    /// A `Table` with one row for each object.
    Table(TableForm),
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// `application/json`.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// The encoding and the form of a response to a request for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponseFormat {
    /// The encoding.
    pub media_type: MediaType,
    /// The form. Never a `Table` in protobuf, because Kubernetes defines no protobuf message for
    /// `Table`.
    pub form: ResponseForm,
}

/// The part of each stored object that a response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectPart {
    /// All stored fields of the object.
    Full,
    /// Only `metadata`, as `PartialObjectMetadata`.
    Metadata(MetaVersion),
}

/// The form of a `Table`, from the client's `Accept` header and its query parameter
/// `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableForm {
    /// The version of `meta.k8s.io` in the table's `apiVersion`, and in the `apiVersion` of the
    /// metadata in its rows.
    pub version: MetaVersion,
    /// The part of the object that each row contains. With `None`, the rows contain
    /// `"object":null`.
    pub object: Option<ObjectPart>,
}

/// A version of `meta.k8s.io` that has `Table` and `PartialObjectMetadata`. In kubewarm's
/// responses, the two versions differ only in the value of `apiVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl ResponseFormat {
    /// Creates the format of a response in JSON.
    pub const fn json(form: ResponseForm) -> Self {
        Self { media_type: MediaType::Json, form }
    }
}

impl MetaVersion {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The format in which a client requests the discovery documents at `/api` and `/apis`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DiscoveryForm {
    /// The discovery documents contain only groups and versions. A client requests the resources of
    /// each version in a separate request.
    #[default]
    Legacy,
    /// One discovery document contains all resources: `APIGroupDiscoveryList` of
    /// `apidiscovery.k8s.io/v2`.
    Aggregated,
}

const ONE: &str = "PartialObjectMetadata";
const LIST: &str = "PartialObjectMetadataList";
const TABLE: &str = "Table";

/// One media range of the `Accept` header that matches JSON or protobuf.
#[derive(Debug, Default)]
struct MediaRange<'a> {
    media_type: MediaType,
    is_any: bool,
    /// Whether the media range is `application/*`, which alone matches no built-in kind (see
    /// `RequestedObjects::is_builtin`).
    is_of_type: bool,
    weight: f32,
    is_pretty: bool,
    /// The kind to which the client wants the response converted, from the parameters `as`, `g` and
    /// `v`. `None`: the client wants no conversion.
    target: Option<ConversionTarget<'a>>,
}

/// The kind that a client requests with the parameters `as`, `g` and `v` of a media range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ConversionTarget<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// What determines which media types are possible for the requested objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedObjects {
    /// `true` for a list, and `false` for one object or an event of a watch.
    pub(super) is_list: bool,
    /// Whether kube-apiserver itself serves the kind. For such a kind, its router rejects a request
    /// that accepts only `application/*`.
    pub(super) is_builtin: bool,
}

/// The format that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NegotiatedFormat {
    pub(super) format: ResponseFormat,
    /// The 406 if the client requests a list as one object, or one object as a list. The caller
    /// returns this error only after it has found the objects, as the API server does: a get of a
    /// missing object has 404 instead.
    pub(super) shape_error: Option<StatusError>,
}

/// Selects the format of a response. The first media range that kubewarm supports wins. The
/// function skips media ranges that request a kind or a version that kubewarm cannot return.
///
/// # Errors
///
/// 406 if kubewarm supports none of the media ranges.
pub(super) fn response_format(
    accept: Option<&str>,
    requested: RequestedObjects,
) -> Result<NegotiatedFormat, StatusError> {
    format_among(&ranges(accept), requested, &[JSON, PROTOBUF])
}

/// Selects the form of a response by the rules of [`response_format`], but only from media ranges
/// of JSON, for stores that contain JSON.
///
/// # Errors
///
/// The errors of [`response_format`], and [`NegotiatedFormat::shape_error`].
pub(super) fn json_form(
    accept: Option<&str>,
    requested: RequestedObjects,
) -> Result<ResponseForm, StatusError> {
    let NegotiatedFormat { format, shape_error } =
        format_among(&json_ranges(accept), requested, &[JSON])?;
    shape_error.map_or(Ok(format.form), Err)
}

/// Selects the encoding of a `Status`. Returns `None` if the client accepts a `Status` in no
/// encoding. The API server then sends indented JSON nevertheless, and so does kubewarm.
pub fn status_media_type(accept: Option<&str>) -> Option<MediaType> {
    let ranges = ranges(accept);
    ranges.iter().find(|range| range.target.is_none()).map(|range| range.media_type)
}

/// Returns whether the most preferred media range has the parameter `pretty=1`.
pub(super) fn has_pretty(accept: Option<&str>) -> bool {
    ranges(accept).first().is_some_and(|range| range.is_pretty)
}

fn format_among(
    ranges: &[MediaRange<'_>],
    RequestedObjects { is_list, is_builtin }: RequestedObjects,
    supported: &[&str],
) -> Result<NegotiatedFormat, StatusError> {
    let form = |range: &MediaRange<'_>| match range.target {
        None => Some((ResponseForm::Object(ObjectPart::Full), None)),
        Some(ConversionTarget { group: "meta.k8s.io", version, kind }) => {
            let version = MetaVersion::parse(version)?;
            let metadata = ResponseForm::Object(ObjectPart::Metadata(version));
            match (kind, is_list) {
                (ONE, false) | (LIST, true) => Some((metadata, None)),
                (ONE, true) => Some((metadata, Some(StatusError::other_shape(ONE, "is a list")))),
                (LIST, false) => {
                    Some((metadata, Some(StatusError::other_shape(LIST, "is not a list"))))
                }
                (TABLE, _) if range.media_type == MediaType::Json => Some((table(version), None)),
                _ => None,
            }
        }
        Some(_) => None,
    };
    let served = |range: &MediaRange<'_>| {
        let (form, shape_error) = form(range)?;
        let format = ResponseFormat { media_type: range.media_type, form };
        Some(NegotiatedFormat { format, shape_error })
    };
    // If the `Accept` header matches only by `application/*`, the API server's router rejects the
    // request. The router does not see requests for custom resources, so they pass.
    if is_builtin && ranges.iter().all(|range| range.is_of_type) {
        return Err(StatusError::not_acceptable(supported));
    }
    ranges.iter().find_map(served).ok_or_else(|| StatusError::not_acceptable(supported))
}

fn table(version: MetaVersion) -> ResponseForm {
    ResponseForm::Table(TableForm { version, object: Some(ObjectPart::Metadata(version)) })
}

/// Selects the format of the discovery document at `/api` or `/apis`.
///
/// # Errors
///
/// 406 if kubewarm supports none of the client's media ranges.
pub(super) fn discovery_form(accept: Option<&str>) -> Result<DiscoveryForm, StatusError> {
    let aggregated = ConversionTarget {
        group: "apidiscovery.k8s.io",
        version: "v2",
        kind: "APIGroupDiscoveryList",
    };
    let served = |range: &MediaRange<'_>| match range.target {
        None => Some(DiscoveryForm::Legacy),
        Some(target) if target == aggregated => Some(DiscoveryForm::Aggregated),
        Some(_) => None,
    };
    json_ranges(accept).iter().find_map(served).ok_or_else(|| StatusError::not_acceptable(&[JSON]))
}

/// Checks that the client accepts JSON, without a conversion to a kind such as `Table`.
///
/// # Errors
///
/// 406 if the client does not accept such JSON.
pub(super) fn require_plain_json(accept: Option<&str>) -> Result<(), StatusError> {
    let is_plain = |range: &MediaRange<'_>| range.target.is_none();
    if json_ranges(accept).iter().any(is_plain) {
        Ok(())
    } else {
        Err(StatusError::not_acceptable(&[JSON]))
    }
}

fn json_ranges(accept: Option<&str>) -> Vec<MediaRange<'_>> {
    let mut ranges = ranges(accept);
    ranges.retain(|range| range.media_type == MediaType::Json);
    ranges
}

/// Returns the media ranges of an `Accept` header that match JSON or protobuf, highest weight
/// first. An absent or empty header means `*/*`. A range with a wildcard means JSON.
fn ranges(accept: Option<&str>) -> Vec<MediaRange<'_>> {
    let accept = accept.filter(|accept| !accept.is_empty()).unwrap_or("*/*");
    let mut ranges: Vec<_> = accept.split(',').filter_map(MediaRange::parse).collect();
    // The sort is stable: media ranges of equal weight keep the client's order, except that ranges
    // with wildcards come last.
    ranges.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.is_any.cmp(&b.is_any)));
    ranges
}

impl<'a> MediaRange<'a> {
    /// Parses a media range. Returns `None` if the media range matches neither JSON nor protobuf.
    ///
    /// The rules are as lenient as the API server's. The function ignores a parameter with no value
    /// or with two `=`. The last value of a repeated parameter counts.
    fn parse(text: &'a str) -> Option<Self> {
        let trim = |text: &'a str| text.trim_matches(' ');
        let mut parts = trim(text).split(';');
        let (type_name, behind) = split(parts.next()?, '/');
        let mut media_type = MediaType::Json;
        let (is_any, is_of_type) = match (trim(type_name), split(behind, '/')) {
            ("*", _) if behind.is_empty() => (true, false),
            ("application", (sub, "")) if trim(sub) == "json" => (false, false),
            ("application", (sub, "")) if trim(sub) == "vnd.kubernetes.protobuf" => {
                media_type = MediaType::Protobuf;
                (false, false)
            }
            (type_name, (sub, ""))
                if trim(sub) == "*" && matches!(type_name, "application" | "*") =>
            {
                (true, type_name == "application")
            }
            _ => return None,
        };
        let mut range = Self { media_type, is_any, is_of_type, weight: 1.0, ..Self::default() };
        let (mut stream, mut server_version) = ("", "");
        for part in parts {
            let (name, behind) = split(part, '=');
            let (value, more) = split(behind, '=');
            if behind.is_empty() || !more.is_empty() {
                continue;
            }
            match trim(name) {
                // An invalid weight counts as 0.
                "q" => range.weight = value.parse().unwrap_or(0.0),
                "as" => range.target.get_or_insert_default().kind = trim(value),
                "g" => range.target.get_or_insert_default().group = trim(value),
                "v" => range.target.get_or_insert_default().version = trim(value),
                "pretty" => range.is_pretty = trim(value) == "1",
                "stream" => stream = trim(value),
                "sv" => server_version = trim(value),
                _ => {}
            }
        }
        let is_served = matches!(stream, "" | "watch") && matches!(server_version, "" | "v1");
        is_served.then_some(range)
    }
}

fn split(text: &str, at: char) -> (&str, &str) {
    text.split_once(at).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AGGREGATED_DISCOVERY;
    use proptest::prelude::*;

    const TABLES: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const OF_LIST: RequestedObjects = RequestedObjects { is_list: true, is_builtin: true };
    const OF_ONE: RequestedObjects = RequestedObjects { is_list: false, is_builtin: true };
    const FULL: ResponseForm = ResponseForm::Object(ObjectPart::Full);
    const METADATA_FORM: ResponseForm = ResponseForm::Object(ObjectPart::Metadata(MetaVersion::V1));
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

    fn response_form(
        accept: Option<&str>,
        requested: RequestedObjects,
    ) -> Result<ResponseForm, StatusError> {
        json_form(accept, requested)
    }

    #[test]
    fn protobuf_is_chosen_as_at_the_api_server() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        let metadata = METADATA_LIST.replace("application/json", PROTOBUF);
        let (json, protobuf) = (MediaType::Json, MediaType::Protobuf);
        for (accept, expected) in [
            (PROTOBUF, Some((protobuf, FULL))),
            ("application/vnd.kubernetes.protobuf, */*", Some((protobuf, FULL))),
            ("application/vnd.kubernetes.protobuf,application/json", Some((protobuf, FULL))),
            ("application/json,application/vnd.kubernetes.protobuf", Some((json, FULL))),
            ("application/json;q=0.9,application/vnd.kubernetes.protobuf", Some((protobuf, FULL))),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some((protobuf, FULL))),
            ("*/*", Some((json, FULL))),
            (&metadata, Some((protobuf, METADATA_FORM))),
            (&format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io"), None),
            (
                &format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLES}"),
                Some((json, table(MetaVersion::V1))),
            ),
        ] {
            let response = response_format(Some(accept), OF_LIST).ok();
            let formats =
                response.map(|response| (response.format.media_type, response.format.form));
            assert_eq!(formats, expected, "{accept}");
        }
        assert_eq!(code(json_form(Some(PROTOBUF), OF_ONE)), 406);
        let both = "application/vnd.kubernetes.protobuf, */*";
        assert_eq!(status_media_type(Some(both)), Some(protobuf));
        assert_eq!(status_media_type(Some(&metadata)), None);
        assert_eq!(status_media_type(None), Some(json));
    }

    fn code<T>(outcome: Result<T, StatusError>) -> u16 {
        outcome.map_or_else(|failure| failure.code(), |_| 200)
    }

    #[test]
    fn clients_that_accept_json_receive_json() {
        for accept in [
            "",
            "application/json",
            "*/*",
            "*",
            "application/*, application/json",
            "text/html, */*;q=0.1",
            "application/vnd.kubernetes.protobuf, */*",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;q=0.9,application/cbor;q=1",
            "application/json;drop=metadata.managedFields",
            "application/json;stream=watch",
            "application/json;stream=other;stream=watch",
            "application/json;as=;q=",
            "*/",
        ] {
            assert_eq!(response_form(Some(accept), OF_LIST), Ok(FULL), "{accept}");
            assert_eq!(discovery_form(Some(accept)), Ok(DiscoveryForm::Legacy), "{accept}");
            assert_eq!(require_plain_json(Some(accept)), Ok(()), "{accept}");
        }
        assert_eq!(response_form(None, OF_ONE), Ok(FULL));
    }

    #[test]
    fn custom_resources_are_sent_to_clients_that_accept_every_application_type() {
        let custom = RequestedObjects { is_builtin: false, ..OF_ONE };
        for accept in ["application/*", "application/*;q=0.9, text/html"] {
            assert_eq!(response_form(Some(accept), custom), Ok(FULL), "{accept}");
        }
        assert_eq!(code(response_form(Some("text/*"), custom)), 406);
    }

    #[test]
    fn clients_that_do_not_accept_json_receive_a_406() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
            "application/*",
            "application/*;q=0.9, text/html",
            "text/html",
            "json",
            ",",
            "application/json;as=Table;v=v1;g=other",
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;g=other;v=v1",
            "application/json;g=meta.k8s.io;v=v1",
            "application/json;stream=other",
            "application/json;sv=v2",
        ] {
            assert_eq!(code(response_form(Some(accept), OF_ONE)), 406, "{accept}");
        }
        assert_eq!(code(require_plain_json(Some("text/html"))), 406);
        assert_eq!(code(discovery_form(Some(TABLES))), 406);
        assert_eq!(code(require_plain_json(Some(TABLES))), 406);
    }

    #[test]
    fn a_table_has_the_first_supported_version_that_the_client_requests() {
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        let kubectl = format!("{TABLES},{old},application/json");
        for requested in [OF_LIST, OF_ONE] {
            assert_eq!(response_form(Some(&kubectl), requested), Ok(table(MetaVersion::V1)));
            assert_eq!(response_form(Some(old), requested), Ok(table(MetaVersion::V1Beta1)));
            let later = format!("application/json;as=Table;v=v2;g=meta.k8s.io,{kubectl}");
            assert_eq!(response_form(Some(&later), requested), Ok(table(MetaVersion::V1)));
        }
    }

    #[test]
    fn metadata_of_one_object_and_of_a_list_are_different_kinds() {
        for (version, meta_version) in [("v1", MetaVersion::V1), ("v1beta1", MetaVersion::V1Beta1)]
        {
            let (single, list) = (METADATA, METADATA_LIST);
            let [single, list] =
                [single, list].map(|accept| accept.replace("v=v1", &format!("v={version}")));
            assert_eq!(
                response_form(Some(&single), OF_ONE),
                Ok(ResponseForm::Object(ObjectPart::Metadata(meta_version))),
                "{single}"
            );
            assert_eq!(
                response_form(Some(&list), OF_LIST),
                Ok(ResponseForm::Object(ObjectPart::Metadata(meta_version))),
                "{list}"
            );
        }
        assert_eq!(response_form(Some(METADATA), OF_ONE), Ok(METADATA_FORM));
        assert_eq!(response_form(Some(METADATA_LIST), OF_LIST), Ok(METADATA_FORM));
        let failure = response_form(Some(METADATA), OF_LIST).unwrap_err();
        assert_eq!(
            (failure.code(), failure.message()),
            (406, "you requested PartialObjectMetadata, but the requested object is a list")
        );
        assert_eq!(code(response_form(Some(METADATA_LIST), OF_ONE)), 406);
        let client_go = format!(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             {METADATA_LIST},application/json"
        );
        assert_eq!(response_form(Some(&client_go), OF_LIST), Ok(METADATA_FORM));
    }

    #[test]
    fn the_clause_with_the_highest_weight_wins() {
        let accept = format!("application/json;q=0.5,{METADATA};q=0.6,*/*");
        assert_eq!(response_form(Some(&accept), OF_ONE), Ok(FULL));
        let accept = format!("application/json;q=0.5,{METADATA};q=0.6,*/*;q=0.1");
        assert_eq!(response_form(Some(&accept), OF_ONE), Ok(METADATA_FORM));
        let accept = format!("*/*,{METADATA}");
        assert_eq!(
            response_form(Some(&accept), OF_ONE),
            Ok(METADATA_FORM),
            "a wildcard must come last"
        );
    }

    #[test]
    fn discovery_is_aggregated_for_clients_that_accept_it() {
        let kubectl = format!(
            "{AGGREGATED_DISCOVERY},application/json;g=apidiscovery.k8s.io;v=v2beta1;\
             as=APIGroupDiscoveryList,application/json"
        );
        assert_eq!(discovery_form(Some(&kubectl)), Ok(DiscoveryForm::Aggregated));
        assert_eq!(discovery_form(Some(AGGREGATED_DISCOVERY)), Ok(DiscoveryForm::Aggregated));
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery_form(Some(old)), Ok(DiscoveryForm::Legacy));
    }

    proptest! {
        #[test]
        fn no_header_causes_a_panic(any in ".{0,60}", likely in r"((application/json|\*/\*|as|g|v|q|NaN|[;,=./ ])){0,20}") {
            for accept in [any, likely] {
                let _ = response_form(Some(&accept), OF_ONE);
                let _ = discovery_form(Some(&accept));
                let _ = require_plain_json(Some(&accept));
            }
        }
    }
}
