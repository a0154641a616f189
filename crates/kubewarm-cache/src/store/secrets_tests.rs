//! Tests that stores never compress Secrets and never use Secrets to train a dictionary.

use super::{
    StoreCatalog,
    fixtures::{body, informer_key, upsert},
    packed_object::BodyCompression,
};
use kubewarm_api::model::{DeltaSink as _, InformerKey, Projection, SecretDataPolicy};
use std::collections::BTreeSet;

const PAYLOAD: &str = "aHVudGVyMi1odW50ZXIyLWh1bnRlcjItaHVudGVyMg==";

fn secrets() -> InformerKey {
    let key = InformerKey { secret_data: SecretDataPolicy::Allow, ..informer_key("secrets") };
    assert!(matches!(key.projection, Projection::Full(_)), "the projection keeps the payload");
    key
}

fn payload(n: usize) -> String {
    let payload = PAYLOAD.repeat(n);
    body(r#"{"app":"web"}"#, &format!(r#","data":{{"password":"{payload}"}}"#))
}

#[test]
fn secrets_are_never_compressed_or_used_to_train_a_dictionary() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&secrets(), &BTreeSet::new());
    let names: Vec<_> = (0..2_000).map(|n| format!("a/x{n}")).collect();
    for name in &names {
        writer.apply(upsert(name, 1, "5", &payload(9)));
    }
    catalog.wait_until_settled();
    let reader = catalog.reader(&secrets()).unwrap();
    assert_eq!(reader.packing_of(0), BodyCompression::Secret);
    assert!(catalog.dictionary_group(&secrets()).current().is_none());
}
