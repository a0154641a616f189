#!/usr/bin/env bash
# Names each given program that is missing, on one line with a way to install it.
set -euo pipefail
declare -A source=(
    [cargo]='Rust 1.95.0, https://rustup.rs'
    [gcc]='Debian packages gcc and libc6-dev'
    [go]='Go 1.26 or newer, https://go.dev/dl'
    [buildah]='Debian package buildah'
    [containerd]='Debian package containerd; a policy-rc.d keeps it from being started'
    [runc]='Debian package runc'
    [/usr/lib/cni/bridge]='Debian package containernetworking-plugins'
    [iptables]='Debian package iptables'
    [ip]='Debian package iproute2'
    [prometheus]='Debian package prometheus'
    [promtool]='Debian package prometheus'
    [python3]='Python 3 with pip, Debian packages python3 and python3-pip'
    [npm]='Node.js with npm, Debian packages nodejs and npm'
    [mvn]='Debian package maven'
    [javac]='a JDK, Debian package default-jdk-headless'
    [curl]='Debian package curl'
)
status=0
for program; do
    command -v "$program" >/dev/null && continue
    echo "missing: $program (${source[$program]})" >&2
    status=1
done
exit "$status"
