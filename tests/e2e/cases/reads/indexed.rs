//! Reads by declared indexes, compared with the API server's answers to equivalent selectors.

use serde_json::{Value, json};

use crate::api::{Served, Server, Watch};
use crate::cases::reads::answers::{names, printed};
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Outcome, SOON, World, eventually};

/// Tests selections by index. The caller provides a namespace with labelled pods on a node, and the
/// profile `everything` in the operator namespace, which declares indexes of pods.
pub(crate) fn objects_are_selected(
    world: &World,
    served: &Served,
    (api, reads): (&Server, &Server),
    token: &str,
    team: &str,
) -> Outcome {
    let scene = IndexFixture { world, api, reads, token, team };
    scene.lists_match_labels_and_fields()?;
    scene.any_of_several_values_matches()?;
    scene.pages_contain_the_whole_list()?;
    scene.watches_report_what_enters_and_leaves()?;
    scene.an_index_name_has_one_definition()?;
    scene.a_redefined_index_ends_its_watches()?;
    let arguments = [
        "get",
        "pods",
        "-n",
        team,
        "--field-selector",
        "index.kubewarm.io/by-app=one",
        "-o",
        "name",
    ];
    assert_eq!(printed(&mut served.kubectl(world, token)?, &arguments)?, "pod/one\n");
    Ok(())
}

struct IndexFixture<'a> {
    world: &'a World,
    api: &'a Server,
    reads: &'a Server,
    token: &'a str,
    team: &'a str,
}

/// Type and name of each event except bookmarks.
fn changes(watch: &Watch) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = watch.events().into_iter().filter(|event| event["type"] != "BOOKMARK");
    events.map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"]))).collect()
}

impl IndexFixture<'_> {
    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.team)
    }

    fn settings(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.team)
    }

    fn set_tone(&self, name: &str, tone: &str) -> Outcome {
        let team = self.team;
        self.world.cluster.apply(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {team}}}, \
             data: {{tone: {tone}}}}}"
        ))?;
        Ok(())
    }

    fn lists_match_labels_and_fields(&self) -> Outcome {
        let pods = self.pods();
        for (ours, theirs) in [
            ("fieldSelector=index.kubewarm.io/by-node%3Dn1", "fieldSelector=spec.nodeName%3Dn1"),
            ("fieldSelector=index.kubewarm.io/by-node!%3Dn1", "fieldSelector=spec.nodeName!%3Dn1"),
            ("fieldSelector=index.kubewarm.io/by-node%3D", "fieldSelector=spec.nodeName%3D"),
            ("fieldSelector=index.kubewarm.io/by-app%3Done", "labelSelector=app%3Done"),
            ("fieldSelector=index.kubewarm.io/by-app!%3Done", "labelSelector=app!%3Done"),
            ("fieldSelector=index.kubewarm.io/by-app%3Dnone", "labelSelector=app%3Dnone"),
            (
                "fieldSelector=index.kubewarm.io/by-node%3D,status.phase%3DPending&labelSelector=app!%3Dtwo",
                "fieldSelector=spec.nodeName%3D,status.phase%3DPending&labelSelector=app!%3Dtwo",
            ),
        ] {
            for path in [&*pods, "/api/v1/pods"] {
                let mine = self.reads.get(self.token, &format!("{path}?{ours}"))?;
                let other = self.api.get(self.token, &format!("{path}?{theirs}"))?;
                assert_eq!((mine.code, other.code), (200, 200), "{ours}: {mine:?}");
                assert_eq!(mine.json()["items"], other.json()["items"], "{ours}");
            }
        }
        // Both servers reject a field that no profile declares here.
        for field in ["index.kubewarm.io/by-nothing", "index.kubewarm.io/tone", "by-app"] {
            let path = format!("{pods}?fieldSelector={field}%3Dx");
            let (mine, other) =
                (self.reads.get(self.token, &path)?, self.api.get(self.token, &path)?);
            assert_eq!((mine.code, other.code), (400, 400), "{mine:?}");
            assert_eq!(mine.json(), other.json());
        }
        Ok(())
    }

    fn any_of_several_values_matches(&self) -> Outcome {
        let team = self.team;
        self.world.cluster.apply(&format!(
            "{{apiVersion: example.com/v1, kind: Part, metadata: {{name: hinge, namespace: {team}}}, \
             spec: {{holes: [{{at: left}}, {{at: right}}]}}}}"
        ))?;
        let has_match = |selector: &str| {
            let path = format!("/apis/example.com/v1/namespaces/{team}/parts");
            let reply = self
                .reads
                .get(self.token, &format!("{path}?fieldSelector=index.kubewarm.io/{selector}"))?;
            assert_eq!(reply.code, 200, "{reply:?}");
            Ok::<_, crate::world::Failure>(names(&reply.json()).contains(&format!("{team}/hinge")))
        };
        eventually(SOON, || {
            if has_match("hole%3Dright")? { Ok(()) } else { Err("not there yet".into()) }
        })?;
        assert!(has_match("hole%3Dleft")? && has_match("hole!%3Dtop")?);
        assert!(!has_match("hole!%3Dleft")? && !has_match("hole%3Dtop")? && !has_match("hole%3D")?);
        Ok(())
    }

    fn pages_contain_the_whole_list(&self) -> Outcome {
        let base = format!("{}?fieldSelector=index.kubewarm.io/tone!%3Ddark", self.settings());
        let whole = names(&self.reads.get(self.token, &base)?.json());
        let (mut items, mut next, mut pages) = (Vec::new(), String::new(), 0);
        while pages == 0 || !next.is_empty() {
            let path = format!("{base}&limit=50&continue={next}");
            let page = self.reads.get(self.token, &path)?.json();
            items.extend(names(&page));
            assert_eq!(page["metadata"]["remainingItemCount"], json!(null), "{page}");
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut next);
            pages += 1;
        }
        assert_eq!(items, whole);
        assert!(pages > 1, "{pages} pages of {}", whole.len());
        Ok(())
    }

    fn watches_report_what_enters_and_leaves(&self) -> Outcome {
        self.set_tone("hue", "dark")?;
        let base = format!("{}?watch=true", self.settings());
        let streaming =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let watch = |query: &str| self.reads.watch(self.token, &format!("{base}&{query}"), "*/*");
        eventually(SOON, || {
            let path = format!("{}?fieldSelector=index.kubewarm.io/tone%3Ddark", self.settings());
            let names = names(&self.reads.get(self.token, &path)?.json());
            if names == [format!("{}/hue", self.team)] { Ok(()) } else { Err("not yet".into()) }
        })?;
        let dark = watch("resourceVersion=0&fieldSelector=index.kubewarm.io/tone%3Ddark")?;
        let streamed = watch(&format!("{streaming}&fieldSelector=index.kubewarm.io/tone%3Ddark"))?;
        let light = watch(
            "resourceVersion=0&fieldSelector=index.kubewarm.io/tone!%3Ddark,metadata.name%3Dhue",
        )?;
        for tone in ["darker", "dark"] {
            eventually(SOON, || {
                let (dark, streamed) = (changes(&dark).len(), changes(&streamed).len());
                if dark > 0 && streamed > 0 { Ok(()) } else { Err("nothing yet".into()) }
            })?;
            self.set_tone("hue", tone)?;
        }
        let expected_changes = |types: &[&str]| -> Vec<_> {
            types.iter().map(|kind| ((*kind).to_owned(), "hue".to_owned())).collect()
        };
        eventually(SOON, || {
            let all = [changes(&dark), changes(&streamed), changes(&light)];
            let coming = expected_changes(&["ADDED", "DELETED", "ADDED"]);
            let expected = [coming.clone(), coming, expected_changes(&["ADDED", "DELETED"])];
            if all == expected { Ok(()) } else { Err(format!("{all:?}").into()) }
        })?;
        let marked = streamed.events().into_iter().any(|event| {
            event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
        });
        assert!(marked, "{:?}", streamed.events());
        Ok(())
    }

    /// A profile in the team's namespace that declares `by-app` for another label.
    fn declare(&self, index: &str) -> Outcome {
        let spec = format!("{{targets: [{{name: pods, resource: pods, indexes: [{index}]}}]}}");
        let profile = Profile::apply(self.world, self.team, "indexing", &spec)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        Ok(())
    }

    fn an_index_name_has_one_definition(&self) -> Outcome {
        let by_app = "fieldSelector=index.kubewarm.io/by-app%3Done";
        let path = format!("{}?{by_app}", self.pods());
        let code =
            |path: &str| Ok::<_, crate::world::Failure>(self.reads.get(self.token, path)?.code);
        assert_eq!(code(&path)?, 200);
        self.declare("{name: by-app, fieldPath: metadata.labels.tier}")?;
        let refused = eventually(SOON, || match self.reads.get(self.token, &path)? {
            reply if reply.code == 400 => Ok(reply.json()),
            reply => Err(format!("{reply:?}").into()),
        })?;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains("below /profiles/<namespace>/<name>"), "{refused}");
        // The team's profile has no effect on other namespaces. A request below a profile's path
        // uses the index definition of this profile.
        assert_eq!(code(&format!("/api/v1/pods?{by_app}"))?, 200);
        for (profile, expected) in
            [(format!("{NAMESPACE}/everything"), 1), (format!("{}/indexing", self.team), 0)]
        {
            let reply = self.reads.get(self.token, &format!("/profiles/{profile}{path}"))?;
            assert_eq!((reply.code, names(&reply.json()).len()), (200, expected), "{reply:?}");
        }
        self.declare("{name: by-rank, fieldPath: metadata.labels.tier}")?;
        eventually(SOON, || match code(&path)? {
            200 => Ok(()),
            code => Err(format!("{code}").into()),
        })
    }

    fn a_redefined_index_ends_its_watches(&self) -> Outcome {
        let by_rank = format!("{}?fieldSelector=index.kubewarm.io/by-rank!%3DNever", self.pods());
        let path = format!("{by_rank}&watch=true&resourceVersion=0");
        let watch = self.reads.watch(self.token, &path, "*/*")?;
        let all = eventually(SOON, || match changes(&watch).len() {
            0 => Err("nothing yet".into()),
            some => Ok(some),
        })?;
        let plain = format!("{}?watch=true&resourceVersion=0", self.pods());
        let plain = self.reads.watch(self.token, &plain, "*/*")?;
        assert!(!watch.is_over() && all > 0);
        self.declare("{name: by-rank, fieldPath: spec.restartPolicy}")?;
        eventually(SOON, || if watch.is_over() { Ok(()) } else { Err("it goes on".into()) })?;
        assert!(!plain.is_over(), "a watch without an index has ended");
        // kubewarm answers the new request of a client by the new definition of the index, even
        // while kubewarm still builds the index.
        let mine = self.reads.get(self.token, &by_rank)?;
        let path = by_rank.replace("index.kubewarm.io/by-rank", "spec.restartPolicy");
        let other = self.api.get(self.token, &path)?;
        assert_eq!((mine.code, names(&mine.json())), (200, names(&other.json())), "{mine:?}");
        assert!(names(&mine.json()).len() < all);
        Ok(())
    }
}
