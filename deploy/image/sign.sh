#!/usr/bin/env bash
# Signs an image as cosign does: a signature of the digest of its manifest, for a registry to keep beside it,
# and one of the archive as it is.
#
#   sign.sh KEY ARCHIVE NAME
#
# KEY is an ECDSA key of the curve P-256, in PEM. ARCHIVE is what pack.sh wrote. NAME is where the image will be,
# without a tag. What is written lies beside ARCHIVE and begins with its name:
#   .sig      the signature of ARCHIVE:          cosign verify-blob --key PUBLIC --signature ARCHIVE.sig ARCHIVE
#   .sig.tar  an OCI layout with the signature of the image, for the tag sha256-DIGEST.sig of NAME
set -euo pipefail

if (($# != 3)); then
    echo "usage: $0 KEY ARCHIVE NAME" >&2
    exit 2
fi
key=$1 archive=$2 name=$3
export LC_ALL=C
if [[ ! $name =~ ^[a-z0-9._:/-]+$ || ${name##*/} == *:* ]]; then
    echo "the name of an image without a tag, such as registry.example.com/kubewarm: not $name" >&2
    exit 2
fi
if ! openssl ec -in "$key" -noout -text 2>/dev/null | grep -q 'prime256v1'; then
    echo "$key is no ECDSA key of P-256: openssl ecparam -name prime256v1 -genkey -noout -out $key" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/layout/blobs/sha256"
signature() {
    openssl dgst -sha256 -sign "$key" "$1" | base64 -w 0
}
blob() {
    local sum size
    sum=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat --format=%s "$1")
    mv "$1" "$work/layout/blobs/sha256/$sum"
    descriptor="\"digest\":\"sha256:$sum\",\"size\":$size"
}

# All names of the archive are of one manifest.
digest=$(tar --extract --to-stdout --file "$archive" ./index.json 2>/dev/null |
    grep --only-matching '"digest":"sha256:[0-9a-f]\{64\}"' | sort -u | cut -d '"' -f 4) || true
if [[ ! $digest =~ ^sha256:[0-9a-f]{64}$ ]]; then
    echo "$archive does not hold one image" >&2
    exit 1
fi

printf '{"critical":{"identity":{"docker-reference":"%s"},"image":{"docker-manifest-digest":"%s"},"type":"cosign container image signature"},"optional":null}' \
    "$name" "$digest" >"$work/payload"
signed=$(signature "$work/payload")
blob "$work/payload"
payload=$descriptor
sum=${payload#*sha256:}
printf '{"architecture":"","os":"","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "${sum%%\"*}" >"$work/config"
blob "$work/config"
type=application/vnd.oci.image
printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json",%s},"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json",%s,"annotations":{"dev.cosignproject.cosign/signature":"%s"}}]}' \
    "$type" "$type" "$descriptor" "$payload" "$signed" >"$work/manifest"
blob "$work/manifest"
tag=${digest/:/-}.sig
printf '{"schemaVersion":2,"mediaType":"%s.index.v1+json","manifests":[{"mediaType":"%s.manifest.v1+json",%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
    "$type" "$type" "$descriptor" "$tag" >"$work/layout/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"

tar --create --directory "$work/layout" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime=@0 --format=ustar . >"$archive.sig.tar"
signature "$archive" >"$archive.sig"
echo "$archive.sig"
echo "$archive.sig.tar: $name:$tag"
