#!/usr/bin/env bash
# Builds kubewarm without any shared library, which is what the image holds, and prints where it is.
#
#   build.sh [PROFILE]
#
# PROFILE is one of cargo's, `release` if it is left out. KUBEWARM_REVISION, if it is set, is the commit that
# the binary tells. The same source, toolchain, gcc and libc6-dev give the same binary, wherever source and
# cargo's folder lie: their paths do not get into it.
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=${1:-release}
target=$(rustc --version --verbose | sed -n 's/^host: //p')
if [[ $target != *-linux-gnu ]]; then
    echo "the image is built on Linux with glibc, and this is $target" >&2
    exit 1
fi

flags=(
    -C target-feature=+crt-static
    "--remap-path-prefix=$PWD=/kubewarm"
    "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
)
# Flags from elsewhere would make another binary. A path may hold spaces, so they are parted otherwise.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS
# With a target named, what runs at build time (procedural macros) is not built by these flags.
cargo build --locked --profile "$profile" --target "$target" --bin kubewarm >&2

folder=${CARGO_TARGET_DIR:-target}/$target/$profile
# cargo calls the folder of the profile `dev` so.
[[ $profile != dev ]] || folder=${folder%/dev}/debug
realpath "$folder/kubewarm"
