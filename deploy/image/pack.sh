#!/usr/bin/env bash
# Packs a static binary as an image with buildah, without a daemon. The same binary and the same buildah give the
# same archive.
#
#   pack.sh BINARY VERSION ARCHIVE NAME...
#
# ARCHIVE is an OCI layout in a tar file. NAME is a full name of the image with its tag. KUBEWARM_REVISION and
# KUBEWARM_SOURCE, if they are set, become labels: the commit and the URL of the source. An archive of more than
# KUBEWARM_IMAGE_LIMIT_MIB (20) is an error.
set -euo pipefail

if (($# < 4)); then
    echo "usage: $0 BINARY VERSION ARCHIVE NAME..." >&2
    exit 2
fi
binary=$1 version=$2 archive=$3
shift 3
repository=$(cd "$(dirname "$0")/../.." && pwd)
for name; do
    if [[ ${name##*/} != *:* ]]; then
        echo "the image name $name has no tag: use $name:$version" >&2
        exit 2
    fi
done
if readelf --program-headers --wide "$binary" | grep -q '^ *INTERP'; then
    echo "$binary needs shared libraries, and the image has none; deploy/image/build.sh makes one without" >&2
    exit 1
fi

mkdir -p "$(dirname "$archive")"
work=$(mktemp -d "$(dirname "$(realpath "$archive")")/image.XXXXXX")
# buildah leaves folders without write permission.
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir -p "$work/context/program"
install -m 755 "$binary" "$work/context/program/kubewarm"
install -m 644 "$repository/LICENSE" "$work/context/program/LICENSE"

# All that buildah stores goes away with $work.
image() {
    HOME=$work XDG_DATA_HOME=$work buildah \
        --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}
labels=(--label "org.opencontainers.image.version=$version")
if [[ -n ${KUBEWARM_REVISION-} ]]; then
    labels+=(--label "org.opencontainers.image.revision=$KUBEWARM_REVISION")
fi
if [[ -n ${KUBEWARM_SOURCE-} ]]; then
    labels+=(--label "org.opencontainers.image.source=$KUBEWARM_SOURCE")
fi
# The build runs no program, so chroot isolation, which works in a container, isolates enough.
image build --quiet --isolation chroot --pull-never --format oci --timestamp 0 --identity-label=false \
    "${labels[@]}" --build-context "program=$work/context" --file "$repository/deploy/image/Containerfile" \
    --tag localhost/kubewarm:packed "$work/context" >/dev/null
for name; do
    image push --quiet --digestfile "$work/digest" localhost/kubewarm:packed "oci:$work/layout:$name"
done

tar --create --directory "$work/layout" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime=@0 --format=ustar --file "$work/archive" .
mib=$((($(stat --format=%s "$work/archive") + (1 << 20) - 1) >> 20))
limit=${KUBEWARM_IMAGE_LIMIT_MIB:-20}
if ((mib > limit)); then
    echo "the image has $mib MiB, more than the limit of $limit MiB" >&2
    exit 1
fi
mv "$work/archive" "$archive"
chmod 644 "$archive"
echo "$archive: $mib of $limit MiB, $(<"$work/digest")"
echo "/kubewarm in it: sha256:$(sha256sum <"$binary" | cut -d ' ' -f 1)"
