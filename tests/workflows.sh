#!/usr/bin/env bash
# Checks the workflows in .github with actionlint, which is built once into the cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.7.12
cache=${KUBEWARM_CACHE:-$HOME/.cache/kubewarm}/actionlint-$version
if [[ ! -x $cache/actionlint ]]; then
    echo "building actionlint $version into $cache (once, some seconds)" >&2
    mkdir -p "$cache"
    GOBIN=$cache go install "github.com/rhysd/actionlint/cmd/actionlint@v$version"
fi
# Without ShellCheck, results are the same on machines with and without it.
"$cache/actionlint" -shellcheck=
