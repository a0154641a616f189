//! Objects that a reader collects from a store at one moment. The reader collects pointers to the
//! objects under the store's lock, and decompresses the objects without the lock.

use super::{
    compression_contexts::{CompressionContext, body_length},
    contents::StoreContents,
    dictionary::CompressionDictionary,
    object_store::ObjectStore,
    packed_object::{BodyCompression, DetachedObject, PackedObject},
    reader::{ObjectKeyRef, StoredObjectView},
};
use kubewarm_api::model::{ObjectEncoding, ObjectKey};
use kubewarm_wire::ObjectBody;
use std::{collections::VecDeque, hint::black_box, sync::Arc};

/// Packed (usually compressed) objects, in the order in which a reader added them. Each row takes
/// 16 bytes, because it only points to bytes that the store also uses.
///
/// Later changes of the store do not change these objects.
#[derive(Debug, Default)]
pub(super) struct RowSnapshot {
    rows: VecDeque<SnapshotRow>,
    namespaces: Vec<Arc<str>>,
    /// The zstd dictionaries that decompress the objects. Most reads need only one dictionary.
    dictionaries: Vec<Arc<CompressionDictionary>>,
    encoding: ObjectEncoding,
}

#[derive(Debug)]
struct SnapshotRow {
    record: PackedObject,
    /// Index into `RowSnapshot::namespaces`.
    namespace: u32,
}

/// Number of packed objects that the processor loads into its cache in parallel.
const AHEAD: usize = 16;

impl RowSnapshot {
    pub(super) fn of(contents: &StoreContents, numbers: impl Iterator<Item = u32>) -> Self {
        let numbers: Vec<u32> = numbers.collect();
        let rows = VecDeque::with_capacity(numbers.len());
        let mut rows = Self { rows, encoding: contents.encoding, ..Self::default() };
        for some in numbers.chunks(AHEAD) {
            fetch(
                some.iter()
                    .filter_map(|number| contents.slab.get(*number))
                    .map(|entry| &entry.record),
            );
            for number in some {
                rows.take(contents, *number);
            }
        }
        rows
    }

    /// Adds the store's row with this number. Does nothing if the row does not exist.
    pub(super) fn take(&mut self, contents: &StoreContents, number: u32) {
        let Some(row) = contents.slab.get(number) else { return };
        let dictionary = contents.dictionaries.get(row.record.packing());
        self.push(contents.namespaces.name(row.namespace), &row.record, dictionary);
    }

    /// Adds a previous state of an object. The event log contains this state as the packed object
    /// `packed`.
    pub(super) fn take_earlier(&mut self, namespace: &Arc<str>, packed: &DetachedObject) {
        self.push(namespace, &packed.record, packed.dictionary.as_ref());
    }

    fn push(
        &mut self,
        namespace: &Arc<str>,
        record: &PackedObject,
        dictionary: Option<&Arc<CompressionDictionary>>,
    ) {
        if let Some(dictionary) = dictionary
            && self.dictionary(record.packing()).is_none()
        {
            self.dictionaries.push(Arc::clone(dictionary));
        }
        // The caller adds rows in key order. So if the namespace differs from the last row's
        // namespace, `namespaces` does not contain it yet.
        if self.namespaces.last() != Some(namespace) {
            self.namespaces.push(Arc::clone(namespace));
        }
        let Ok(namespace) = u32::try_from(self.namespaces.len() - 1) else { return };
        self.rows.push_back(SnapshotRow { record: record.clone(), namespace });
    }

    pub(super) fn encoding(&self) -> ObjectEncoding {
        self.encoding
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Decompresses the object of a row into `body`. Returns `None` if the object cannot be
    /// decompressed.
    pub(super) fn seen<'a>(
        &'a self,
        row: usize,
        store: &ObjectStore,
        context: &mut CompressionContext,
        body: &'a mut Vec<u8>,
    ) -> Option<StoredObjectView<'a>> {
        let SnapshotRow { record, namespace } = self.rows.get(row)?;
        let bytes = store.unpack(record, self.dictionary(record.packing()), context, body)?;
        let body = ObjectBody { encoding: self.encoding, bytes };
        Some(StoredObjectView { namespace: self.namespace(*namespace), name: record.name(), body })
    }

    /// Returns the namespace and the name of a row's object, and the object's number of bytes.
    /// Decompresses nothing. Returns `None` if the object cannot be decompressed.
    pub(super) fn length(&self, row: usize) -> Option<(&str, &[u8], usize)> {
        let SnapshotRow { record, namespace } = self.rows.get(row)?;
        Some((self.namespace(*namespace), record.name(), body_length(record).ok()?))
    }

    pub(super) fn key_of(&self, row: usize) -> Option<ObjectKey> {
        let SnapshotRow { record, namespace } = self.rows.get(row)?;
        let object = ObjectKeyRef { namespace: self.namespace(*namespace), name: record.name() };
        Some(object.to_key())
    }

    /// Loads the next [`AHEAD`] packed objects into the processor's cache. A reader calls this
    /// function before it decompresses each row, but only every [`AHEAD`]th call loads objects.
    pub(super) fn fetch_ahead(&self) {
        if self.rows.len().is_multiple_of(AHEAD) {
            fetch(self.rows.iter().take(AHEAD).map(|row| &row.record));
        }
    }

    pub(super) fn drop_first(&mut self) {
        self.rows.pop_front();
    }

    pub(super) fn swap(&mut self, first: usize, second: usize) {
        self.rows.swap(first, second);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    fn namespace(&self, number: u32) -> &str {
        self.namespaces.get(number as usize).map_or("", |name| &**name)
    }

    fn dictionary(&self, packing: BodyCompression) -> Option<&CompressionDictionary> {
        let BodyCompression::Dictionary(generation) = packing else { return None };
        let dictionary =
            self.dictionaries.iter().find(|dictionary| dictionary.generation() == generation);
        dictionary.map(|dictionary| &**dictionary)
    }
}

/// Reads the first byte of each packed object, so that the processor loads all of the objects in
/// parallel.
///
/// The objects of a large store are not in the processor's cache. Several loads in parallel take
/// little longer than one load.
fn fetch<'a>(records: impl Iterator<Item = &'a PackedObject>) {
    for record in records {
        black_box(record.packing());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        StoreCatalog, StoreReader,
        fixtures::{body, informer_key, remove, upsert},
    };
    use kubewarm_api::model::DeltaSink as _;
    use std::collections::BTreeSet;

    fn rows(reader: &StoreReader) -> RowSnapshot {
        let contents = reader.store.contents.read();
        RowSnapshot::of(&contents, contents.all().iter())
    }

    fn shown(rows: &RowSnapshot, reader: &StoreReader) -> Vec<String> {
        let store = &reader.store;
        store.dictionary_group.contexts.with(|context, into| {
            let mut shown = Vec::new();
            for row in 0..rows.len() {
                let seen = rows.seen(row, store, context, into).unwrap();
                let name = String::from_utf8_lossy(seen.name);
                let body = String::from_utf8_lossy(seen.body.bytes);
                shown.push(format!("{}/{name}: {body}", seen.namespace));
            }
            shown
        })
    }

    #[test]
    fn a_list_keeps_its_objects_whatever_happens_to_the_store() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let keys = ["a/x", "a/y", "b/x"];
        let text = "text".repeat(64);
        let first = body(r#"{"app":"web"}"#, &format!(r#","text":"{text}""#));
        for key in keys {
            writer.apply(upsert(key, 1, "5", &first));
        }
        let taken = [rows(&reader), rows(&reader)];
        for rows in &taken {
            let packed = rows.rows.front().unwrap().record.packed();
            assert_eq!((packed.as_ptr() as usize, packed.len()), reader.place_of(0));
        }
        writer.apply(upsert("a/x", 1, "6", "{}"));
        for key in keys {
            writer.apply(remove(key, "7"));
        }
        drop(writer);
        catalog.close(&informer_key("pods"));
        let expected = keys.map(|key| format!("{key}: {first}"));
        for rows in &taken {
            assert_eq!(shown(rows, &reader), expected);
        }
    }
}
