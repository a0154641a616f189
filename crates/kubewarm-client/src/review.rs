//! Sends access reviews and SelfSubjectRulesReviews, which return the permissions of an identity,
//! and SelfSubjectReviews, which return its user name.

use super::api_client::{ApiClient, ApiResponse};
use http::HeaderMap;
use k8s_openapi::{
    Resource,
    api::{
        authentication::v1::SelfSubjectReview,
        authorization::v1::{
            FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes, ResourceRule,
            SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
            SelfSubjectRulesReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
            SubjectAccessReviewStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::{FieldSelectorRequirement, LabelSelectorRequirement},
};
use kube::Client;
use kubewarm_api::model::{
    FaultReason, FieldSelector, LabelSelector, LabelSelectorOperator, RequestFault,
    RulesCompleteness, Subject,
};
use serde::Serialize;

/// Maximum number of rules for one identity in one namespace, to limit memory. Identities rarely
/// have more than a few hundred rules.
const MAX_RULES: usize = 1_024;
/// Maximum number of groups, resources and object names in the rules of one identity in one
/// namespace. The number of names determines the memory of the rules and the cost of comparing
/// them.
const MAX_NAMES: usize = 4_096;

/// The group of all users that the API server has authenticated.
const AUTHENTICATED: &str = "system:authenticated";

/// The permissions of one identity to list and watch in one namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct ReviewedRules {
    /// The rules that contain `list`, `watch` or `*`, sorted and without all other verbs. There are
    /// at most 1,024 rules, with at most 4,096 groups, resources and object names in total.
    pub rules: Vec<ResourceRule>,
    /// `Incomplete` if the API server did not return all rules, or if the API server's rules exceed
    /// the limits of the field `rules`.
    pub completeness: RulesCompleteness,
}

/// Sends a SelfSubjectRulesReview, and returns the rules that permit the identity of `client` to
/// list or watch in `namespace`. Cluster-wide rules are included.
///
/// If the rules exceed the limits of [`ReviewedRules::rules`], the function drops the remaining
/// rules and returns [`RulesCompleteness::Incomplete`].
///
/// # Errors
///
/// [`RequestFault`] if the request fails; [`FaultReason::Malformed`] if the response has no status;
/// [`FaultReason::TooLarge`] above 1 MiB.
///
/// # Cost
///
/// One request of at most 10 s.
pub async fn review_rules(client: &Client, namespace: &str) -> Result<ReviewedRules, RequestFault> {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let response: SelfSubjectRulesReview = post(client, &review).await?.json()?;
    let status = response.status.ok_or_else(without_status::<SelfSubjectRulesReview>)?;
    let completeness =
        if status.incomplete { RulesCompleteness::Incomplete } else { RulesCompleteness::Complete };
    Ok(kept(status.resource_rules, completeness))
}

/// Filters, sorts and limits `rules`.
///
/// The API server returns rules in any order. Sorting makes the limits drop the same rules each
/// time. Otherwise callers would see changes although no rule has changed.
fn kept(mut rules: Vec<ResourceRule>, mut completeness: RulesCompleteness) -> ReviewedRules {
    for rule in &mut rules {
        rule.verbs.retain(|verb| matches!(verb.as_str(), "list" | "watch" | "*"));
    }
    rules.retain(|rule| !rule.verbs.is_empty());
    rules.sort_by(|left, right| sorting(left).cmp(&sorting(right)));
    let mut names = 0;
    let fits = |rule: &ResourceRule| {
        let lists = [&rule.api_groups, &rule.resources, &rule.resource_names];
        names += lists.into_iter().flatten().map(Vec::len).sum::<usize>();
        names <= MAX_NAMES
    };
    let fitting = rules.iter().take(MAX_RULES).map(fits).take_while(|fits| *fits).count();
    if fitting < rules.len() {
        rules.truncate(fitting);
        completeness = RulesCompleteness::Incomplete;
    }
    rules.shrink_to_fit();
    ReviewedRules { rules, completeness }
}

fn sorting(rule: &ResourceRule) -> [Option<&[String]>; 4] {
    let ResourceRule { api_groups, resources, resource_names, verbs } = rule;
    let names = [api_groups, resources, resource_names].map(Option::as_deref);
    let [groups, resources, names] = names;
    [groups, resources, names, Some(verbs)]
}

/// Restricts the action in `attributes` to the objects that match the label and field selectors of
/// a list or watch. An authorizer can allow a list with selectors and deny a list without them.
pub fn with_selectors(
    attributes: ResourceAttributes,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> ResourceAttributes {
    let (label_selector, field_selector) = (label_selector(labels), field_selector(fields));
    ResourceAttributes { label_selector, field_selector, ..attributes }
}

/// Converts the label selector `labels` into the form that an access review contains. Returns
/// `None` if the selector has no requirements, because the API server rejects an empty list.
///
/// The result omits comparisons such as `Gt`, because the API server does not evaluate them in
/// access reviews.
fn label_selector(labels: &LabelSelector) -> Option<LabelSelectorAttributes> {
    let requirements = labels.requirements().map(|requirement| {
        let values: Vec<_> = requirement.values().map(str::to_owned).collect();
        LabelSelectorRequirement {
            key: requirement.key().to_owned(),
            operator: requirement.operator().to_string(),
            values: Some(values).filter(|values| !values.is_empty()),
        }
    });
    let requirements: Vec<_> = requirements.collect();
    if requirements.is_empty() {
        return None;
    }
    let attributes =
        LabelSelectorAttributes { raw_selector: None, requirements: Some(requirements) };
    Some(attributes)
}

fn field_selector(fields: &FieldSelector) -> Option<FieldSelectorAttributes> {
    let requirements = fields.requirements().map(|requirement| {
        let operator = if requirement.is_equality() {
            LabelSelectorOperator::In
        } else {
            LabelSelectorOperator::NotIn
        };
        FieldSelectorRequirement {
            key: requirement.field().to_owned(),
            operator: operator.to_string(),
            values: Some(vec![requirement.value().to_owned()]),
        }
    });
    (!fields.is_empty()).then(|| FieldSelectorAttributes {
        raw_selector: None,
        requirements: Some(requirements.collect()),
    })
}

/// Sends a SelfSubjectAccessReview and returns whether the identity of `client` is permitted to
/// perform the action in `attributes`.
///
/// # Errors
///
/// The same as for [`review_rules`].
///
/// # Cost
///
/// One request of at most 10 s.
pub async fn is_allowed(
    client: &Client,
    attributes: ResourceAttributes,
) -> Result<bool, RequestFault> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let response: SelfSubjectAccessReview = post(client, &review).await?.json()?;
    response.status.map(|s| is_granted(&s)).ok_or_else(without_status::<SelfSubjectAccessReview>)
}

/// Sends a SubjectAccessReview and returns whether `subject` is permitted to perform the action in
/// `attributes`.
///
/// The identity of `client` needs `create` on `subjectaccessreviews`.
///
/// For a user, the SubjectAccessReview contains no group except `system:authenticated`. The other
/// groups are in the user's certificate or token, which kubewarm does not have. So the result does
/// not include permissions of other groups.
///
/// # Errors
///
/// The same as for [`review_rules`].
///
/// # Cost
///
/// One request of at most 10 s.
pub async fn is_permitted(
    client: &Client,
    subject: &Subject,
    attributes: ResourceAttributes,
) -> Result<bool, RequestFault> {
    let everybody = || AUTHENTICATED.to_owned();
    let (user, groups) = match subject {
        Subject::ServiceAccount { namespace, .. } => {
            (Some(subject.to_string()), service_account_groups(namespace).into())
        }
        Subject::User(name) => (Some(name.to_string()), vec![everybody()]),
        Subject::Group(name) => (None, vec![name.to_string(), everybody()]),
    };
    let spec = SubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        user,
        groups: Some(groups),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let response: SubjectAccessReview = post(client, &review).await?.json()?;
    response.status.map(|s| is_granted(&s)).ok_or_else(without_status::<SubjectAccessReview>)
}

/// The groups to which each ServiceAccount in `namespace` belongs.
pub fn service_account_groups(namespace: &str) -> [String; 3] {
    let all = "system:serviceaccounts";
    [all.to_owned(), format!("{all}:{namespace}"), AUTHENTICATED.to_owned()]
}

/// Whether the status of an access review permits the action. A status that both allows and denies
/// the action does not permit it.
pub(crate) fn is_granted(status: &SubjectAccessReviewStatus) -> bool {
    status.allowed && status.denied != Some(true)
}

/// Sends a SelfSubjectReview and returns the subject that `client` authenticates as. By default,
/// RBAC permits the SelfSubjectReview to every authenticated user.
///
/// # Errors
///
/// [`RequestFault`] if the request fails; [`FaultReason::Malformed`] if the response names no user.
///
/// # Cost
///
/// One request of at most 10 s.
pub async fn fetch_own_subject(client: &Client) -> Result<Subject, RequestFault> {
    let review: SelfSubjectReview = post(client, &SelfSubjectReview::default()).await?.json()?;
    let user = review.status.and_then(|status| status.user_info);
    let username = user.and_then(|user| user.username).filter(|name| !name.is_empty());
    let no_user =
        || RequestFault::new(FaultReason::Malformed, "the SelfSubjectReview names no user");
    Ok(Subject::from_username(&username.ok_or_else(no_user)?))
}

pub(super) async fn post<R: Resource + Serialize>(
    client: &Client,
    review: &R,
) -> Result<ApiResponse, RequestFault> {
    post_with(client, review, HeaderMap::new()).await
}

pub(super) async fn post_with<R: Resource + Serialize>(
    client: &Client,
    review: &R,
    more: HeaderMap,
) -> Result<ApiResponse, RequestFault> {
    let path = format!("/apis/{}/{}", R::API_VERSION, R::URL_PATH_SEGMENT);
    let body = serde_json::to_vec(review).map_err(|_| {
        RequestFault::new(FaultReason::Internal, "a review could not be written as JSON")
    })?;
    // A ServiceAccount with many Roles makes the response large, so this request keeps the default
    // limit of 1 MiB for responses. Thousands of rules fit into 1 MiB.
    ApiClient::new(client).post(path, body).with(more).send().await
}

pub(super) fn without_status<R: Resource>() -> RequestFault {
    RequestFault::new(FaultReason::Malformed, format!("the {} has no status", R::KIND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use std::{convert::Infallible, sync::Arc};
    use tower::service_fn;

    type Sent = Arc<Mutex<Vec<(String, serde_json::Value)>>>;

    /// Returns a client whose server responds with `body` to every request, and the requests that
    /// the server received.
    fn answering(body: &'static str) -> (Client, Sent) {
        let sent = Sent::default();
        let noted = Arc::clone(&sent);
        let service = service_fn(move |request: Request<Body>| {
            let noted = Arc::clone(&noted);
            async move {
                let path = request.uri().path().to_owned();
                let sent = request.into_body().collect().await.unwrap().to_bytes();
                noted.lock().push((path, serde_json::from_slice(&sent).unwrap()));
                Ok::<_, Infallible>(Response::new(Body::from(body.as_bytes().to_vec())))
            }
        });
        (Client::new(service, "default"), sent)
    }

    #[tokio::test]
    async fn the_result_of_a_rules_review_contains_its_completeness() {
        let (client, sent) = answering(
            r#"{"spec":{},"status":{"incomplete":true,"nonResourceRules":[],"resourceRules":
                [{"verbs":["list"],"apiGroups":[""],"resources":["pods"]}]}}"#,
        );
        let rules = review_rules(&client, "shop").await.unwrap();
        assert_eq!(rules.completeness, RulesCompleteness::Incomplete);
        assert_eq!(rules.rules[0].verbs, ["list"]);
        let (path, review) = &sent.lock()[0];
        assert_eq!(path, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews");
        assert_eq!(review["spec"]["namespace"], "shop");
    }

    #[test]
    fn only_rules_for_list_and_watch_are_kept_and_their_number_is_limited() {
        let rule = |verbs: &[&str], resource: &str, names: usize| ResourceRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: Some((0..names).map(|n| n.to_string()).collect()),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        };
        let keep = |rules| kept(rules, RulesCompleteness::Complete);
        let reviewed = keep(vec![
            rule(&["get", "watch"], "pods", 0),
            rule(&["get"], "secrets", 0),
            rule(&["*"], "nodes", 0),
        ]);
        let rules = vec![rule(&["*"], "nodes", 0), rule(&["watch"], "pods", 0)];
        assert_eq!(reviewed, ReviewedRules { rules, completeness: RulesCompleteness::Complete });

        let size = |reviewed: &ReviewedRules| (reviewed.rules.len(), reviewed.completeness);
        let many = |count| keep((0..count).map(|_| rule(&["list"], "pods", 0)).collect());
        assert_eq!(size(&many(1_024)), (1_024, RulesCompleteness::Complete));
        assert_eq!(size(&many(1_025)), (1_024, RulesCompleteness::Incomplete));
        let (few, most) = (rule(&["list"], "a", 1), rule(&["list"], "b", 4_091));
        assert_eq!(size(&keep(vec![most.clone(), few.clone()])), (2, RulesCompleteness::Complete));
        let one_more = rule(&["list"], "b", 4_092);
        assert_eq!(size(&keep(vec![one_more, few])), (1, RulesCompleteness::Incomplete));
    }

    #[tokio::test]
    async fn a_review_without_a_status_is_a_fault() {
        let (client, _) = answering(r#"{"spec":{}}"#);
        let attributes = ResourceAttributes::default();
        let fault = is_allowed(&client, attributes.clone()).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Malformed);
        let (client, sent) = answering(r#"{"spec":{},"status":{"allowed":true}}"#);
        assert_eq!(is_allowed(&client, attributes).await, Ok(true));
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(sent.lock()[0].0, path);
    }

    #[tokio::test]
    async fn a_service_account_is_reviewed_with_its_groups() {
        let (client, sent) = answering(r#"{"spec":{},"status":{"allowed":false}}"#);
        let account = Subject::from_username("system:serviceaccount:shop:reader");
        let is_allowed = is_permitted(&client, &account, ResourceAttributes::default()).await;
        assert_eq!(is_allowed, Ok(false));
        let (path, review) = &sent.lock()[0];
        assert_eq!(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
        assert_eq!(review["spec"]["user"], account.to_string());
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
        assert_eq!(review["spec"]["groups"], serde_json::json!(groups));
    }
    #[tokio::test]
    async fn whoami_returns_the_user_of_the_review() {
        let (client, sent) = answering(
            r#"{"metadata":{},"status":{"userInfo":
            {"username":"system:serviceaccount:shop:kubewarm","groups":["a"]}}}"#,
        );
        let expected =
            Subject::ServiceAccount { namespace: "shop".into(), name: "kubewarm".into() };
        assert_eq!(fetch_own_subject(&client).await, Ok(expected));
        let (path, review) = &sent.lock()[0];
        assert_eq!(path, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
        assert_eq!(review["kind"], "SelfSubjectReview");
    }

    #[tokio::test]
    async fn a_self_review_without_a_user_name_is_a_fault() {
        let (client, _) = answering(r#"{"metadata":{},"status":{"userInfo":{}}}"#);
        assert_eq!(fetch_own_subject(&client).await.unwrap_err().reason(), FaultReason::Malformed);
    }
}
