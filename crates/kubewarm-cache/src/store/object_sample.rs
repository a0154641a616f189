//! Stores a sample of objects in separate stores, as the operator would. The sample predicts how
//! much memory all objects of the sampled informers will take.

use super::{StoreCatalog, StoreWriter};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaSink as _, InformerKey, InformerSpec, ObjectEncoding, Projection,
    Resource,
};
use std::collections::BTreeMap;

/// A resource and the part of each object (`Projection`) that a store contains. In a sample, stores
/// with equal keys share zstd dictionaries.
pub type DictionaryKey = (Resource, Projection);

/// Sampled objects of several informers. The sample compresses and indexes the objects as the
/// stores of kubewarm's operator do. Dropping the sample frees the objects.
#[derive(Debug)]
pub struct ObjectSample {
    catalog: StoreCatalog,
    writers: BTreeMap<InformerKey, StoreWriter>,
}

/// Memory of all sampled objects with the same [`DictionaryKey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleUsage {
    /// Number of sampled objects.
    pub objects: u64,
    /// Memory in bytes that grows with the number of objects. The dictionary's memory does not
    /// count.
    pub bytes: u64,
    /// Memory in bytes of the zstd dictionary that compresses the objects. It does not depend on
    /// the number of objects.
    pub dictionary_bytes: u64,
}

impl Default for ObjectSample {
    fn default() -> Self {
        Self { catalog: StoreCatalog::of_sample(), writers: BTreeMap::new() }
    }
}

impl ObjectSample {
    /// Adds one object to the sample's store for `spec.key`. For the first object of a key, the
    /// method opens the store with the field indexes that `spec` lists. If the store has objects in
    /// another encoding, it drops them.
    pub fn add(&mut self, spec: &InformerSpec, encoding: ObjectEncoding, item: &DecodedObject<'_>) {
        let writer = self
            .writers
            .entry(spec.key.clone())
            .or_insert_with(|| self.catalog.open(&spec.key, &spec.indexes));
        writer.apply(Delta::Encoding(encoding));
        writer.apply(Delta::Upsert(item.clone()));
    }

    /// Removes all objects of `resource` from the sample.
    pub fn remove(&mut self, resource: &Resource) {
        let removed = self.writers.extract_if(.., |key, _| key.resource == *resource);
        removed.for_each(|(key, _)| self.catalog.close(&key));
    }

    /// Returns the memory of the sampled objects for each [`DictionaryKey`].
    ///
    /// # Cost
    ///
    /// Blocks until the maintenance thread has trained dictionaries and compressed all objects with
    /// them. For a thousand objects this takes tens of milliseconds.
    pub fn measure(self) -> BTreeMap<DictionaryKey, SampleUsage> {
        self.catalog.wait_until_settled();
        let mut samples = BTreeMap::<DictionaryKey, SampleUsage>::new();
        for (key, usage) in self.catalog.usage() {
            let dictionary = self.catalog.dictionary_group(&key).current();
            let alike = (key.resource, key.projection);
            let sample = samples.entry(alike).or_default();
            sample.objects += usage.objects;
            sample.bytes += usage.bytes;
            sample.dictionary_bytes =
                dictionary.map_or(0, |dictionary| u64::try_from(dictionary.bytes()).unwrap_or(0));
        }
        for sample in samples.values_mut() {
            sample.dictionary_bytes = sample.dictionary_bytes.min(sample.bytes);
            sample.bytes -= sample.dictionary_bytes;
        }
        samples
    }
}

impl SampleUsage {
    /// Estimates the memory of `objects` objects in bytes, including the dictionary. Returns 0 if
    /// `objects` is 0 or the sample is empty.
    ///
    /// If `objects` equals the number of sampled objects, only the dictionary's memory can be too
    /// high: a store of so few objects has possibly no dictionary.
    pub fn scaled_to(self, objects: u64) -> u64 {
        if self.objects == 0 || objects == 0 {
            return 0;
        }
        let scaled = u128::from(self.bytes) * u128::from(objects) / u128::from(self.objects);
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add(self.dictionary_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::{all, body, informer_key};
    use kubewarm_api::model::{ResourceVersion, Uid};

    /// Returns a pod of about 2 KB. One part of its text is the same in every pod, and one part
    /// depends on `n`.
    fn pod(n: u32) -> String {
        let random = n.wrapping_mul(0x9e37_79b9);
        let words = "a container of the shop, its ports, its probes, and where its volumes are";
        let fields: Vec<_> = (0..20)
            .map(|at| format!(r#""field-{at}":"{words} {:x}""#, random.rotate_left(at) % 9973))
            .collect();
        let labels = format!(r#"{{"app":"app-{}","hash":"{:x}"}}"#, n % 40, random);
        body(&labels, &format!(r#","spec":{{{}}}"#, fields.join(",")))
    }

    #[test]
    fn a_sample_of_1000_objects_predicts_the_memory_of_10000() {
        let key = informer_key("pods");
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&key, &std::collections::BTreeSet::new());
        let mut sample = ObjectSample::default();
        let spec = spec(key);
        for n in 0..10_000 {
            let (name, body) = (format!("web-{:x}-{n}", n / 7), pod(n));
            let item = DecodedObject {
                namespace: "shop".into(),
                name: name.into(),
                uid: Uid::from(u128::from(n).wrapping_mul(0x1234_5678_9abc_def1).to_be_bytes()),
                version: Some(ResourceVersion::from(u64::from(n) + 1)),
                body: body.as_bytes(),
            };
            if n < 1_000 {
                sample.add(&spec, ObjectEncoding::Json, &item);
            }
            writer.apply(Delta::Upsert(item));
        }
        catalog.wait_until_settled();
        let reader = catalog.reader(&spec.key).unwrap();
        assert_eq!(all(&reader).len(), 10_000);
        let actual = reader.usage().bytes;
        let samples = sample.measure();
        let sample = samples[&(spec.key.resource.clone(), spec.key.projection)];
        assert_eq!(sample.objects, 1_000);
        let forecast = sample.scaled_to(10_000);
        assert!(forecast * 5 >= actual * 4 && forecast * 4 <= actual * 5, "{forecast} {actual}");
        assert_eq!(SampleUsage::default().scaled_to(7), 0);
    }

    fn spec(key: InformerKey) -> InformerSpec {
        use kubewarm_api::model::ProfileRef;
        InformerSpec::new(key, ProfileRef { namespace: "a".into(), name: "p".into() })
    }
}
