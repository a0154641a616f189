//! Which check begins when, and which gates are told.

use super::*;

/// An informer that has asked nothing yet.
const STARTING: OwnAccess = OwnAccess {
    refused_since: None,
    verified_at: None,
    allowed_at: None,
    is_starting: true,
    is_open: true,
};

/// A book with one cell, and whether its trial begins after so many seconds in which its informer says this.
fn tries(own: Option<OwnAccess>, seconds: u64) -> bool {
    let (mut book, now) = (Book::new(Buckets::default(), || 0.0), Instant::now());
    let cell = wanted(key(Identity::Operator, "pods", "shop"));
    book.want([cell].into(), &[], now);
    for second in 0..=seconds {
        let now = now + Duration::from_secs(second);
        book.look(|_| own, PATIENCE, now, Timestamp::UNIX_EPOCH);
    }
    let begun = book.begin(now + Duration::from_secs(seconds));
    begun.iter().any(|(job, _)| matches!(job, Job::Trial(_)))
}

#[tokio::test(start_paused = true)]
async fn the_first_list_and_watch_of_the_informer_are_the_first_trial() {
    let sent = Some(Instant::now());
    let allowed = OwnAccess { verified_at: sent, allowed_at: sent, is_starting: false, ..STARTING };
    assert!(!tries(Some(allowed), 140), "what began together is spread");
    assert!(tries(Some(allowed), 150));
    assert!(!tries(Some(STARTING), 9));
    assert!(tries(Some(STARTING), 10), "a list that goes on for long");
    // A cell without an informer: planned, or paused.
    assert!(!tries(None, 0) && tries(None, 1));
    // A streaming list says nothing of the verb `list`.
    assert!(tries(Some(OwnAccess { is_starting: false, ..STARTING }), 0));
    assert!(tries(Some(OwnAccess { refused_since: Some(Timestamp::UNIX_EPOCH), ..STARTING }), 0));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_not_as_it_is_to_be_is_told_of_each_time() {
    let (mut book, now) = (Book::new(Buckets::default(), || 0.0), Instant::now());
    let cell = key(Identity::Operator, "pods", "shop");
    book.want([wanted(cell.clone())].into(), &[], now);
    let mut told = |cluster: &Cluster, is_open: bool, seconds: u64| {
        let at = now + Duration::from_secs(seconds);
        let found = cluster.answer(&book, &Job::Trial(cell.clone()), at);
        book.found(&Job::Trial(cell.clone()), at, found, at, Timestamp::UNIX_EPOCH);
        let own = OwnAccess { is_starting: false, is_open, ..STARTING };
        let orders = book.look(|_| Some(own), PATIENCE, at, Timestamp::UNIX_EPOCH);
        orders.into_iter().map(|(_, order)| order.is_ok()).collect::<Vec<_>>()
    };
    let (nothing, pods) = (Cluster::allowing(&[]), Cluster::allowing(&["pods"]));
    assert_eq!(
        told(&nothing, true, 0),
        [false],
        "an informer that began to exist after its refusal"
    );
    assert!(told(&nothing, false, 1).is_empty());
    assert_eq!(told(&pods, false, 2), [true]);
    assert!(told(&pods, true, 3).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_called_for_or_may_be_lost_goes_before_what_never_was_readable() {
    let (buckets, now) = (Buckets::default(), Instant::now());
    let mut book = Book::new(buckets.clone(), || 0.0);
    let kinds = ["called", "held", "never"].map(|kind| key(Identity::Operator, kind, "shop"));
    book.want(kinds.clone().map(wanted).into(), &[], now);
    let allowed = Cluster::allowing(&["called", "held"]);
    for key in &kinds {
        let job = Job::Trial(key.clone());
        let found = allowed.answer(&book, &job, now);
        book.found(&job, now, found, now, Timestamp::UNIX_EPOCH);
    }
    let at = now + CALM;
    book.queue.hasten(Job::Trial(kinds[2].clone()), now);
    let called = Job::Trial(kinds[0].clone());
    book.found(
        &Job::AccessReview(kinds[0].clone()),
        at,
        Ok(Found::Access(Input::Reviewed { sent: at, refused: vec![Verb::Watch] })),
        at,
        Timestamp::UNIX_EPOCH,
    );
    let first = |book: &mut Book| {
        let begun = book.begin(at).into_iter().map(|(job, _)| job);
        begun.filter(|job| matches!(job, Job::Trial(_))).collect::<Vec<_>>()
    };
    let order = first(&mut book);
    assert_eq!(order, [called, Job::Trial(kinds[1].clone()), Job::Trial(kinds[2].clone())]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_bucket_is_empty_or_whose_checks_hang_holds_up_nobody_else() {
    let (buckets, now) = (Buckets::default(), Instant::now());
    buckets.charge(&"team-0".into(), 38, now);
    let mut book = Book::new(buckets, || 0.0);
    let cells = (0..4).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    let other = wanted(key(identity(1), "pods", "shop"));
    book.want(cells.chain([other]).collect(), &[], now);
    let begun = book.begin(now);
    assert_eq!(begun.len(), 3, "two of the one, whose bucket is empty, and the other");
    drop(begun);

    let mut book = Book::new(Buckets::default(), || 0.0);
    let cells = (0..20).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    book.want(cells.collect(), &[], now);
    let hanging = book.begin(now);
    assert_eq!(hanging.len(), NAMESPACE_UNDER_WAY);
    tokio::time::advance(Duration::from_secs(1)).await;
    let all = (0..20).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    let other = wanted(key(identity(1), "pods", "shop"));
    book.want(all.chain([other]).collect(), &[], Instant::now());
    assert_eq!(book.begin(Instant::now()).len(), 1);
    drop(hanging);
    assert_eq!(book.begin(Instant::now()).len(), NAMESPACE_UNDER_WAY);
}

#[tokio::test(start_paused = true)]
async fn a_cell_that_is_not_wanted_any_more_is_forgotten() {
    let (mut book, now) = (Book::new(Buckets::default(), || 0.0), Instant::now());
    book.want(thirty_cells(), &[], now);
    let begun = book.begin(now);
    book.want(BTreeMap::new(), &[], now);
    let cluster = Cluster::allowing(&["pods"]);
    for (job, _) in begun {
        let found = cluster.answer(&book, &job, now);
        book.found(&job, now, found, now, Timestamp::UNIX_EPOCH);
    }
    assert!(book.places.is_empty());
    assert_eq!(book.next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_place_whose_cells_are_all_replaced_is_not_asked_about_again() {
    let (mut book, now) = (Book::new(Buckets::default(), || 0.0), Instant::now());
    book.want([wanted(key(Identity::Operator, "pods", "shop"))].into(), &[], now);
    assert_eq!(book.begin(now).len(), 1);
    book.want([wanted(key(Identity::Operator, "secrets", "shop"))].into(), &[], now);
    assert_eq!(keys(&book).count(), 1);
    assert!(book.begin(now).is_empty());
}
