#!/usr/bin/env bash
# Licences, bans and sources of every crate that is built, by the rules of deny.toml. The checker is
# built once into the cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
cache=${KUBEWARM_CACHE:-$HOME/.cache/kubewarm}/cargo-deny-$version
if [[ ! -x $cache/bin/cargo-deny ]]; then
    echo "building cargo-deny $version into $cache (once, some minutes)" >&2
    cargo install cargo-deny --version "$version" --locked --quiet --root "$cache"
fi
# Advisories are fetched from a Git repository, which is no package registry: SECURITY.md says who looks.
"$cache/bin/cargo-deny" --locked --workspace check --hide-inclusion-graph licenses bans sources
