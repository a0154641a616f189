/// Source of the decision that authenticates or authorizes a client of kubewarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecisionSource {
    /// An earlier response of the API server, which kubewarm has cached. kubewarm sends no request.
    Cache,
    /// A review, such as a TokenReview or SubjectAccessReview, that kubewarm sent to the API server
    /// for this decision.
    ApiServer,
    /// The cluster's RBAC rules, which kubewarm watches. kubewarm sends no request.
    Rules,
}
