# `make` lists the targets with a `##` comment.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Concurrent builds would only wait for the lock on `target`.
.NOTPARALLEL:

help: ## List the targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## From nothing to a warm profile on a real API server (DEMO_EXIT=1: do not stay)
	@tests/prerequisites.sh cargo gcc go
	@tests/demo/run.sh

# The test programs of each tier. tests/repository/tiers.rs checks that each is in exactly one tier. `e2e`
# is split by path: tests below `slow::` take minutes or need Prometheus.
CHECK_PROGRAMS := repository protocol corpus rbac_cost
TEST_PROGRAMS := e2e e2e_rights lifecycle rbac_authorizer
SLOW_PROGRAMS := chart image node prometheus soak oracle
programs = $(addprefix --test ,$(1))

check: ## Format, clippy, unit and protocol tests
	@tests/prerequisites.sh cargo gcc
	cargo fmt --all --check
	cargo clippy --all-targets --locked -- -D warnings
	cargo clippy --test soak --test oracle --locked -- -D warnings
	cargo test --locked --lib --bins $(call programs,$(CHECK_PROGRAMS))

# End-to-end tests mostly wait. After them, `e2e_rights` compares the operators' requests with the shipped
# permissions.
test: has-go check lint ## `check`, and everything on a real control plane that a change can break
	RUST_TEST_THREADS=$(E2E_THREADS) cargo test --locked --test e2e --test lifecycle -- --skip slow::
	cargo test --locked --test e2e_rights
	# Both programs of this test use a processor.
	cargo test --locked --test rbac_authorizer

E2E_THREADS ?= 6

test-all: has-all test slow ## `test`, and what is slow: a real node, both Helm versions, the image, churn, a soak, the oracle

slow: has-all test-image ## The rest of `test-all`
	cargo test --locked $(call programs,$(filter-out soak oracle,$(SLOW_PROGRAMS))) -- --skip workloads::
	# A race of milliseconds: load from other tests would decide it.
	cargo test --locked --test e2e slow::claims
	RUST_TEST_THREADS=4 cargo test --locked --test e2e slow:: -- --skip slow::claims
	SOAK_MINUTES=5 cargo test --locked --test soak
	ORACLE_SEEDS=5 cargo test --locked --test oracle

lint: ## rustdoc without warnings; licences and sources of all crates; workflows
	@tests/prerequisites.sh cargo gcc go
	RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --locked
	tests/deny.sh
	tests/workflows.sh

prose: ## Warn of words and sentences that are hard to read; fails no build
	@cargo run --locked --quiet --example prose

fmt: ## Format the code
	cargo fmt --all

size: ## Count the code by module: lines, types, ports, repeated names, long files
	@tests/size.sh

generate: ## Rewrite the generated files
	@tests/prerequisites.sh cargo gcc go
	BLESS=1 cargo test --locked --test repository
	BLESS=1 cargo test --locked --test chart plain_manifests
	BLESS=1 cargo test --locked --test e2e field_tables

VERSION = $(shell sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)

# Two names of one image: the name in the chart, and a name that does not change with the version.
IMAGE ?= localhost/kubewarm:$(VERSION) localhost/kubewarm:dev
# The same source and tools give identical files. The build needs no daemon and no registry.
image: ## Build the image, target/kubewarm-image.tar, and its SBOM (IMAGE: other names)
	@tests/prerequisites.sh cargo gcc buildah
	deploy/image/image.sh $(IMAGE)

# For tests: without a commit, an SBOM and link-time optimization, which takes minutes.
test-image:
	@tests/prerequisites.sh cargo gcc buildah
	binary=$$(deploy/image/build.sh test-image) && \
		deploy/image/pack.sh "$$binary" $(VERSION) target/kubewarm-test-image.tar $(IMAGE)

HELM ?= helm
package: ## Pack the chart into target/chart (HELM: the program)
	$(HELM) package charts/kubewarm --destination target/chart

# The plugin uses the shared C library, so names resolve as the user's machine is configured. For machines
# without glibc, use the image's binary: KREW_BINARY=$$(deploy/image/build.sh).
KREW_BINARY ?= target/release/kubewarm
krew: ## Pack the kubectl plugin for krew into target/krew (KREW_URL: where it will be downloaded)
	@tests/prerequisites.sh cargo gcc
	@test -n "$(KREW_URL)" || { echo 'set KREW_URL=https://…, the folder of the download' >&2; exit 2; }
	@test "$(origin KREW_BINARY)" != file || cargo build --locked --release -p kubewarm
	deploy/krew/package.sh "$(KREW_BINARY)" $(VERSION) "$(KREW_URL)" target/krew

picture: ## Draw the overview dashboard from the results of a real Prometheus: docs/dashboard.svg
	@tests/prerequisites.sh cargo gcc go prometheus
	PICTURE=1 cargo test --locked --test e2e faults_of_profiles_cause_their_alerts

# They need minutes, and libraries from the registries of pip, npm and Maven.
workloads: has-all test-image ## Inject cert-manager, metrics-server, and clients of other languages
	@tests/prerequisites.sh python3 npm mvn javac curl
	cargo test --locked --test node workloads::

soak: ## Churn on an API server that restarts, freezes and is edited (SOAK_MINUTES=10)
	@tests/prerequisites.sh cargo gcc go
	cargo test --locked --test soak

# Each seed takes 2 or 4 minutes. The records are in target/tmp/oracle; ORACLE_JUDGE=1 judges them again.
oracle: ## Compare each answer with etcd's history while faults are injected (SEEDS=20, FIRST=1)
	@tests/prerequisites.sh cargo gcc go
	ORACLE_SEEDS=$(or $(SEEDS),20) ORACLE_FIRST=$(or $(FIRST),1) cargo test --locked --test oracle

# What it finds is in crates/kubewarm-wire/corpus, and fails `make check` until it is fixed.
fuzz: ## Decode randomly damaged protobuf (FUZZ_MINUTES=60)
	@tests/prerequisites.sh cargo gcc
	cargo run --locked --profile test-image -p kubewarm-wire --example fuzz

bench: ## Measure against peers and the server's own floor; writes docs/performance.md (80 minutes)
	@tests/prerequisites.sh cargo gcc go
	benches/run.sh $(BENCH_ARGS)

bench-scale: ## Measure the growth with objects, watches and profiles; writes docs/performance.md (12 minutes)
	@tests/prerequisites.sh cargo gcc
	cargo build --release --locked -p kubewarm -p kubewarm-bench
	target/release/kubewarm-bench scale $(BENCH_ARGS)

outage: ## Measure an agent on each of N nodes, with and without kubewarm; writes docs/outage.md (OUTAGE_ARGS='--agents 300 --rounds 1')
	@tests/prerequisites.sh cargo gcc go
	benches/run.sh outage $(OUTAGE_ARGS)

# Checked before the lints, which take minutes.
has-go:
	@tests/prerequisites.sh cargo gcc go

has-all:
	@tests/prerequisites.sh cargo gcc go prometheus promtool buildah containerd runc /usr/lib/cni/bridge iptables ip

.PHONY: help demo check test test-all slow lint prose fmt size generate image test-image package krew picture workloads soak oracle fuzz bench bench-scale outage has-go has-all
