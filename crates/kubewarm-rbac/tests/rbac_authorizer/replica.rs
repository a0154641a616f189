//! Rules that change from the objects of one random world to the objects of the next, as an
//! informer would change them.

use crate::world::RbacWorld;
use fastrand::Rng;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewarm_rbac::{RbacKind, RbacResource, RbacRules};
use std::collections::HashSet;

const KINDS: [RbacKind; 4] =
    [RbacKind::Role, RbacKind::RoleBinding, RbacKind::ClusterRole, RbacKind::ClusterRoleBinding];

/// The kind, namespace and name of an object.
type ObjectId = (RbacKind, String, String);

/// Rules with exactly the objects of one world.
pub(crate) struct WorldReplica {
    pub(crate) rules: RbacRules,
    ids: HashSet<ObjectId>,
    random: Rng,
}

impl WorldReplica {
    /// Rules without objects.
    pub(crate) fn new(seed: u64) -> Self {
        Self { rules: RbacRules::default(), ids: HashSet::new(), random: Rng::with_seed(seed) }
    }

    /// Changes the rules to the objects of `world`, by a list of each kind or by the events of
    /// watches. Objects arrive in a random order.
    pub(crate) fn follow(&mut self, world: &RbacWorld) {
        let mut objects = objects(world);
        self.random.shuffle(&mut objects);
        let ids: HashSet<_> = objects.iter().map(|object| id(*object)).collect();
        let lists = if self.random.bool() { &KINDS[..] } else { &[] };
        for kind in lists {
            self.rules.start_list(*kind);
        }
        if lists.is_empty() {
            for (kind, namespace, name) in self.ids.difference(&ids) {
                self.rules.remove(*kind, namespace, name);
            }
        }
        for object in objects {
            self.rules.upsert(object);
        }
        for kind in lists {
            self.rules.finish_list(*kind);
        }
        self.ids = ids;
    }
}

fn objects(world: &RbacWorld) -> Vec<RbacResource<'_>> {
    let roles = world.roles.iter().map(RbacResource::from);
    let bindings = world.role_bindings.iter().map(RbacResource::from);
    let cluster_roles = world.cluster_roles.iter().map(RbacResource::from);
    let cluster_bindings = world.cluster_role_bindings.iter().map(RbacResource::from);
    roles.chain(bindings).chain(cluster_roles).chain(cluster_bindings).collect()
}

fn id(object: RbacResource<'_>) -> ObjectId {
    let (kind, metadata): (_, &ObjectMeta) = match object {
        RbacResource::Role(role) => (RbacKind::Role, &role.metadata),
        RbacResource::RoleBinding(binding) => (RbacKind::RoleBinding, &binding.metadata),
        RbacResource::ClusterRole(role) => (RbacKind::ClusterRole, &role.metadata),
        RbacResource::ClusterRoleBinding(binding) => {
            (RbacKind::ClusterRoleBinding, &binding.metadata)
        }
    };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    (kind, part(&metadata.namespace), part(&metadata.name))
}
