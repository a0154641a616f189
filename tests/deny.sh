#!/usr/bin/env bash
# Checks licences, bans and sources of every crate with the rules of deny.toml. The checker is built once
# into the cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
cache=${KUBEWARM_CACHE:-$HOME/.cache/kubewarm}/cargo-deny-$version
if [[ ! -x $cache/bin/cargo-deny ]]; then
    echo "building cargo-deny $version into $cache (once, some minutes)" >&2
    cargo install cargo-deny --version "$version" --locked --quiet --root "$cache"
fi
# Advisories come from a Git repository, which is no package registry. SECURITY.md describes who checks
# them.
"$cache/bin/cargo-deny" --locked --workspace check --hide-inclusion-graph licenses bans sources
