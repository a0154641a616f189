//! Computes the cache keys of TokenReviews and access reviews. Each key is a keyed hash (HMAC), so
//! the caches contain no tokens.

use crate::ServeError;
use aws_lc_rs::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::{BearerCredentials, CallerInfo};
use serde::Serialize;

/// A keyed hash: the key of a cached TokenReview or access review, or the key by which kubewarm
/// counts a caller in its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerDigest([u8; 32]);

/// The secret HMAC key of the hashes. Each process generates its own key.
pub(super) struct DigestKey(hmac::Key);

impl DigestKey {
    /// Generates a random key.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the kernel returns no random numbers.
    pub(super) fn generate() -> Result<Self, ServeError> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(ServeError::of("cannot create a random key"))
    }

    /// The cache key of a TokenReview.
    pub(super) fn of_credentials(
        &self,
        presented: &BearerCredentials,
    ) -> Result<CallerDigest, RequestFault> {
        self.of(&(), &presented.token)
    }

    /// The cache key of an access review. The key includes the caller's credentials if kubewarm
    /// sends these credentials with the access review, because the result can then differ for each
    /// token.
    pub(super) fn of_access(
        &self,
        presented: Option<&BearerCredentials>,
        spec: &SubjectAccessReviewSpec,
    ) -> Result<CallerDigest, RequestFault> {
        let token = presented.map_or("", |presented| presented.token.as_str());
        self.of(&(presented.is_some(), spec), token)
    }

    /// The key that identifies a user in the limits per user: a hash of the user's name alone. The
    /// hash omits the user's `extra`, which contains a different `credential-id` for each token. So
    /// all tokens of a ServiceAccount count as one user, unless `--agents` names it.
    pub(super) fn of_name(&self, user: &CallerInfo) -> Result<CallerDigest, RequestFault> {
        self.of(&user.name, "")
    }

    /// The key that identifies a pod of the ServiceAccount `user` in the limits per user. kubewarm
    /// hashes the name and the pod's UID as a JSON list, and a user's name as a JSON string, so no
    /// user has this key.
    pub(super) fn of_pod(
        &self,
        user: &CallerInfo,
        pod_uid: &str,
    ) -> Result<CallerDigest, RequestFault> {
        self.of(&(&user.name, pod_uid), "")
    }

    /// The hash of `review` and `token`. Do not pass the token in `review`: kubewarm erases the
    /// memory of `token` after use, but not the memory of the JSON text of `review`.
    fn of(&self, review: &impl Serialize, token: &str) -> Result<CallerDigest, RequestFault> {
        let review = serde_json::to_vec(review).map_err(|error| {
            RequestFault::new(FaultReason::Internal, format!("the review: {error}"))
        })?;
        let mut hash = hmac::Context::with_key(&self.0);
        // The end of a JSON text is unambiguous, so no different pair of `review` and `token` has
        // the same bytes.
        hash.update(&review);
        hash.update(token.as_bytes());
        let mut digest = CallerDigest([0; 32]);
        // `CallerDigest` and the HMAC-SHA256 each have 32 bytes, so `zip` copies all bytes.
        digest.0.iter_mut().zip(hash.sign().as_ref()).for_each(|(to, from)| *to = *from);
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};

    fn of_token(token: &str) -> BearerCredentials {
        BearerCredentials { token: token.to_owned().into() }
    }

    fn spec(change: impl FnOnce(&mut SubjectAccessReviewSpec)) -> SubjectAccessReviewSpec {
        let mut spec = SubjectAccessReviewSpec {
            user: Some("jane".to_owned()),
            resource_attributes: Some(ResourceAttributes::default()),
            ..SubjectAccessReviewSpec::default()
        };
        change(&mut spec);
        spec
    }

    fn about(change: impl FnOnce(&mut ResourceAttributes)) -> SubjectAccessReviewSpec {
        spec(|spec| change(spec.resource_attributes.as_mut().unwrap()))
    }

    #[test]
    fn different_reviews_have_different_digests() {
        let key = DigestKey::generate().unwrap();
        let token = of_token("a");
        let access = |spec: &SubjectAccessReviewSpec| key.of_access(Some(&token), spec);
        let text = |text: &str| Some(text.to_owned());
        let digests = [
            key.of_credentials(&token),
            key.of_credentials(&of_token("b")),
            key.of_access(None, &spec(|_| ())),
            key.of_access(Some(&of_token("b")), &spec(|_| ())),
            key.of_access(Some(&of_token("")), &spec(|_| ())),
            access(&spec(|_| ())),
            access(&spec(|spec| spec.user = text("john"))),
            access(&spec(|spec| spec.uid = text("1"))),
            access(&spec(|spec| spec.groups = Some(vec!["a".to_owned(), "b".to_owned()]))),
            access(&spec(|spec| spec.groups = Some(vec!["ab".to_owned()]))),
            access(&spec(|spec| spec.extra = Some([("a".to_owned(), vec![])].into()))),
            access(&spec(|spec| {
                spec.resource_attributes = None;
                spec.non_resource_attributes = Some(NonResourceAttributes::default());
            })),
            access(&about(|attributes| attributes.verb = text("list"))),
            // A webhook authorizer can decide differently about an empty name and an absent name,
            // so the hashes must differ.
            access(&about(|attributes| attributes.name = text(""))),
            access(&about(|attributes| attributes.name = text("web"))),
            access(&about(|attributes| attributes.namespace = text("web"))),
        ];
        let digests: Vec<_> = digests.into_iter().map(Result::unwrap).collect();
        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest), "{at}");
        }
        let other = DigestKey::generate().unwrap();
        assert_ne!(
            other.of_credentials(&token).unwrap(),
            digests[0],
            "the digest depends on the key"
        );
    }

    #[test]
    fn the_tokens_of_an_account_count_as_one_user() {
        let key = DigestKey::generate().unwrap();
        let of_name = |user: &CallerInfo| key.of_name(user).unwrap();
        let jane = CallerInfo { name: "jane".to_owned(), ..CallerInfo::default() };
        let id = "authentication.kubernetes.io/credential-id".to_owned();
        let extra = [(id, vec!["JTI=1".to_owned()])].into();
        assert_eq!(of_name(&jane), of_name(&CallerInfo { extra, ..jane.clone() }));
        let john = CallerInfo { name: "john".to_owned(), ..jane.clone() };
        assert_ne!(of_name(&jane), of_name(&john));
    }
}
