//! What the API server said of callers a moment ago, so that it is not asked about each request, and
//! what it is being asked.

use crate::{
    cluster::{Action, Presented, User, Verdict, Who},
    model::Subject,
};
use ring::{
    error::Unspecified,
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long somebody who was allowed stays so: a right that is revoked ends within it.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long somebody who was refused stays so: a right that is granted counts after it.
const REFUSED: Duration = Duration::from_secs(5);

/// How long it is remembered that somebody was let in, once that counts no more: whoever comes back is asked about
/// before strangers.
const LATELY: Duration = Duration::from_mins(10);

/// Of which question: a keyed hash, as no token is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag([u8; 32]);

/// What tags are made with, of this process alone.
pub(super) struct Key(hmac::Key);

/// What is remembered.
pub(super) trait Kept: Clone + Send + Sync + 'static {
    /// Whether it is good for the caller.
    fn lets_in(&self) -> bool;

    /// The namespace that it concerns beside that of the question.
    fn namespace(&self) -> Option<Arc<str>>;
}

/// A question, as far as one is told from another.
#[derive(Clone, Debug)]
pub(super) struct QuestionKey {
    pub(super) tag: Tag,
    /// The namespace that is asked about; `None` for all of them, and for what has none.
    pub(super) namespace: Option<Arc<str>>,
}

/// How often something was forgotten: an answer to a question from before is not remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Age(u64);

/// What is remembered of one question.
struct Held<T> {
    ends: Instant,
    /// The namespaces that it concerns.
    namespaces: [Option<Arc<str>>; 2],
    decision: T,
}

/// Answers by tag, each until it ends, and questions that have none yet.
pub(super) struct Decisions<T, Q> {
    most: usize,
    held: HashMap<Tag, Held<T>>,
    /// Bounded by those who wait for an answer: each waits with a request.
    posed: HashMap<Tag, (Age, Q)>,
    age: Age,
}

impl<T: Kept> Held<T> {
    fn forgotten(&self) -> Instant {
        if self.decision.lets_in() { self.ends + LATELY } else { self.ends }
    }

    fn worth(&self) -> (bool, Instant) {
        (self.decision.lets_in(), self.ends)
    }
}

impl Kept for Who {
    fn lets_in(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// An account goes with its namespace.
    fn namespace(&self) -> Option<Arc<str>> {
        let Self::Known(user) = self else { return None };
        match Subject::from_username(&user.name) {
            Subject::ServiceAccount { namespace, .. } => Some(namespace),
            Subject::User(_) | Subject::Group(_) => None,
        }
    }
}

impl Kept for Verdict {
    fn lets_in(&self) -> bool {
        *self == Self::Allowed
    }

    fn namespace(&self) -> Option<Arc<str>> {
        None
    }
}

impl Key {
    /// A new one.
    pub(super) fn generate() -> Result<Self, Unspecified> {
        hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).map(Self)
    }

    /// Of the question whose credentials these are.
    pub(super) fn of_credentials(&self, presented: &Presented) -> Tag {
        self.tag(|parts| parts.credentials(presented))
    }

    /// Of the question whether they may do `action`: of the whole identity, as two users may have one
    /// name, and of the token, as it may end; whose certificate it is, is known anew each time.
    pub(super) fn of_action(&self, token: Option<&Presented>, user: &User, action: &Action) -> Tag {
        self.tag(|parts| {
            parts.count(token.iter().count());
            if let Some(token) = token {
                parts.credentials(token);
            }
            parts.user(user);
            parts.action(action);
        })
    }

    /// Of whoever shows `bearer`: a token, however it is written.
    pub(super) fn of_bearer(&self, bearer: &[u8]) -> Tag {
        self.tag(|parts| parts.part(bearer))
    }

    /// Of whom requests are counted by.
    pub(super) fn of_user(&self, user: &User) -> Tag {
        self.tag(|parts| parts.user(user))
    }

    fn tag(&self, write: impl FnOnce(&mut Parts)) -> Tag {
        let mut parts = Parts(hmac::Context::with_key(&self.0));
        write(&mut parts);
        let mut tag = Tag([0; 32]);
        // As long as the hash is.
        tag.0.iter_mut().zip(parts.0.sign().as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }
}

/// What a tag is made of, piece by piece.
struct Parts(hmac::Context);

impl Parts {
    /// The length first: no other parts come to the same bytes.
    fn part(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.count(part.len());
        self.0.update(part);
    }

    fn count(&mut self, count: usize) {
        self.0.update(&count.to_le_bytes());
    }

    fn parts<P: AsRef<[u8]>>(&mut self, parts: &[P]) {
        self.count(parts.len());
        for part in parts {
            self.part(part);
        }
    }

    fn optional(&mut self, part: Option<&str>) {
        self.parts(part.as_slice());
    }

    fn credentials(&mut self, Presented { token, impersonation }: &Presented) {
        self.part(token.as_str());
        self.count(impersonation.len());
        for (name, value) in impersonation {
            self.part(name.as_str());
            self.part(value);
        }
    }

    fn user(&mut self, User { name, uid, groups, extra }: &User) {
        self.part(name);
        self.part(uid);
        self.parts(groups);
        self.count(extra.len());
        for (key, values) in extra {
            self.part(key);
            self.parts(values);
        }
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::Path { verb, path } => {
                self.part("path");
                self.part(verb);
                self.part(path);
            }
            Action::Resource {
                verb,
                group,
                version,
                resource,
                namespace,
                name,
                labels,
                fields,
            } => {
                self.part("resource");
                self.part(verb);
                self.part(group.as_ref());
                self.part(version.as_ref());
                self.part(resource.as_ref());
                // A name is not the same as none: who may read all may be refused one by a webhook.
                self.optional(namespace.as_deref());
                self.optional(name.as_deref());
                // Canonical: what is asked alike is written alike.
                self.part(labels.to_string());
                self.part(fields.to_string());
            }
        }
    }
}

impl<T: Kept, Q: Clone> Decisions<T, Q> {
    /// Nothing is known yet, and never more than `most` answers are.
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: HashMap::new(), posed: HashMap::new(), age: Age::default() }
    }

    /// What was decided, if that still counts.
    pub(super) fn get(&self, tag: &Tag, now: Instant) -> Option<T> {
        let Held { ends, decision, .. } = self.held.get(tag)?;
        (now < *ends).then(|| decision.clone())
    }

    /// What was decided, if that let somebody in and counts, or did so lately. Good for nothing but the order in which
    /// questions are asked.
    pub(super) fn let_in_lately(&self, tag: &Tag, now: Instant) -> Option<T> {
        let held = self.held.get(tag)?;
        (held.decision.lets_in() && now < held.forgotten()).then(|| held.decision.clone())
    }

    /// Remembers what was decided about what was asked at `asked`, unless something was forgotten since.
    pub(super) fn put(
        &mut self,
        QuestionKey { tag, namespace }: QuestionKey,
        decision: T,
        (asked, age): (Instant, Age),
    ) {
        if age != self.age {
            return;
        }
        if self.held.len() >= self.most && !self.held.contains_key(&tag) {
            self.held.retain(|_, held| asked < held.forgotten());
        }
        // All of them are good for something: of refusals, else of the others, the one that ends first goes now.
        // So nobody makes others forgotten by trying tokens.
        if self.held.len() >= self.most
            && !self.held.contains_key(&tag)
            && let Some(first) =
                self.held.iter().min_by_key(|(_, held)| held.worth()).map(|(&tag, _)| tag)
        {
            self.held.remove(&first);
        }
        let life = if decision.lets_in() { ALLOWED } else { REFUSED };
        let namespaces = [namespace, decision.namespace()];
        self.held.insert(tag, Held { ends: asked + life, namespaces, decision });
    }

    /// To be given with the answer to a question that is asked now.
    pub(super) fn age(&self) -> Age {
        self.age
    }

    /// Forgets what concerns `namespace`, or everything. Nobody joins a question any more that is under way. Who was
    /// let in is still asked about before strangers: else whoever has things forgotten would keep them out.
    pub(super) fn forget(&mut self, namespace: Option<&str>, now: Instant) {
        self.age.0 += 1;
        self.posed.clear();
        self.held.retain(|_, held| {
            let concerns =
                |wanted: &str| held.namespaces.iter().flatten().any(|it| **it == *wanted);
            if namespace.is_none_or(concerns) {
                held.ends = held.ends.min(now);
                return held.decision.lets_in();
            }
            true
        });
    }

    /// The question that is being asked already.
    pub(super) fn question(&self, tag: &Tag) -> Option<Q> {
        self.posed.get(tag).map(|(_, question)| question.clone())
    }

    /// Others may join `question` from now on.
    pub(super) fn pose(&mut self, tag: Tag, question: Q) {
        self.posed.insert(tag, (self.age, question));
    }

    /// The question that was posed at `age` has its answer, or will have none. One that was posed since goes on.
    pub(super) fn end(&mut self, tag: &Tag, age: Age) {
        if self.posed.get(tag).is_some_and(|(posed, _)| *posed == age) {
            self.posed.remove(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        FieldRequirement, FieldSelector, LabelRequirement, LabelSelector, Operator,
    };
    use http::{HeaderName, HeaderValue};

    const MOST: usize = 256;

    fn decisions() -> Decisions<Who, ()> {
        Decisions::new(MOST)
    }

    fn of_token(token: &str) -> Presented {
        Presented { token: token.to_owned().into(), impersonation: Vec::new() }
    }

    fn of(tag: Tag) -> QuestionKey {
        QuestionKey { tag, namespace: None }
    }

    fn known() -> Who {
        Who::Known(std::sync::Arc::default())
    }

    fn path(verb: &str, path: &str) -> Action {
        Action::Path { verb: verb.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn what_was_allowed_counts_for_ten_seconds_and_a_refusal_for_five() {
        let (mut decisions, start) = (decisions(), Instant::now());
        let key = Key::generate().unwrap();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [good, bad] = ["good", "bad"].map(|token| key.of_credentials(&of_token(token)));
        decisions.put(of(good), known(), (start, Age(0)));
        decisions.put(of(bad), Who::Unknown, (start, Age(0)));
        assert_eq!(decisions.get(&good, at(9)), Some(known()));
        assert_eq!(decisions.get(&good, at(10)), None);
        assert_eq!(decisions.get(&bad, at(4)), Some(Who::Unknown));
        assert_eq!(decisions.get(&bad, at(5)), None);
    }

    #[test]
    fn whatever_differs_is_another_question() {
        let key = Key::generate().unwrap();
        let (token, user) = (of_token("a"), User { name: "jane".to_owned(), ..User::default() });
        let acting = |name: &'static str, value: &'static str| Presented {
            impersonation: vec![(HeaderName::from_static(name), HeaderValue::from_static(value))],
            ..of_token("a")
        };
        let user_with = |change: fn(&mut User)| {
            let mut other = user.clone();
            change(&mut other);
            key.of_action(Some(&token), &other, &path("get", "/m"))
        };
        let resource = |change: fn(&mut Action)| {
            let mut action = Action::Resource {
                verb: "get",
                group: "apps".into(),
                version: "v1".into(),
                resource: "deployments".into(),
                namespace: Some("shop".into()),
                name: None,
                labels: LabelSelector::default(),
                fields: FieldSelector::default(),
            };
            change(&mut action);
            key.of_action(Some(&token), &user, &action)
        };
        let mut tags = vec![
            key.of_credentials(&token),
            key.of_credentials(&of_token("b")),
            key.of_credentials(&acting("impersonate-user", "jane")),
            key.of_credentials(&acting("impersonate-user", "john")),
            key.of_credentials(&acting("impersonate-group", "jane")),
            key.of_action(Some(&token), &user, &path("get", "/m")),
            key.of_action(Some(&of_token("b")), &user, &path("get", "/m")),
            key.of_action(Some(&acting("impersonate-user", "jane")), &user, &path("get", "/m")),
            key.of_action(None, &user, &path("get", "/m")),
            key.of_action(Some(&token), &user, &path("put", "/m")),
            key.of_action(Some(&token), &user, &path("get", "/debug")),
            key.of_action(Some(&token), &user, &path("get/", "m")),
            user_with(|user| user.name = "john".to_owned()),
            user_with(|user| user.uid = "1".to_owned()),
            user_with(|user| user.groups = vec!["a".to_owned(), "b".to_owned()]),
            user_with(|user| user.groups = vec!["ab".to_owned()]),
            user_with(|user| user.extra = [("a".to_owned(), vec!["b".to_owned()])].into()),
            user_with(|user| {
                user.extra = [("a".to_owned(), vec![]), ("b".to_owned(), vec![])].into();
            }),
            resource(|_| ()),
            resource(|action| {
                if let Action::Resource { verb, .. } = action {
                    *verb = "list";
                }
            }),
            resource(|action| {
                if let Action::Resource { name, .. } = action {
                    *name = Some("".into());
                }
            }),
            resource(|action| {
                if let Action::Resource { name, .. } = action {
                    *name = Some("web".into());
                }
            }),
            resource(|action| {
                if let Action::Resource { namespace, .. } = action {
                    *namespace = None;
                }
            }),
            resource(|action| {
                if let Action::Resource { labels, .. } = action {
                    let wanted = LabelRequirement::new("a", Operator::Exists, []);
                    *labels = LabelSelector::new(wanted);
                }
            }),
            resource(|action| {
                if let Action::Resource { fields, .. } = action {
                    *fields = FieldSelector::new(FieldRequirement::new("a", true, ""));
                }
            }),
        ];
        let all = tags.len();
        tags.sort_unstable_by_key(|tag| tag.0);
        tags.dedup();
        assert_eq!(tags.len(), all);
        let other = Key::generate().unwrap();
        assert_ne!(
            key.of_credentials(&token),
            other.of_credentials(&token),
            "of this process alone"
        );
    }

    #[test]
    fn however_many_try_a_bounded_number_is_remembered_and_the_allowed_last() {
        let (mut decisions, start) = (decisions(), Instant::now());
        let key = Key::generate().unwrap();
        let scraper = key.of_credentials(&of_token("scraper"));
        decisions.put(of(scraper), known(), (start, Age(0)));
        for n in 0..3 * MOST {
            let tag = key.of_credentials(&of_token(&n.to_string()));
            // They end later than what is known of the scraper.
            let asked = start + Duration::from_secs(6);
            decisions.put(of(tag), Who::Unknown, (asked, Age(0)));
        }
        assert_eq!(decisions.held.len(), MOST);
        let soon = start + Duration::from_secs(6);
        assert_eq!(decisions.get(&scraper, soon), Some(known()));
        let again = start + Duration::from_secs(12);
        decisions.put(of(Tag([0; 32])), Who::Unknown, (again, Age(0)));
        assert_eq!(decisions.held.len(), 2, "what has ended makes room, but for who was let in");
        assert_eq!(decisions.get(&scraper, again), None);
        assert_eq!(decisions.let_in_lately(&scraper, again), Some(known()));
        let late = start + ALLOWED + LATELY;
        assert_eq!(decisions.let_in_lately(&scraper, late), None);
    }

    #[test]
    fn what_concerns_a_namespace_is_forgotten_with_it_and_so_are_its_accounts() {
        let start = Instant::now();
        let key = Key::generate().unwrap();
        let tags = ["reader", "other", "jane"].map(|token| key.of_credentials(&of_token(token)));
        let user =
            |name: &str| Who::Known(Arc::new(User { name: name.to_owned(), ..User::default() }));
        let names =
            ["system:serviceaccount:shop:reader", "system:serviceaccount:shopping:reader", "jane"];
        let mut users = decisions();
        let mut verdicts = Decisions::<Verdict, ()>::new(MOST);
        let places = [Some("shop"), Some("shopping"), None];
        for ((tag, name), place) in tags.into_iter().zip(names).zip(places) {
            users.put(of(tag), user(name), (start, users.age()));
            let asked = QuestionKey { tag, namespace: place.map(Into::into) };
            verdicts.put(asked, Verdict::Allowed, (start, verdicts.age()));
        }
        users.forget(Some("shop"), start);
        verdicts.forget(Some("shop"), start);
        let kept = |tag| (users.get(&tag, start).is_some(), verdicts.get(&tag, start).is_some());
        assert_eq!(tags.map(kept), [(false, false), (true, true), (true, true)]);
        users.put(of(Tag([0; 32])), Who::Unknown, (start, users.age()));
        users.forget(None, start);
        assert!(users.held.keys().all(|tag| users.get(tag, start).is_none()));
        let was_let_in = |tag| users.let_in_lately(&tag, start).is_some();
        assert_eq!(tags.map(was_let_in), [true; 3], "they are no strangers");
        assert_eq!(users.held.len(), 3, "of a refusal nothing is kept");
    }

    #[test]
    fn an_answer_to_a_question_from_before_is_not_remembered() {
        let (mut decisions, start) = (decisions(), Instant::now());
        let tag = Tag([0; 32]);
        let age = decisions.age();
        decisions.pose(tag, ());
        decisions.forget(Some("shop"), start);
        assert!(decisions.question(&tag).is_none(), "nobody joins it");
        decisions.pose(tag, ());
        decisions.end(&tag, age);
        assert!(decisions.question(&tag).is_some(), "its end is not that of the next");
        decisions.end(&tag, decisions.age());
        assert!(decisions.question(&tag).is_none());
        decisions.put(of(tag), known(), (start, age));
        assert_eq!(decisions.get(&tag, start), None);
        decisions.put(of(tag), known(), (start, decisions.age()));
        assert_eq!(decisions.get(&tag, start), Some(known()));
    }
}
