#!/usr/bin/env bash
# Prints the software bill of materials of a static binary, as CycloneDX 1.5. cargo-cyclonedx lists the crates; this
# script adds what it does not know: Rust's standard library, glibc and the binary's SHA-256.
#
#   sbom.sh BINARY
#
# The same source and binary give the same document. It also lists some crates that are not linked: procedural macros,
# and what features of the workspace's other programs need.
set -euo pipefail

if (($# != 1)); then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
sum=$(sha256sum <"$1" | cut -d ' ' -f 1)
cd "$(dirname "$0")/../.."

tool_version=0.5.9
tool=${KUBEWARM_CACHE:-$HOME/.cache/kubewarm}/cargo-cyclonedx-$tool_version
mkdir -p "$tool"
exec {lock}>"$tool/lock"
flock "$lock"
if [[ ! -x $tool/bin/cargo-cyclonedx ]]; then
    echo "building cargo-cyclonedx $tool_version into $tool (once, some minutes)" >&2
    cargo install cargo-cyclonedx --version "$tool_version" --locked --quiet --root "$tool"
fi
exec {lock}>&-

# It writes one file next to each Cargo.toml of the workspace.
file=.sbom-$$.json
trap 'find . -path ./target -prune -o -name "$file" -exec rm {} +' EXIT
# With SOURCE_DATE_EPOCH the document contains no random number.
SOURCE_DATE_EPOCH=0 "$tool/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps \
    --override-filename "${file%.json}"

version=$(sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
std=pkg:generic/rust-std@$(rustc --version | cut -d ' ' -f 2)
glibc=pkg:generic/glibc@$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
library() {
    local name=${1#pkg:generic/}
    printf '{"type": "library", "bom-ref": "%s", "name": "%s", "version": "%s", "purl": "%s", %s},' \
        "$1" "${name%@*}" "${name#*@}" "$1" "\"licenses\": [{\"expression\": \"$2\"}]"
}
folder=${PWD// /%20}
# The first two commands take the path of the source out of references.
sed -e "s|path+file://$folder#\(kubewarm@\)\?|kubewarm@|" \
    -e "s|path+file://$folder/|path+file:///kubewarm/|" \
    -e "/^    \"component\": {/a \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"$sum\"}]," \
    -e "/^  \"components\": \[/a $(library "$std" 'MIT OR Apache-2.0') $(library "$glibc" LGPL-2.1-or-later)" \
    -e "/^  \"dependencies\": \[/a {\"ref\": \"$std\", \"dependsOn\": [\"$glibc\"]}, {\"ref\": \"$glibc\"}," \
    -e "/\"ref\": \"kubewarm@$version\"/,/\"dependsOn\"/s|\"dependsOn\": \[|&\"$std\",|" \
    "$file"
