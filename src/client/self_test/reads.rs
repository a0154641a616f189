//! Whether what is warm is read through the cache as the API server has it.

use super::{
    super::{Error, finding::Finding, specs},
    PAUSE, trusted, until_answered,
};
use crate::{
    cli::SelfTestArgs,
    cluster::{Answer, Connection, get, get_as, operator_client},
    model::Fault,
};
use http::HeaderMap;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

/// How old an answer is, in milliseconds.
const FRESHNESS: &str = "kubewarm-freshness-milliseconds";

/// Lists the profile `name` alone, at `url` and at the API server, until both say the same: its status may
/// be written in between.
pub(super) async fn of_profile(
    connection: &Connection,
    args: &SelfTestArgs,
    (url, name): (&str, &str),
    deadline: Instant,
) -> Result<Vec<Finding>, Error> {
    let token = args.reads_token_file.as_deref().map(specs::file).transpose()?.unwrap_or_default();
    let reads = operator_client(url, &trusted(&args.trust)).await?;
    let namespace = args.namespace.as_deref().unwrap_or_else(|| connection.namespace());
    let path = format!(
        "/apis/kubewarm.io/v1alpha1/namespaces/{namespace}/cacheprofiles?fieldSelector=metadata.name%3D{name}"
    );
    let origin = connection.client();
    loop {
        let here = async || checked(get_as(&reads, &path, token.trim()).await?);
        let here = match until_answered(deadline, here).await {
            Ok(answer) => answer,
            Err(fault) => return Ok(vec![Finding::bad(format!("a read at {url}: {fault}"))]),
        };
        let there = async || checked(get(&origin, &path).await?);
        let there = match until_answered(deadline, there).await {
            Ok(answer) => answer,
            Err(fault) => return Ok(vec![Finding::bad(format!("the API server: {fault}"))]),
        };
        match difference(&here, &there) {
            None => return Ok(vec![Finding::good(equal(url, &here.headers))]),
            Some(_) if Instant::now() < deadline => sleep(PAUSE).await,
            Some(difference) => {
                let text = format!("a read at {url} is not what the API server says: {difference}");
                return Ok(vec![Finding::bad(text)]);
            }
        }
    }
}

fn checked(answer: Answer) -> Result<Answer, Fault> {
    if answer.status.is_success() { Ok(answer) } else { Err(answer.fault()) }
}

/// Where two lists of one object differ, but for what a cache leaves out.
fn difference(here: &Answer, there: &Answer) -> Option<String> {
    let [here, there] = [here, there].map(|answer| answer.json::<Value>().unwrap_or_default());
    let [here, there] = [here, there].map(|list| {
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        for item in &mut items {
            if let Some(metadata) = item["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
        }
        items
    });
    match (&*here, &*there) {
        (_, []) => Some("it has no such profile".to_owned()),
        ([], _) => Some("the cache has no such profile".to_owned()),
        ([one, ..], [other, ..]) if one == other => None,
        ([one, ..], [other, ..]) => Some(format!("they differ in {}", fields(one, other))),
    }
}

/// The fields in which two objects differ, and their versions.
fn fields(one: &Value, other: &Value) -> String {
    let [one, other] = [one, other].map(|object| object.as_object().cloned().unwrap_or_default());
    let mut names: Vec<_> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| one.get(*name) != other.get(*name));
    let names: Vec<_> = names.into_iter().map(String::as_str).collect();
    let version = |object: &Map<String, Value>| {
        object.get("metadata").map_or(Value::Null, |it| it["resourceVersion"].clone()).to_string()
    };
    format!("{} (versions {} and {})", names.join(", "), version(&one), version(&other))
}

fn equal(url: &str, headers: &HeaderMap) -> String {
    let age = headers.get(FRESHNESS).and_then(|value| value.to_str().ok());
    let known = age.map_or_else(String::new, |age| format!(", known to be current {age} ms ago"));
    format!("a read at {url} is what the API server says{known}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(items: &Value) -> Answer {
        let body = json!({ "items": items }).to_string().into();
        Answer { status: http::StatusCode::OK, headers: HeaderMap::new(), body }
    }

    #[test]
    fn what_a_cache_leaves_out_is_no_difference_and_all_else_is() {
        let item = |version: &str, more: &Value| json!({"metadata": {"resourceVersion": version, "managedFields": more}});
        let of = |here: &Value, there: &Value| difference(&answer(here), &answer(there));
        let (one, another) = (json!([item("1", &json!([]))]), json!([item("1", &json!([{}]))]));
        assert_eq!(of(&one, &another), None);
        let newer = json!([item("2", &json!([]))]);
        let said = "they differ in metadata (versions \"1\" and \"2\")";
        assert_eq!(of(&one, &newer).as_deref(), Some(said));
        assert!(of(&json!([]), &one).is_some());
        assert!(of(&json!([]), &json!([])).is_some(), "nothing is no proof");
    }
}
