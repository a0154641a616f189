#!/usr/bin/env bash
# Compiles the image's binary and prints its path. The binary links no shared library.
#
#   build.sh [PROFILE]
#
# PROFILE is a Cargo profile: `release` (the default) or `test-image`. The binary reports KUBEWARM_REVISION as its
# commit, if it is set. The same source, toolchain, gcc and libc6-dev give the same binary: it contains no path of
# the source or of Cargo's folder.
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=${1:-release}
target=$(rustc --version --verbose | sed -n 's/^host: //p')
if [[ $target != *-linux-gnu ]]; then
    echo "the image is built on Linux with glibc, not on $target" >&2
    exit 1
fi

cargo_home=${CARGO_HOME:-$HOME/.cargo}
flags=(
    -C target-feature=+crt-static
    "--remap-path-prefix=$PWD=/kubewarm"
    "--remap-path-prefix=$cargo_home=/cargo"
)
# This variable replaces all flags that are set elsewhere. It allows spaces in paths.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS
# With --target, Cargo applies these flags to the program only. Procedural macros must stay shared libraries.
cargo build --locked --profile "$profile" --target "$target" --bin kubewarm >&2

binary=$(realpath "${CARGO_TARGET_DIR:-target}/$target/$profile/kubewarm")
for folder in "$PWD" "$cargo_home"; do
    if grep --quiet --text --fixed-strings "$folder/" "$binary"; then
        echo "$binary contains the path $folder: another folder would give another binary" >&2
        exit 1
    fi
done
echo "$binary"
