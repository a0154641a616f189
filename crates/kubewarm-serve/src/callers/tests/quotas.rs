//! Tests the limits per user and per client address on TokenReviews, access reviews, requests,
//! watches and connections.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_abandoned_review_keeps_its_permit_until_the_answer() {
    let delay = Duration::from_secs(1);
    let (callers, _) = reading(FakeReviews { delay, ..FakeReviews::new(said) });
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let leaves = async |token: &CallerCredentials, action: &SelfSubjectAccessReviewSpec| {
        // The timeout drops the call of `admit`, but the TokenReview in progress continues.
        let outcome =
            timeout(delay / 1_000, callers.admit(token, action, PEER, RequestKind::Read)).await;
        outcome.ok().map(|result| result.map(drop))
    };
    let gone = |all: Vec<Option<Result<(), CallerRejection>>>| {
        let busy = |outcome: &Option<_>| {
            *outcome == Some(Err(CallerRejection::Limited(ReadLimit::UserReviews)))
        };
        (
            all.iter().filter(|outcome| outcome.is_none()).count(),
            all.iter().filter(|outcome| busy(outcome)).count(),
        )
    };
    let mut by_address = Vec::new();
    for n in 0..150 {
        by_address.push(leaves(&credentials(&n.to_string(), &[]), &get).await);
    }
    assert_eq!(gone(by_address), (128, 22), "128 reviews of one address wait");
    sleep(20 * delay).await;
    assert!(callers.admit(&good, &get, PEER, RequestKind::Read).await.is_ok());
    let mut by_user = Vec::new();
    for n in 0..300 {
        by_user.push(leaves(&good, &action("get", Some(&n.to_string()))).await);
    }
    assert_eq!(gone(by_user), (256, 44), "256 reviews of one user wait");
    sleep(20 * delay).await;
    let admitted = callers.admit(&good, &get, PEER, RequestKind::Read).await.unwrap();
    let caller = &admitted.caller;
    let mut further = Vec::new();
    for n in 0..300 {
        let get = action("get", Some(&format!("further-{n}")));
        let outcome = timeout(delay / 1_000, callers.authorize(caller, &get)).await;
        further.push(outcome.ok().map(|result| result.map(drop)));
    }
    assert_eq!(gone(further), (256, 44), "256 further reviews of a request wait");
}

#[tokio::test(start_paused = true)]
async fn one_address_sends_few_token_reviews_at_once_and_the_rest_wait_or_fail() {
    let delay = Duration::from_secs(2);
    let say = |token: &str, _: &str| match token {
        "other" => ReviewAnswer::Allowed("john"),
        _ => ReviewAnswer::Allowed("jane"),
    };
    let (callers, count) = reading(FakeReviews { delay, ..FakeReviews::new(say) });
    let tokens: Vec<_> = (0..200).map(|n| credentials(&n.to_string(), &[])).collect();
    let get = action("get", Some("web"));
    let asking = tokens.iter().map(|token| callers.admit(token, &get, PEER, RequestKind::Read));
    let all = join_all(asking);
    let other = async {
        sleep(delay / 2).await;
        let began = Instant::now();
        let peer = Ipv4Addr::new(10, 0, 0, 8).into();
        assert!(
            callers.admit(&credentials("other", &[]), &get, peer, RequestKind::Read).await.is_ok()
        );
        began.elapsed()
    };
    let (results, waited) = tokio::join!(all, other);
    assert!(waited < 3 * delay, "{waited:?}");
    let busy =
        results.iter().filter(|result| matches!(result, Err(CallerRejection::Limited(_)))).count();
    // 128 requests of this client address wait. Eight of their TokenReviews end every two seconds.
    // After 8 s, kubewarm rejects the requests whose TokenReviews still wait.
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 200 - busy);
    assert!((150..175).contains(&busy), "{busy}");
    assert!(count.most.load(Ordering::Relaxed) <= 8 + 1 + 16);
}

#[tokio::test(start_paused = true)]
async fn a_pod_leaves_token_reviews_to_its_nodes_pods_and_a_node_to_other_nodes() {
    let delay = Duration::from_secs(2);
    for (peers, expected) in [
        (&["2001:db8::1"] as &[&str], 8),
        (&["2001:db8::1", "2001:db8::2"], 16),
        (&["2001:db8::1", "2001:db8::2", "2001:db8::3"], 16),
        (&["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"], 24),
        (&["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2"], 16),
    ] {
        let fake = FakeReviews { delay, ..FakeReviews::new(said) };
        let in_progress = Arc::clone(&fake.now);
        let (callers, _) = reading(fake);
        let get = action("get", Some("web"));
        let ask = async |(peer, n): (&str, u8)| {
            let token = credentials(&format!("{peer}-{n}"), &[]);
            callers.admit(&token, &get, peer.parse().unwrap(), RequestKind::Read).await.map(drop)
        };
        let requests = peers.iter().flat_map(|&peer| (0..20).map(move |n| (peer, n)));
        assert!(timeout(delay / 2, join_all(requests.map(ask))).await.is_err());
        assert_eq!(in_progress.load(Ordering::Relaxed), expected, "{peers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_user_has_few_access_reviews_at_once_from_all_addresses() {
    let delay = Duration::from_secs(1);
    let (callers, count) = reading(FakeReviews { delay, ..FakeReviews::new(said) });
    let good = credentials("good", &[]);
    let ask = async |n: u8| {
        let (get, peer) = (action("get", Some(&n.to_string())), Ipv4Addr::new(10, 0, 2, n));
        callers.admit(&good, &get, peer.into(), RequestKind::Read).await.map(drop)
    };
    let results = join_all((0..60).map(ask)).await;
    assert!(results.iter().filter(|result| result.is_ok()).count() >= 48, "{results:?}");
    assert_eq!(count.most.load(Ordering::Relaxed), 16);
}

fn known(token: &str, _: &str) -> ReviewAnswer {
    if token.starts_with("new") { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Unknown }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_guesses_tokens_does_not_delay_readers_with_new_tokens() {
    let delay = Duration::from_millis(5);
    let (callers, count) = reading(FakeReviews { delay, ..FakeReviews::new(known) });
    let get = action("get", Some("web"));
    let began = Instant::now();
    let most = Duration::from_secs(4);
    let trying = (0..200_u8).map(async |n| {
        let peer = IpAddr::from([10, 0, 1, n % 2]);
        let mut tries = 0;
        while began.elapsed() < most {
            let token = credentials(&format!("{n}-{tries}"), &[]);
            assert!(callers.admit(&token, &get, peer, RequestKind::Read).await.is_err());
            tries += 1;
            sleep(delay).await;
        }
    });
    let reading = (0..40_u8).map(async |n| {
        sleep(most / 50 * u32::from(n + 1)).await;
        let token = credentials(&format!("new-{n}"), &[]);
        callers.admit(&token, &get, [10, 0, 2, n].into(), RequestKind::Read).await.map(drop)
    });
    let (_, results) = tokio::join!(join_all(trying), join_all(reading));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    // Each of the two client addresses can send ten invalid tokens at once, and ten more each
    // second. The 40 valid tokens do not count against this limit.
    let asked = count.who.load(Ordering::Relaxed) - 40;
    assert!((80..=104).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn an_accepted_token_is_not_delayed_by_failed_tokens_of_its_address() {
    let (callers, _) = reading(FakeReviews::new(known));
    let (reader, get) = (credentials("new", &[]), action("get", Some("web")));
    let caller = callers.admit(&reader, &get, PEER, RequestKind::Read).await.unwrap().caller;
    advance(Duration::from_secs(10)).await;
    let mut rejections = Vec::new();
    for n in 0..20 {
        rejections.push(
            callers
                .admit(&credentials(&n.to_string(), &[]), &get, PEER, RequestKind::Read)
                .await
                .unwrap_err(),
        );
    }
    assert_eq!(
        rejections[9..11],
        [CallerRejection::Unauthorized, CallerRejection::Limited(ReadLimit::FailedTokens)]
    );
    assert!(callers.admit(&reader, &get, PEER, RequestKind::Read).await.is_ok());
    // kubewarm authenticates an open watch again only after minutes. By then, other tokens can have
    // replaced the cached result of the watch's token, but the limit on invalid tokens must not end
    // the watch.
    let again = credentials("new-again", &[]);
    assert!(callers.authenticate_again(&again, PEER, &caller).await.is_ok());
    let new = credentials("newer", &[]);
    assert_eq!(
        callers.admit(&new, &get, PEER, RequestKind::Read).await.unwrap_err(),
        CallerRejection::Limited(ReadLimit::FailedTokens)
    );
    assert!(callers.admit(&new, &get, [10, 0, 0, 8].into(), RequestKind::Read).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_user_writes_at_most_a_quarter_of_the_large_responses_at_once() {
    let say = |token: &str, _: &str| {
        ReviewAnswer::Allowed(if token == "other" { "john" } else { "jane" })
    };
    let (callers, _) = reading(FakeReviews::new(say));
    let get = action("get", Some("web"));
    let taken = async |token| {
        let get = callers.admit(&credentials(token, &[]), &get, PEER, RequestKind::Read).await;
        let caller = get.unwrap().caller;
        let (permits, mut all) = (callers.large_response_permits(&caller), Vec::new());
        while let Ok(permit) = timeout(Duration::from_secs(1), permits.acquire(1)).await {
            all.push(permit.unwrap());
            assert!(all.len() < 1_000);
        }
        all
    };
    let part = quarter(ListenerLimits::for_reads(ReaderLimits::default()).large_responses);
    let (first, other) = (taken("one").await, taken("other").await);
    assert_eq!((first.len(), other.len()), (part, part));
    assert!(taken("two").await.is_empty(), "both tokens belong to one user");
}

#[tokio::test(start_paused = true)]
async fn one_user_has_at_most_its_quota_of_connections_and_forwarded_requests() {
    let say = |token: &str, _: &str| {
        ReviewAnswer::Allowed(if token == "other" { "john" } else { "jane" })
    };
    let (callers, _) = reading(FakeReviews::new(say));
    let forward = async |token| {
        let by = ForwardAuthentication::Review;
        callers.admit_forwarded(&credentials(token, &[]), PEER, by).await
    };
    let (mut slots, mut connections) = (Vec::new(), Vec::new());
    for n in 0..300 {
        let Ok((jane, place)) = forward(["one", "two"][n % 2]).await else { break };
        connections.extend(callers.acquire_connection(jane.limit_key));
        slots.push(place);
    }
    assert_eq!((slots.len(), connections.len()), (256, 256));
    let (john, _place) = forward("other").await.unwrap();
    assert!(callers.acquire_connection(john.limit_key).is_some());
    slots.pop();
    connections.pop();
    let (jane, _place) = forward("one").await.unwrap();
    assert!(callers.acquire_connection(jane.limit_key).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_user_has_at_most_its_quota_of_requests_with_any_number_of_tokens() {
    let say = |token: &str, _: &str| {
        ReviewAnswer::Allowed(if token == "other" { "john" } else { "jane" })
    };
    let (callers, _) = reading(FakeReviews::new(say));
    let get = action("get", Some("web"));
    let mut admissions = Vec::new();
    for n in 0..100 {
        let token = ["one", "two"][n % 2];
        admissions.push(
            callers.admit(&credentials(token, &[]), &get, PEER, RequestKind::Read).await.unwrap(),
        );
    }
    let more =
        async |token| callers.admit(&credentials(token, &[]), &get, PEER, RequestKind::Read).await;
    assert_eq!(more("one").await.unwrap_err(), CallerRejection::Limited(ReadLimit::UserRequests));
    assert!(more("other").await.is_ok());
    admissions.pop();
    assert!(more("two").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_user_has_at_most_its_quota_of_watches_and_keeps_its_request_quota() {
    let say = |token: &str, _: &str| {
        ReviewAnswer::Allowed(if token == "other" { "john" } else { "jane" })
    };
    let (callers, count) = reading(FakeReviews::new(say));
    let watch = action("watch", None);
    let admit = async |token| {
        callers.admit(&credentials(token, &[]), &watch, PEER, RequestKind::Watch(1)).await
    };
    let mut watches = Vec::new();
    for n in 0..1_024 {
        // A watch that has sent its initial objects keeps only this permit.
        watches.push(admit(["one", "two"][n % 2]).await.unwrap().watch);
    }
    let (_, access_reviews) = counts(&count);
    let refused = admit("three").await.map(drop);
    assert_eq!(refused, Err(CallerRejection::Limited(ReadLimit::UserWatches)));
    assert_eq!(counts(&count).1, access_reviews, "a refused watch costs no access review");
    let usage = callers.usage();
    let in_use = |limit| {
        usage.iter().find(|entry| entry.limit == limit).map(|entry| (entry.in_use, entry.size))
    };
    assert_eq!(in_use(ReadLimit::Watches), Some((1_024, 4_096)));
    assert_eq!(in_use(ReadLimit::UserWatches), Some((1_024, 1_024)));
    assert!(admit("other").await.is_ok());
    watches.pop();
    assert!(admit("three").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_pod_of_agents_is_a_user_and_all_together_leave_a_users_part_to_others() {
    let say = |token: &str, _: &str| match token {
        "other" => ReviewAnswer::Allowed("john"),
        _ => ReviewAnswer::Allowed("system:serviceaccount:shop:agent"),
    };
    let readers = ReaderLimits { watches: 40.try_into().unwrap(), ..ReaderLimits::default() };
    let agents = ["shop/agent".parse().unwrap()].into();
    let limits = ListenerLimits { agents, ..ListenerLimits::for_reads(readers) };
    let callers = of(FakeReviews::new(say), &limits);
    let watch = action("watch", None);
    let fill = async |token| {
        let mut open = Vec::new();
        loop {
            let token = credentials(token, &[]);
            match callers.admit(&token, &watch, PEER, RequestKind::Watch(1)).await {
                Ok(admitted) => open.push(admitted.watch),
                Err(rejection) => return (open, rejection),
            }
        }
    };
    let of_pod = CallerRejection::Limited(ReadLimit::UserWatches);
    let of_all = CallerRejection::AgentsLimited { limit: ReadLimit::UserWatches, account: 0 };
    let mut open = Vec::new();
    for (token, expected, limit) in [
        ("pod-1", 10, &of_pod),
        ("pod-2", 10, &of_pod),
        ("pod-3", 10, &of_pod),
        ("pod-4", 0, &of_all),
        ("unbound", 0, &of_all),
        ("other", 10, &of_pod),
    ] {
        let (more, rejection) = fill(token).await;
        assert_eq!((more.len(), &rejection), (expected, limit), "{token}");
        open.push(more);
    }
    open[0].pop();
    assert_eq!(fill("pod-4").await.0.len(), 1);
    assert_eq!(callers.agents(0).map(ToString::to_string).as_deref(), Some("shop/agent"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_long_query_counts_as_several_watches() {
    let (callers, _) = reading(FakeReviews::new(|_, _| ReviewAnswer::Allowed("jane")));
    let (good, watch) = (credentials("good", &[]), action("watch", None));
    for (query, expected) in [(2_047, 1_024), (2_048, 512), (26 << 10, 73)] {
        let query = "x".repeat(query);
        let mut watches = Vec::new();
        let refused = loop {
            let kind = RequestKind::watch(Some(&query));
            match callers.admit(&good, &watch, PEER, kind).await {
                Ok(admitted) => watches.push(admitted.watch),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, CallerRejection::Limited(ReadLimit::UserWatches));
        assert_eq!(watches.len(), expected, "{}", query.len());
    }
    assert_eq!(RequestKind::watch(None), RequestKind::Watch(1));
}
