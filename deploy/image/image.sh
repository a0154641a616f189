#!/usr/bin/env bash
# Builds the image and its bill of materials: target/kubewarm-image.tar and target/kubewarm-image.cdx.json.
#
#   image.sh NAME...
#
# KUBEWARM_REVISION is the commit that image and binary tell; without it git is asked. KUBEWARM_SOURCE is the
# URL of the source in the labels of the image.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
if [[ -z ${KUBEWARM_REVISION-} ]] && commit=$(git rev-parse HEAD 2>/dev/null); then
    [[ -z $(git status --porcelain) ]] || commit+=-dirty
    export KUBEWARM_REVISION=$commit
fi

binary=$(deploy/image/build.sh)
# With one in it, the same source elsewhere would give another binary.
for folder in "$PWD" "${CARGO_HOME:-$HOME/.cargo}"; do
    if grep --quiet --text --fixed-strings "$folder/" "$binary"; then
        echo "$binary holds the path $folder" >&2
        exit 1
    fi
done
deploy/image/pack.sh "$binary" "$version" target/kubewarm-image.tar "$@"
deploy/image/sbom.sh "$binary" >target/kubewarm-image.cdx.json
echo target/kubewarm-image.cdx.json
