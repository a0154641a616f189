# Targets with a `##` are listed by `make`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Builds would only wait for each other's lock on `target`.
.NOTPARALLEL:

help: ## List the targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## From nothing to a warm profile on a real API server (DEMO_EXIT=1: do not stay)
	@tests/prerequisites.sh cargo gcc go
	@tests/demo/run.sh

# What pods on a node take, which only root can have, and what runs in them.
ROOT := $(filter 0,$(shell id -u))
POD_TOOLS := $(if $(ROOT),containerd runc /usr/lib/cni/bridge iptables ip)
POD_IMAGE := $(if $(ROOT),image)

# The end-to-end tests wait more than they work: as many at once as there are cores would take twice as long.
test: has-all lint $(POD_IMAGE) ## Everything that must pass: lints, unit and end-to-end tests
	RUST_TEST_THREADS=4 cargo test --workspace --locked

lint: ## Format, clippy and rustdoc, without warnings; licences and sources of all crates
	@tests/prerequisites.sh cargo gcc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --test soak --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked
	tests/deny.sh

fmt: ## Format the code
	cargo fmt --all

generate: ## Rewrite the generated files
	@tests/prerequisites.sh cargo gcc go
	BLESS=1 cargo test --locked --test generated --test generated_cli --test generated_chart --test metrics --test samples
	BLESS=1 cargo test --locked --test chart plain_manifests

VERSION = $(shell sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)

# Two names for one image: the one that the chart takes, and one that stays the same.
IMAGE ?= localhost/kubewarm:$(VERSION) localhost/kubewarm:dev
# No daemon and no registry is needed. The same source and tools give the same files, bit for bit.
image: ## Build the image, target/kubewarm-image.tar, and its SBOM (IMAGE: other names)
	@tests/prerequisites.sh cargo gcc
	deploy/image/image.sh $(IMAGE)

HELM ?= helm
package: ## Pack the chart into target/chart (HELM: the program)
	$(HELM) package charts/kubewarm --destination target/chart

# On people's machines names resolve as the machine says, which takes its shared libraries. The binary of
# the image, for machines without glibc: KREW_BINARY=$$(deploy/image/build.sh).
KREW_BINARY ?= target/release/kubewarm
krew: ## Pack the kubectl plugin for krew into target/krew (KREW_URL: where it will be downloaded)
	@tests/prerequisites.sh cargo gcc
	@test -n "$(KREW_URL)" || { echo 'say KREW_URL=https://…, the folder of the download' >&2; exit 2; }
	@test "$(origin KREW_BINARY)" != file || cargo build --locked --release
	deploy/krew/package.sh "$(KREW_BINARY)" $(VERSION) "$(KREW_URL)" target/krew

picture: ## Draw the dashboard from what a real Prometheus has seen: docs/dashboard.svg
	@tests/prerequisites.sh cargo gcc go prometheus
	PICTURE=1 cargo test --locked --test e2e what_is_wrong_with_profiles_is_met_by_its_alerts

soak: ## Churn on an API server that restarts, freezes and is edited (SOAK_MINUTES=10)
	@tests/prerequisites.sh cargo gcc go
	cargo test --locked --test soak

bench: ## Measure against peers and the server's own floor; writes docs/performance.md (25 minutes)
	@tests/prerequisites.sh cargo gcc go
	benches/run.sh $(BENCH_ARGS)

# Before the lints take their minutes.
has-all:
	@tests/prerequisites.sh cargo gcc go prometheus promtool $(POD_TOOLS)

.PHONY: help demo test lint fmt generate image package krew picture soak bench has-all
