//! Injections of documents and objects as users write them.

mod documents;
mod random;
mod refused;

use crate::{InjectedAddress, ManifestDocument};

pub(crate) fn address() -> InjectedAddress {
    let ips = vec!["10.96.0.99".parse().unwrap(), "fd00::99".parse().unwrap()];
    InjectedAddress { ips, domain: "cluster.local".to_owned() }
}

/// Injects each workload of a stream.
pub(crate) fn inject(stream: &str) -> String {
    edit(stream, |document, number| {
        document.inject(&document.workloads[number], &address()).unwrap()
    })
}

/// Removes each injection of a stream.
pub(crate) fn undo(stream: &str) -> String {
    edit(stream, |document, number| document.undo(&document.workloads[number]).unwrap())
}

fn edit(stream: &str, edit: impl Fn(&ManifestDocument, usize) -> ManifestDocument) -> String {
    let documents = ManifestDocument::parse_stream(stream).unwrap();
    let edited = documents.into_iter().map(|document| {
        let numbers = 0..document.workloads.len();
        numbers.fold(document, |document, number| edit(&document, number)).text
    });
    edited.collect()
}
