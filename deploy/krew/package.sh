#!/usr/bin/env bash
# Packs a binary as the krew plugin `warm`: a reproducible archive and its manifest.
#
#   package.sh BINARY VERSION URL FOLDER
#
# URL is the folder from which users will download the archive. Add archives of other platforms to the
# manifest's list.
set -euo pipefail

if (($# != 4)); then
    echo "usage: $0 BINARY VERSION URL FOLDER" >&2
    exit 2
fi
binary=$1 version=$2 url=${3%/} folder=$4
repository=$(cd "$(dirname "$0")/../.." && pwd)

case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *)
        echo "krew knows no name for $(uname -m)" >&2
        exit 1
        ;;
esac
os=$(uname -s | tr '[:upper:]' '[:lower:]')
archive=kubectl-warm-v$version-$os-$arch.tar.gz

mkdir -p "$folder"
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
install -m 755 "$binary" "$staged/kubectl-warm"
install -m 644 "$repository/LICENSE" "$staged/LICENSE"
tar --create --directory "$staged" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
    LICENSE kubectl-warm | gzip --no-name --best >"$folder/$archive"
sum=$(sha256sum "$folder/$archive" | cut -d ' ' -f 1)

cat >"$folder/warm.yaml" <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: warm
spec:
  version: v$version
  shortDescription: Show how warm and fresh caches are, and why not
  description: |
    Looks at the CacheProfiles of kubewarm, an informer cache as a service: how warm, how fresh and how
    large they are, which permissions they lack, what they would cost, and whether the installation is
    well.
  caveats: |
    Begin with: kubectl warm check --pre
  platforms:
  - selector:
      matchLabels:
        os: $os
        arch: $arch
    uri: $url/$archive
    sha256: $sum
    bin: kubectl-warm
MANIFEST
echo "$folder/$archive"
echo "$folder/warm.yaml"
