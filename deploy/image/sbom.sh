#!/usr/bin/env bash
# Prints a software bill of materials of a static binary, as CycloneDX 1.5: every crate that is linked into it,
# with its sum and licence, and who needs whom; the standard library of Rust, and the C library.
#
#   sbom.sh BINARY
#
# By cargo's own word: what only builds or tests (procedural macros, dev-dependencies) is not in it. The same
# for the same input: no time, no random number.
set -euo pipefail

if (($# != 1)); then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
binary=$(realpath "$1")
cd "$(dirname "$0")/../.."

target=$(rustc --version --verbose | sed -n 's/^host: //p')
# Depth, package, licence, repository; each package's own below it where it comes first.
cargo tree --locked --package kubewarm --target "$target" --edges normal,no-proc-macro --prefix depth \
    --format '|{p}|{l}|{r}' |
    awk -v sum="$(sha256sum "$binary" | cut -d ' ' -f 1)" \
        -v rust="$(rustc --version | cut -d ' ' -f 2)" \
        -v libc="$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)" \
        -f deploy/image/sbom.awk Cargo.lock -
