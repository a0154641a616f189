//! Compares random objects with the output of Kubernetes' own serializers, like the fast test, but
//! with more objects.

use crate::cases::reads::protobuf::compare_random_objects;
use crate::world::Outcome;

#[test]
fn many_random_objects_of_all_kinds_have_the_same_json() -> Outcome {
    compare_random_objects(100_000)
}
