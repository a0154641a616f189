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
    edit(stream, |document, position| document.inject(position, &address()).unwrap())
}

/// Removes each injection of a stream.
pub(crate) fn undo(stream: &str) -> String {
    edit(stream, |document, position| document.undo(position).unwrap())
}

fn edit(stream: &str, edit: impl Fn(&mut ManifestDocument, usize)) -> String {
    let documents = ManifestDocument::parse_stream(stream).unwrap();
    let edited = documents.into_iter().map(|mut document| {
        for position in 0..document.workloads.len() {
            edit(&mut document, position);
        }
        document.text
    });
    edited.collect()
}
