#!/bin/sh
# Builds everything that is measured, and measures it: `benches/run.sh` writes docs/performance.md, and
# `benches/run.sh outage` writes docs/outage.md.
#
#   benches/run.sh build             builds only
#   benches/run.sh [--pods N] [--rounds N] [--out FILE]
#   benches/run.sh outage [--agents N,N] [--rounds N] [--out FILE]
set -eu
cd "$(dirname "$0")/.."

for tool in cargo go; do
    command -v "$tool" >/dev/null || { echo "benches/run.sh: $tool is not installed" >&2; exit 1; }
done
mkdir -p target/bench
cargo build --release --locked -p kubewarm -p kubewarm-bench
(cd benches/peers/go && CGO_ENABLED=0 go build -trimpath -o ../../../target/bench/peer .)
measure=all
case "${1:-}" in
    build) exit 0 ;;
    outage) measure=outage && shift ;;
esac

# The idle figure opens 2,000 watches, and each is a socket here and at the API server.
ulimit -n "$(ulimit -H -n)"
exec target/release/kubewarm-bench "$measure" "$@"
