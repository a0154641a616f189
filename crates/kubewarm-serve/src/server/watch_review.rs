//! The reviews that kubewarm repeats while a watch is open, so that a revoked permission ends the
//! watch.
//!
//! The watch continues to send events during a review. If reviews fail, for instance because the
//! API server is slow or away, the watch stays open for some minutes: the clients of all ended
//! watches would connect again, and their reviews would make the API server slower still.

use crate::callers::{AuthenticatedCaller, CallerCredentials, CallerGate, CallerRejection};
use futures::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use std::{
    future::poll_fn,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// kubewarm repeats the access reviews of an open watch at a random time from 20 s to 25 s after
/// the last ones. With the 5 s for an answer, a revoked permission silences the watch within 30 s.
const REVIEW_INTERVAL: Duration = Duration::from_secs(20);
const REVIEW_SPREAD: Duration = Duration::from_secs(5);
/// The pause after a review without a decision. The pause doubles with each further review without
/// a decision, up to [`REVIEW_INTERVAL`].
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(4);
/// After an outage, all watches repeat their reviews within this time. If a server comes and goes,
/// the time doubles with each further review before its next decision, up to [`REVIEW_INTERVAL`].
const RECOVERY_SPREAD: Duration = Duration::from_secs(5);
/// A first denial silences a watch, and only a second denial after this time ends the watch. An API
/// server that has just started denies everything until it has read its RBAC rules, and must not
/// end the watches of all clients. kubewarm caches the first denial for the same time, so an
/// earlier second review would only repeat it.
const SECOND_DENIAL_PAUSE: Duration = Duration::from_secs(10);
/// At this age of the last positive access reviews, a watch sends no more events. The age counts
/// from the time at which kubewarm sent the reviews.
const MAX_REVIEW_AGE: Duration = Duration::from_secs(30);
/// At this age of the last positive access reviews, a watch ends. From [`MAX_REVIEW_AGE`] until
/// then, a watch that has sent its initial objects stays open but sends nothing. So a short outage
/// of the API server does not end all watches.
const MAX_UNCONFIRMED_AGE: Duration = Duration::from_mins(5);

/// Whether a watch may send events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchPermission {
    /// The last positive access reviews are less than 30 s old, and no denial followed. The watch
    /// sends events.
    Confirmed,
    /// Reviews fail, or the last review was a first denial. The watch sends nothing until a review
    /// is positive again. A watch that still has initial objects to send ends at once.
    Unconfirmed,
    /// Two reviews have denied the access, or reviews have failed for 5 minutes.
    Lost,
}

/// The repeated reviews of one watch.
pub(super) struct WatchReview {
    reviewed: ReviewedWatch,
    /// The caller of the last TokenReview.
    caller: AuthenticatedCaller,
    /// The time of the next TokenReview.
    authentication_due: Instant,
    /// The oldest time that `CallerGate::authorize` has returned for the watch's accesses.
    authorized_at: Instant,
    /// The number of denials since the last positive reviews.
    denials: u32,
    /// The number of reviews without a decision since the last decision.
    failures: u32,
    /// The time of the next review, if none is in progress.
    due: Instant,
    in_progress: Option<BoxFuture<'static, Result<RepeatedReview, CallerRejection>>>,
    /// Ends when the API server answers any client, if it was away at the last review. `None` if
    /// the last review had another result.
    server_return: Option<BoxFuture<'static, ()>>,
    /// The number of reviews that began early, because the API server answered a client, since the
    /// last decision.
    early_reviews: u32,
    /// Whether the RBAC rules permitted the watch at the last look.
    is_by_rules: bool,
    /// Ends after the next change of the RBAC rules.
    rules_change: BoxFuture<'static, ()>,
    /// Ends when the next review is due, or when the age of the last positive reviews changes the
    /// permission.
    timer: Pin<Box<Sleep>>,
}

/// What kubewarm reviews.
#[derive(Clone)]
pub(super) struct ReviewedWatch {
    pub(super) callers: Arc<CallerGate>,
    pub(super) credentials: CallerCredentials,
    pub(super) peer: IpAddr,
    /// The accesses that the watch needs. The API server has permitted all of them.
    pub(super) accesses: Arc<[SelfSubjectAccessReviewSpec]>,
}

/// The result of a repeated TokenReview and positive access reviews.
struct RepeatedReview {
    /// The caller, if the review had a TokenReview.
    caller: Option<AuthenticatedCaller>,
    authorized_at: Instant,
}

impl ReviewedWatch {
    fn is_allowed_by_rules(&self, caller: &AuthenticatedCaller) -> bool {
        let is_allowed = |access| self.callers.is_allowed_by_rules(caller, access);
        self.accesses.iter().all(is_allowed)
    }
}

impl WatchReview {
    /// Creates the repeated reviews of a watch that starts now. kubewarm sent the oldest of the
    /// access reviews that permit the watch at `authorized_at`.
    pub(super) fn new(
        reviewed: ReviewedWatch,
        caller: AuthenticatedCaller,
        authorized_at: Instant,
    ) -> Self {
        // The first repetition is at a random time, so that kubewarm does not review all watches
        // that started together at the same time.
        let due = authorized_at + (REVIEW_INTERVAL + REVIEW_SPREAD).mul_f64(fastrand::f64());
        let authentication_due = caller.reauthentication_due(Timestamp::now());
        // The wait begins before the look, so that no change between them is lost.
        let rules_change = reviewed.callers.rules_change();
        let is_by_rules = reviewed.is_allowed_by_rules(&caller);
        Self {
            reviewed,
            caller,
            authentication_due,
            authorized_at,
            denials: 0,
            failures: 0,
            due,
            in_progress: None,
            server_return: None,
            early_reviews: 0,
            is_by_rules,
            rules_change,
            timer: Box::pin(sleep_until(due)),
        }
    }

    /// Whether the watch may send events at `now`.
    pub(super) fn permission(&self, now: Instant) -> WatchPermission {
        let age = now.saturating_duration_since(self.authorized_at);
        if self.denials > 1 || age >= MAX_UNCONFIRMED_AGE {
            WatchPermission::Lost
        } else if self.denials > 0 || age >= MAX_REVIEW_AGE {
            WatchPermission::Unconfirmed
        } else {
            WatchPermission::Confirmed
        }
    }

    /// Repeats the reviews when they are due. Returns when the permission might have changed.
    /// Cancel safe: a review in progress continues at the next call.
    pub(super) async fn changed(&mut self) {
        poll_fn(|context| self.poll_changed(context)).await;
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.rules_change.poll_unpin(context).is_ready() {
                self.rules_change = self.reviewed.callers.rules_change();
                self.note_rules_change(Instant::now());
                continue;
            }
            if let Some(server_return) = &mut self.server_return
                && server_return.poll_unpin(context).is_ready()
            {
                self.server_return = None;
                self.note_server_return(Instant::now());
                continue;
            }
            if let Some(review) = &mut self.in_progress
                && let Poll::Ready(result) = review.poll_unpin(context)
            {
                self.in_progress = None;
                self.record(result, Instant::now());
                self.reset_timer();
                return Poll::Ready(());
            }
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            if self.in_progress.is_none() && now >= self.due {
                self.in_progress = Some(self.begin(now));
                self.reset_timer();
                // The loop polls the new review and the new timer once, so that both can wake this
                // task.
                continue;
            }
            self.reset_timer();
            return Poll::Ready(());
        }
    }

    /// If the RBAC rules no longer permit the watch, lets an access review decide at once. A watch
    /// that the rules did not permit before cannot lose a permission by their change.
    fn note_rules_change(&mut self, now: Instant) {
        if !self.is_by_rules || self.reviewed.is_allowed_by_rules(&self.caller) {
            return;
        }
        self.is_by_rules = false;
        // A decision in progress can be from before the change.
        self.in_progress = None;
        self.due = now;
        self.reset_timer();
    }

    /// Repeats the reviews soon, because the API server answers again.
    fn note_server_return(&mut self, now: Instant) {
        let spread = RECOVERY_SPREAD.saturating_mul(1 << self.early_reviews.min(8));
        let delay = spread.min(REVIEW_INTERVAL).mul_f64(fastrand::f64());
        self.due = self.due.min(now + delay);
        // If kubewarm's own limits reject this review, the next pause is short again.
        self.failures = self.early_reviews;
        self.early_reviews = self.early_reviews.saturating_add(1);
        self.reset_timer();
    }

    /// Sets the timer to the next time at which something happens.
    fn reset_timer(&mut self) {
        let now = Instant::now();
        let ages = [MAX_REVIEW_AGE, MAX_UNCONFIRMED_AGE];
        let changes = ages.map(|age| self.authorized_at + age).into_iter().filter(|at| *at > now);
        let due = self.in_progress.is_none().then_some(self.due);
        // After the last of these times the watch has ended, and the timer no longer matters.
        let next = changes.chain(due).min().unwrap_or(now + MAX_UNCONFIRMED_AGE);
        self.timer.as_mut().reset(next);
    }

    fn record(&mut self, result: Result<RepeatedReview, CallerRejection>, now: Instant) {
        let is_server_away =
            matches!(&result, Err(CallerRejection::Undecided(fault)) if fault.is_server_away());
        self.server_return = is_server_away.then(|| self.reviewed.callers.answered_since(now));
        match result {
            // A client can send a certificate and a token. After the certificate's expiry, the
            // token can authenticate another user, but the watch counts against the limits of the
            // first user. So a change of the user counts as a denial.
            Ok(RepeatedReview { caller: Some(caller), .. })
                if caller.limit_key != self.caller.limit_key =>
            {
                self.record_denial(now);
            }
            Ok(RepeatedReview { caller, authorized_at }) => {
                if let Some(caller) = caller {
                    self.authentication_due = caller.reauthentication_due(Timestamp::now());
                    self.caller = caller;
                }
                self.authorized_at = authorized_at;
                self.is_by_rules = self.reviewed.is_allowed_by_rules(&self.caller);
                (self.failures, self.early_reviews, self.denials) = (0, 0, 0);
                self.due = authorized_at + REVIEW_INTERVAL + REVIEW_SPREAD.mul_f64(fastrand::f64());
            }
            Err(
                CallerRejection::Limited(_)
                | CallerRejection::AgentsLimited { .. }
                | CallerRejection::Undecided(_),
            ) => {
                let pause = MIN_RETRY_PAUSE.saturating_mul(1 << self.failures.min(8));
                let spread = fastrand::f64().mul_add(0.5, 0.75);
                self.due = now + pause.min(REVIEW_INTERVAL).mul_f64(spread);
                self.failures = self.failures.saturating_add(1);
            }
            Err(
                CallerRejection::Unauthorized
                | CallerRejection::Forbidden { .. }
                | CallerRejection::Impersonation,
            ) => self.record_denial(now),
        }
    }

    fn record_denial(&mut self, now: Instant) {
        self.denials += 1;
        self.due = now + SECOND_DENIAL_PAUSE;
    }

    /// Starts a TokenReview, if it is due, and then all access reviews of the watch.
    fn begin(&self, now: Instant) -> BoxFuture<'static, Result<RepeatedReview, CallerRejection>> {
        let (reviewed, known) = (self.reviewed.clone(), self.caller.clone());
        let is_authentication_due = now >= self.authentication_due;
        let review = async move {
            let ReviewedWatch { callers, credentials, peer, accesses } = reviewed;
            let caller = if is_authentication_due {
                Some(callers.authenticate_again(&credentials, peer, &known).await?)
            } else {
                None
            };
            callers.pace_watch().await?;
            let mut authorized_at = Instant::now();
            for access in &*accesses {
                let reviewed_at =
                    callers.authorize(caller.as_ref().unwrap_or(&known), access).await?;
                authorized_at = authorized_at.min(reviewed_at);
            }
            Ok(RepeatedReview { caller, authorized_at })
        };
        review.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::{
        RequestKind,
        fixtures::{FakeReviewCounts, FakeReviewFn, ReviewAnswer, changing_counted, pods},
        rbac::fixtures::{RuledCallers, by_rules},
    };
    use kubewarm_api::model::{FaultReason, RequestFault};
    use kubewarm_client::ServerReachability;
    use std::{net::Ipv4Addr, sync::atomic::Ordering};
    use tokio::time::timeout_at;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn may(_: &str, _: &str) -> ReviewAnswer {
        ReviewAnswer::Allowed("jane")
    }

    fn unreachable(_: &str, _: &str) -> ReviewAnswer {
        ReviewAnswer::Nothing(RequestFault::new(FaultReason::Unreachable, "refused"))
    }

    /// The token `t0k3n`, or a JSON Web Token that expires after this time.
    fn credentials(life: Option<Duration>) -> CallerCredentials {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        let token = life.map_or_else(
            || "t0k3n".to_owned(),
            |life| {
                let expiry = Timestamp::now().as_duration().as_secs_f64() + life.as_secs_f64();
                format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(format!("{{\"exp\": {expiry}}}")))
            },
        );
        let header = format!("Bearer {token}");
        CallerCredentials::from_headers([("authorization", header.as_bytes())]).unwrap()
    }

    async fn begun(callers: &Arc<CallerGate>, life: Option<Duration>) -> WatchReview {
        let (credentials, access) = (credentials(life), pods("watch", Some("web")));
        let admitted =
            callers.admit(&credentials, &access, PEER, RequestKind::Watch(1)).await.unwrap();
        let (callers, accesses) = (Arc::clone(callers), [access].into());
        let reviewed = ReviewedWatch { callers, credentials, peer: PEER, accesses };
        WatchReview::new(reviewed, admitted.caller.clone(), admitted.authorized_at)
    }

    /// Repeats the reviews of a watch until it is lost, or for the time `most`. Returns the time
    /// until the watch stopped to send events for the last time, and the time until its end.
    async fn go_on(review: &mut WatchReview, most: Duration) -> (Duration, Duration) {
        let began = Instant::now();
        let mut confirmed = Duration::ZERO;
        while began.elapsed() < most {
            let permission = review.permission(Instant::now());
            if permission == WatchPermission::Lost {
                break;
            }
            let _ended = timeout_at(began + most, review.changed()).await;
            if permission == WatchPermission::Confirmed {
                confirmed = began.elapsed();
            }
        }
        (confirmed, began.elapsed())
    }

    fn reviews(count: &FakeReviewCounts) -> (usize, usize) {
        (count.who.swap(0, Ordering::Relaxed), count.may.swap(0, Ordering::Relaxed))
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_a_watch_costs_6_token_reviews_and_160_access_reviews() {
        let (callers, _, count) = changing_counted(may);
        let mut review = begun(&Arc::new(callers), None).await;
        reviews(&count);
        assert_eq!(go_on(&mut review, HOUR).await, (HOUR, HOUR));
        let (token_reviews, access_reviews) = reviews(&count);
        assert!((5..=8).contains(&token_reviews), "{token_reviews}");
        assert!((140..=182).contains(&access_reviews), "{access_reviews}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_permission_silences_a_watch_within_30_seconds_and_then_ends_it() {
        let (callers, say, _) = changing_counted(may);
        let mut review = begun(&Arc::new(callers), None).await;
        go_on(&mut review, HOUR).await;
        *say.lock() = |_, _| ReviewAnswer::Denied("jane");
        let (silent, ended) = go_on(&mut review, HOUR).await;
        assert!(silent <= MAX_REVIEW_AGE, "{silent:?}");
        assert!(ended <= MAX_REVIEW_AGE + SECOND_DENIAL_PAUSE, "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_denial_of_an_api_server_that_starts_ends_no_watch() {
        let (callers, say, _) = changing_counted(may);
        let mut review = begun(&Arc::new(callers), None).await;
        *say.lock() = |_, _| ReviewAnswer::Denied("jane");
        while review.permission(Instant::now()) == WatchPermission::Confirmed {
            review.changed().await;
        }
        assert_eq!(review.permission(Instant::now()), WatchPermission::Unconfirmed);
        *say.lock() = may;
        assert_eq!(go_on(&mut review, HOUR).await, (HOUR, HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_token_ends_a_watch_within_10_minutes_or_at_its_expiry() {
        for (life, least, most) in
            [(None, Duration::ZERO, 600 + 40), (Some(120), Duration::from_secs(100), 120 + 40)]
        {
            let (callers, say, _) = changing_counted(may);
            let mut review = begun(&Arc::new(callers), life.map(Duration::from_secs)).await;
            // The access review asks about the user, so it says nothing about the token.
            *say.lock() = |_, verb| {
                if verb.is_empty() { ReviewAnswer::Unknown } else { ReviewAnswer::Allowed("jane") }
            };
            let (_, ended) = go_on(&mut review, HOUR).await;
            assert!(ended >= least && ended <= Duration::from_secs(most), "{ended:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_decisions_a_watch_is_silent_after_30_seconds_and_ends_after_5_minutes() {
        let (callers, say, count) = changing_counted(may);
        let mut review = begun(&Arc::new(callers), None).await;
        let authorized_at = review.authorized_at;
        *say.lock() = unreachable;
        reviews(&count);
        let (silent, ended) = go_on(&mut review, HOUR).await;
        let late = Duration::from_millis(10);
        let is_at = |seen: Duration, age| seen >= age && seen < age + late;
        assert!(is_at(silent, MAX_REVIEW_AGE), "{silent:?}");
        assert!(is_at(ended, MAX_UNCONFIRMED_AGE), "{ended:?}");
        assert_eq!(review.authorized_at, authorized_at);
        let (token_reviews, access_reviews) = reviews(&count);
        assert!((10..=30).contains(&(token_reviews + access_reviews)), "retries slow down");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_during_an_outage_for_the_grace_period() {
        let (callers, say, count) = changing_counted(may);
        let (reachability, grace) = (ServerReachability::default(), Duration::from_mins(20));
        let callers = callers.with_reachability(reachability.clone()).with_outage_grace(grace);
        let mut review = begun(&Arc::new(callers), None).await;
        reachability.record_answer(Instant::now());
        *say.lock() = unreachable;
        reviews(&count);
        let (silent, ended) = go_on(&mut review, HOUR).await;
        let late = REVIEW_INTERVAL + REVIEW_SPREAD;
        let is_after = |seen: Duration, age: Duration| seen + late >= age && seen <= age + late;
        assert!(is_after(silent, grace + MAX_REVIEW_AGE), "{silent:?}");
        assert!(is_after(ended, grace + MAX_UNCONFIRMED_AGE), "{ended:?}");
        let (token_reviews, access_reviews) = reviews(&count);
        assert!(token_reviews + access_reviews < 60, "{token_reviews} {access_reviews}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_continues_within_5_seconds_after_the_api_server_answers_a_client() {
        // Without an early review, the next one of a single watch could be due by chance.
        for _ in 0..10 {
            let (callers, say, count) = changing_counted(may);
            let reachability = ServerReachability::default();
            let callers = callers.with_reachability(reachability.clone());
            let mut review = begun(&Arc::new(callers), None).await;
            *say.lock() = unreachable;
            go_on(&mut review, Duration::from_mins(2)).await;
            assert_eq!(review.permission(Instant::now()), WatchPermission::Unconfirmed);
            *say.lock() = may;
            reachability.record_answer(Instant::now());
            let _ended = timeout_at(Instant::now() + RECOVERY_SPREAD, review.changed()).await;
            assert_eq!(review.permission(Instant::now()), WatchPermission::Confirmed);
            // An error of the API server itself, such as a failed authorizer, is not repeated
            // early.
            *say.lock() =
                |_, _| ReviewAnswer::Nothing(RequestFault::new(FaultReason::Internal, ""));
            go_on(&mut review, Duration::from_mins(2)).await;
            reviews(&count);
            reachability.record_answer(Instant::now());
            go_on(&mut review, RECOVERY_SPREAD).await;
            let (token_reviews, access_reviews) = reviews(&count);
            assert!(token_reviews + access_reviews <= 1, "{token_reviews} {access_reviews}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_only_others_gets_at_most_a_review_in_five_seconds() {
        let (callers, say, count) = changing_counted(may);
        let reachability = ServerReachability::default();
        let callers = callers.with_reachability(reachability.clone());
        let mut review = begun(&Arc::new(callers), None).await;
        *say.lock() = unreachable;
        reviews(&count);
        for _ in 0..4 * 60 {
            reachability.record_answer(Instant::now());
            go_on(&mut review, Duration::from_secs(1)).await;
        }
        let (token_reviews, access_reviews) = reviews(&count);
        assert!(token_reviews + access_reviews < 240 / 5, "{token_reviews} {access_reviews}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_continues_after_a_positive_review_and_ends_after_a_denial() {
        for (answer, is_lost) in [
            (may as FakeReviewFn, false),
            ((|_, _| ReviewAnswer::Denied("jane")) as FakeReviewFn, true),
        ] {
            let (callers, say, _) = changing_counted(may);
            let mut review = begun(&Arc::new(callers), None).await;
            *say.lock() = unreachable;
            go_on(&mut review, Duration::from_mins(2)).await;
            assert_eq!(review.permission(Instant::now()), WatchPermission::Unconfirmed);
            *say.lock() = answer;
            let (_, ended) = go_on(&mut review, HOUR).await;
            assert_eq!(ended < HOUR, is_lost, "{ended:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_starts_with_a_cached_review_counts_its_age_from_that_review() {
        let (callers, say, _) = changing_counted(may);
        let callers = Arc::new(callers);
        let began = Instant::now();
        drop(begun(&callers, None).await);
        tokio::time::sleep(Duration::from_secs(9)).await;
        let mut review = begun(&callers, None).await;
        assert_eq!(review.authorized_at, began);
        *say.lock() = unreachable;
        let (silent, _) = go_on(&mut review, HOUR).await;
        let age = silent + Duration::from_secs(9);
        assert!(age >= MAX_REVIEW_AGE && age < MAX_REVIEW_AGE + Duration::from_millis(20));
    }

    /// A watch that the RBAC rules permit.
    async fn begun_by_rules() -> (RuledCallers, WatchReview) {
        let ruled = by_rules(may);
        let published = Arc::clone(&ruled.rules.rules);
        tokio::spawn(async move { published.publish_changes().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let review = begun(&ruled.callers, None).await;
        reviews(&ruled.count);
        (ruled, review)
    }

    fn deny(_: &str, verb: &str) -> ReviewAnswer {
        if verb.is_empty() { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Denied("jane") }
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_a_watch_by_rules_costs_only_samples() {
        let (ruled, mut review) = begun_by_rules().await;
        let changing = Arc::clone(&ruled.callers);
        assert_eq!(go_on(&mut review, HOUR).await, (HOUR, HOUR));
        drop(changing);
        let (token_reviews, access_reviews) = reviews(&ruled.count);
        assert!((5..=8).contains(&token_reviews), "{token_reviews}");
        // Each decision is a sample here, because there is only one watch.
        assert!(access_reviews <= 182, "{access_reviews}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revocation_silences_a_watch_by_rules_within_a_second() {
        let (ruled, mut review) = begun_by_rules().await;
        go_on(&mut review, Duration::from_secs(90)).await;
        ruled.rules.revoke();
        *ruled.say.lock() = deny;
        let (silent, ended) = go_on(&mut review, HOUR).await;
        assert!(silent <= Duration::from_secs(1), "{silent:?}");
        assert!(ended <= Duration::from_secs(1) + SECOND_DENIAL_PAUSE, "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn other_changes_of_rules_cost_no_reviews() {
        let (ruled, mut review) = begun_by_rules().await;
        ruled.rules.revoke();
        go_on(&mut review, Duration::from_secs(1)).await;
        let (_, access_reviews) = reviews(&ruled.count);
        assert_eq!(access_reviews, 1, "another authorizer permits the watch");
        for _ in 0..10 {
            ruled.rules.change();
            go_on(&mut review, Duration::from_secs(1)).await;
        }
        assert_eq!(reviews(&ruled.count), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_by_rules_continues_by_reviews_after_a_fallback() {
        let (ruled, mut review) = begun_by_rules().await;
        *ruled.say.lock() = deny;
        let other = pods("list", None);
        let denied = ruled.callers.authorize(&review.caller, &other).await;
        assert!(matches!(denied, Err(CallerRejection::Forbidden { .. })));
        *ruled.say.lock() = |_, verb| match verb {
            "list" => ReviewAnswer::Denied("jane"),
            _ => ReviewAnswer::Allowed("jane"),
        };
        assert_eq!(go_on(&mut review, HOUR).await, (HOUR, HOUR));
        assert!(ruled.rules.rules.fallback().is_some());
        assert!(reviews(&ruled.count).1 > 100);
    }
}
