//! Tests of forwarded writes, which kubewarm identifies without a TokenReview.

use super::*;

const OTHER_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));
const REFUSED: StatusCode = StatusCode::UNAUTHORIZED;

/// Forwards writes through `callers`. A write returns the user's name that `callers` knows before
/// the write, or why it rejects the write.
struct Writers {
    callers: CallerGate,
    count: FakeReviewCounts,
}

impl Writers {
    fn new() -> Self {
        let (callers, count) = reading(FakeReviews::new(said));
        Self { callers, count }
    }

    async fn admit(
        &self,
        token: &str,
        peer: IpAddr,
    ) -> Result<(ForwardedCaller, KeyedPermit), CallerRejection> {
        let (sender, by) = (credentials(token, &[]), ForwardAuthentication::ApiServer);
        self.callers.admit_forwarded(&sender, peer, by).await
    }

    /// Forwards a write that the API server answers with `status`. Returns the name of the user.
    async fn write(
        &self,
        token: &str,
        status: StatusCode,
    ) -> Result<Option<String>, CallerRejection> {
        let (mut caller, _permit) = self.admit(token, PEER).await?;
        self.callers.record_forwarded_response(&mut caller, status);
        Ok(caller.user.map(|user| user.name.clone()))
    }

    async fn read(&self, token: &str) -> Result<(), CallerRejection> {
        let get = action("get", Some("web"));
        self.callers.admit(&credentials(token, &[]), &get, PEER, RequestKind::Read).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_has_the_user_of_the_last_review_however_old_and_sends_no_review() {
    let writers = Writers::new();
    assert_eq!(writers.write("good", StatusCode::CREATED).await, Ok(None));
    assert_eq!(counts(&writers.count), (0, 0));
    writers.read("good").await.unwrap();
    assert_eq!(counts(&writers.count), (1, 1));
    for _ in 0..3 {
        advance(Duration::from_hours(1)).await;
        let user = writers.write("good", StatusCode::CONFLICT).await;
        assert_eq!(user, Ok(Some("jane".to_owned())));
    }
    assert_eq!(counts(&writers.count), (1, 1));
    // An old TokenReview never decides about a read from a store: the read needs a new TokenReview.
    writers.read("good").await.unwrap();
    assert_eq!(counts(&writers.count), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn after_401_a_token_is_known_neither_to_writes_nor_to_reads() {
    let writers = Writers::new();
    writers.read("good").await.unwrap();
    assert_eq!(writers.write("good", REFUSED).await, Ok(Some("jane".to_owned())));
    let (caller, permit) = writers.admit("good", PEER).await.unwrap();
    assert!(caller.user.is_none() && !caller.is_verified());
    drop((caller, permit));
    // The TokenReview of a read shows that the API server still accepts the token.
    writers.read("good").await.unwrap();
    assert_eq!(counts(&writers.count).0, 2, "the read needs a new token review");
    assert_eq!(writers.write("good", StatusCode::OK).await, Ok(Some("jane".to_owned())));
    // After 401, kubewarm also forgets that the API server accepted a token that has only written.
    assert_eq!(writers.write("writer", StatusCode::OK).await, Ok(None));
    assert!(writers.admit("writer", PEER).await.unwrap().0.is_verified());
    assert_eq!(writers.write("writer", REFUSED).await, Ok(None));
    assert!(!writers.admit("writer", PEER).await.unwrap().0.is_verified());
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_not_forwarded_again_for_10_seconds() {
    let writers = Writers::new();
    let unauthorized = Err(CallerRejection::Unauthorized);
    assert_eq!(writers.write("made-up", REFUSED).await, Ok(None));
    advance(Duration::from_millis(9_900)).await;
    assert_eq!(writers.write("made-up", REFUSED).await, unauthorized);
    advance(Duration::from_millis(100)).await;
    assert_eq!(writers.write("made-up", REFUSED).await, Ok(None));
    // After a TokenReview that rejects the token, kubewarm also forwards no write with the token
    // for 10 s.
    assert_eq!(writers.read("bad").await, Err(CallerRejection::Unauthorized));
    assert_eq!(writers.write("bad", StatusCode::OK).await, unauthorized);
    advance(Duration::from_secs(10)).await;
    assert_eq!(writers.write("bad", StatusCode::OK).await, Ok(None));
    // This token is valid, but its owner may not send the SelfSubjectReview that names the user. So
    // the API server accepts writes with it.
    assert!(matches!(writers.read("unable").await, Err(CallerRejection::Forbidden { .. })));
    assert_eq!(writers.write("unable", StatusCode::OK).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn an_address_can_send_ten_refused_tokens_at_once_and_accepted_tokens_are_exempt() {
    let writers = Writers::new();
    writers.read("good").await.unwrap();
    writers.write("writer", StatusCode::FORBIDDEN).await.unwrap();
    // These responses do not prove that the API server accepted the token: a load balancer can send
    // 503, and the API server sends 400 and 429 before it authenticates.
    for status in
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_REQUEST, StatusCode::TOO_MANY_REQUESTS]
    {
        writers.write("unclear", status).await.unwrap();
    }
    let mut forwarded = 0;
    for n in 0..50 {
        forwarded += usize::from(writers.write(&format!("made-up-{n}"), REFUSED).await.is_ok());
    }
    assert_eq!(forwarded, 10);
    let limited = Err(CallerRejection::Limited(ReadLimit::FailedTokens));
    assert_eq!(writers.write("unclear", StatusCode::OK).await, limited);
    assert_eq!(writers.write("good", StatusCode::OK).await, Ok(Some("jane".to_owned())));
    assert_eq!(writers.write("writer", StatusCode::OK).await, Ok(None));
    assert!(writers.admit("unclear", OTHER_PEER).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn unverified_tokens_of_an_address_wait_until_the_api_server_answers_one() {
    let writers = Writers::new();
    let limits = ListenerLimits::for_reads(ReaderLimits::default());
    let at_once = quarter(limits.token_reviews);
    let mut open = Vec::new();
    for _ in 0..at_once {
        open.push(writers.admit("new", PEER).await.unwrap());
    }
    let waited = Instant::now();
    let limited = writers.admit("other", PEER).await.map(|_| ());
    assert_eq!(limited, Err(CallerRejection::Limited(ReadLimit::UserReviews)));
    assert_eq!(waited.elapsed(), MAX_REVIEW_WAIT);
    assert!(writers.admit("other", OTHER_PEER).await.is_ok());
    let waiting = join_all((0..50).map(|_| writers.admit("new", PEER)));
    let answer = async {
        let (mut first, _permit) = open.pop().unwrap();
        writers.callers.record_forwarded_response(&mut first, StatusCode::CREATED);
    };
    let (admitted, ()) = tokio::join!(waiting, answer);
    let is_verified = |admitted: &Result<(ForwardedCaller, KeyedPermit), _>| {
        admitted.as_ref().is_ok_and(|(caller, _)| caller.is_verified())
    };
    assert!(admitted.iter().all(is_verified), "the token is accepted now");
    // After a slow response, the token counts as probably valid, so the request no longer counts
    // against this limit.
    for (caller, _) in &mut open {
        caller.release_permit();
    }
    assert!(writers.admit("other", PEER).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn writes_of_unknown_users_count_against_their_client_address() {
    let writers = Writers::new();
    writers.read("good").await.unwrap();
    let mut admissions = Vec::new();
    for token in (0..300).map(|n| format!("writer-{n}")) {
        let Ok((mut caller, permit)) = writers.admit(&token, PEER).await else { break };
        writers.callers.record_forwarded_response(&mut caller, StatusCode::OK);
        admissions.push((caller, permit));
    }
    assert_eq!(admissions.len(), 256);
    let limited = Err(CallerRejection::Limited(ReadLimit::UserForwardedRequests));
    assert_eq!(writers.admit("more", PEER).await.map(|_| ()), limited);
    let (jane, _permit) = writers.admit("good", PEER).await.unwrap();
    let (elsewhere, _permit) = writers.admit("more", OTHER_PEER).await.unwrap();
    let keys = [admissions[0].0.limit_key, jane.limit_key, elsewhere.limit_key];
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
}
