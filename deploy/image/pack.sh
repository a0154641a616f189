#!/usr/bin/env bash
# Packs a static binary as an image: an OCI layout in an archive, the same for the same input, without a
# daemon.
#
#   pack.sh BINARY VERSION ARCHIVE NAME...
#
# ARCHIVE is what containerd (ctr images import), podman (podman load) and skopeo (oci-archive:) read.
# NAME is a full name of the image, with its tag. KUBEWARM_REVISION and KUBEWARM_SOURCE, if they are set, are
# the commit and the URL of the source in the labels of the image. An archive of more than
# KUBEWARM_IMAGE_LIMIT_MIB (20) is an error.
set -euo pipefail

if (($# < 4)); then
    echo "usage: $0 BINARY VERSION ARCHIVE NAME..." >&2
    exit 2
fi
binary=$1 version=$2 archive=$3
shift 3
repository=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C

# These get into JSON as they are.
for word in "$version" "${KUBEWARM_REVISION-}" "${KUBEWARM_SOURCE-}" "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9._:/@+~-]*$ ]]; then
        echo "this cannot be a version, a commit, a URL or the name of an image: $word" >&2
        exit 2
    fi
done
for name; do
    if [[ ${name##*/} != *:* ]]; then
        echo "the name of an image has a tag: $name:$version" >&2
        exit 2
    fi
done

headers=$(readelf --file-header --program-headers --wide "$binary")
case $(sed -n 's/^ *Machine: *//p' <<<"$headers") in
    *X86-64) architecture=amd64 ;;
    AArch64) architecture=arm64 ;;
    *)
        echo "images are for x86-64 and arm64, and $binary is for neither" >&2
        exit 1
        ;;
esac
if grep -q '^ *INTERP' <<<"$headers"; then
    echo "$binary needs shared libraries, and the image has none; deploy/image/build.sh makes one without" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree" "$work/layout/blobs/sha256"

# Sorted, of nobody, of no time, whatever the umask.
pack() {
    tar --create --directory "$1" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime=@0 --format=ustar .
}
# Moves a file among the blobs; says what refers to it.
blob() {
    local sum size
    sum=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat --format=%s "$1")
    mv "$1" "$work/layout/blobs/sha256/$sum"
    digest=sha256:$sum
    descriptor="\"digest\":\"$digest\",\"size\":$size"
}

install -m 755 "$binary" "$work/tree/kubewarm"
cp "$repository/LICENSE" "$work/tree/LICENSE"
chmod -x "$work/tree/LICENSE"
pack "$work/tree" >"$work/tar"
layer=sha256:$(sha256sum "$work/tar" | cut -d ' ' -f 1)
unpacked=$(stat --format=%s "$work/tar")
# Without a name and a time in it.
gzip --no-name --best <"$work/tar" >"$work/layer"
blob "$work/layer"
layers=$descriptor

label() {
    [[ -z $2 ]] || printf ',"org.opencontainers.image.%s":"%s"' "$1" "$2"
}
labels="\"org.opencontainers.image.title\":\"kubewarm\""
labels+=$(label version "$version")$(label revision "${KUBEWARM_REVISION-}")$(label source "${KUBEWARM_SOURCE-}")
labels+=$(label licenses Apache-2.0)
cat >"$work/config" <<CONFIG
{"architecture":"$architecture","os":"linux","config":{"User":"65532:65532","Env":["PATH=/"],\
"Entrypoint":["/kubewarm"],"WorkingDir":"/","Labels":{$labels}},\
"rootfs":{"type":"layers","diff_ids":["$layer"]}}
CONFIG
blob "$work/config"

type=application/vnd.oci.image
cat >"$work/manifest" <<MANIFEST
{"schemaVersion":2,"mediaType":"$type.manifest.v1+json",\
"config":{"mediaType":"$type.config.v1+json",$descriptor},\
"layers":[{"mediaType":"$type.layer.v1.tar+gzip",$layers}]}
MANIFEST
blob "$work/manifest"

manifests=()
for name; do
    manifests+=("{\"mediaType\":\"$type.manifest.v1+json\",$descriptor,\
\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"},\
\"annotations\":{\"io.containerd.image.name\":\"$name\",\"org.opencontainers.image.ref.name\":\"${name##*:}\"}}")
done
cat >"$work/layout/index.json" <<INDEX
{"schemaVersion":2,"mediaType":"$type.index.v1+json","manifests":[$(IFS=, && echo "${manifests[*]}")]}
INDEX
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"

pack "$work/layout" >"$work/archive"
bytes=$(stat --format=%s "$work/archive")
limit=${KUBEWARM_IMAGE_LIMIT_MIB:-20}
awk -v bytes="$bytes" -v unpacked="$unpacked" -v name="$archive" -v digest="$digest" -v limit="$limit" 'BEGIN {
    printf "%s: %.1f of %d MiB (unpacked %.1f), %s\n", name, bytes / 1048576, limit, unpacked / 1048576, digest
}'
if ((bytes > limit << 20)); then
    echo "the image is larger than $limit MiB" >&2
    exit 1
fi
mkdir -p "$(dirname "$archive")"
mv "$work/archive" "$archive"
chmod 644 "$archive"
