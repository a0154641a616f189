#!/usr/bin/env bash
# Builds the image, target/kubewarm-image.tar, and its software bill of materials, target/kubewarm-image.cdx.json.
#
#   image.sh NAME...
#
# KUBEWARM_REVISION is the commit that image and binary report; the default is git's HEAD. KUBEWARM_SOURCE is the
# source's URL for the image's labels.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
if [[ -z ${KUBEWARM_REVISION-} ]] && commit=$(git rev-parse HEAD 2>/dev/null); then
    [[ -z $(git status --porcelain) ]] || commit+=-dirty
    export KUBEWARM_REVISION=$commit
fi

binary=$(deploy/image/build.sh)
deploy/image/pack.sh "$binary" "$version" target/kubewarm-image.tar "$@"
deploy/image/sbom.sh "$binary" >target/kubewarm-image.cdx.json
echo target/kubewarm-image.cdx.json
