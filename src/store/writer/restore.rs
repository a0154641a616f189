//! How a table goes back to what it was when access was last verified.

use super::{Target, Writer};
use crate::{
    model::{Item, Outcome},
    store::{
        contents::Identity,
        order::Place,
        record::Record,
        undo::{Before, Step},
    },
};
use roaring::RoaringBitmap;
use std::sync::Arc;

impl Writer {
    /// Takes back what is provisional, newest first.
    ///
    /// Cost: some 10 µs a change, of which there are 1,024 at the most. Readers see the steps: they
    /// must have been told before that the table is not to be read.
    pub(super) fn take_back(&mut self) -> Outcome {
        (self.list, self.arrived, self.hint) = (None, None, Place::default());
        let table = Arc::clone(&self.table);
        let mut contents = table.contents.write();
        let undo = std::mem::take(&mut contents.undo);
        // What happened since may have been nobody's to see, and what is taken back did not happen.
        let forgotten = contents.cut(None);
        drop(contents);
        table.tell();
        drop(forgotten);
        let Some(steps) = undo.into_steps() else {
            self.purge();
            return Outcome::Forgotten;
        };
        for step in steps {
            if self.undo(&step).is_none() {
                self.purge();
                return Outcome::Forgotten;
            }
            let mut contents = table.contents.write();
            contents.let_go(&step);
            contents.version = step.version;
        }
        let mut contents = table.contents.write();
        let version = contents.version.clone();
        let forgotten = contents.cut(version);
        drop(contents);
        drop(forgotten);
        Outcome::Restored
    }

    /// Takes one change back; `None` if what was there cannot be read back.
    fn undo(&mut self, step: &Step) -> Option<()> {
        match &step.before {
            Before::Absent(name) => {
                let contents = self.table.contents.read();
                let place = contents.find(&step.namespace, name, Place::default()).ok();
                let number = place.and_then(|place| contents.order.get(place));
                drop(contents);
                self.take(&number.into_iter().collect::<RoaringBitmap>(), None, None);
                Some(())
            }
            Before::Held(identity, record) => self.put_back(&step.namespace, identity, record),
        }
    }

    fn put_back(&mut self, namespace: &str, identity: &Identity, record: &Record) -> Option<()> {
        let table = Arc::clone(&self.table);
        let name = std::str::from_utf8(record.name()).ok()?;
        let contents = table.contents.read();
        let with = contents.dictionary(record.packing()).map(Arc::clone);
        let target = match contents.find(namespace, name, Place::default()) {
            Ok(place) => Target::Held(contents.order.get(place)?, Outcome::Replaced),
            Err(place) => Target::New(place),
        };
        drop(contents);
        let mut body = Vec::new();
        let unpacked = table.codec.with(|context| {
            context.unpack(record.packing(), record.packed(), with.as_deref(), &mut body)
        });
        if !table.count(unpacked) {
            return None;
        }
        let Identity { uid, version } = identity.clone();
        let (namespace, name) = (namespace.into(), name.into());
        self.store(target, &Item { namespace, name, uid, version, body: &body });
        Some(())
    }
}
