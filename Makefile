# The commands of this repository. Every target uses the one profile (release) and the one feature set (default) on all
# target kinds, so that RocksDB, which takes many minutes, is compiled once for all of them.
#
# `--examples` in `docs` is there for the same reason: it pulls the dev-dependencies into the build graph, as every other
# target does. Without it, a dev-dependency that turns on a feature of a build tool of RocksDB (bindgen, syn) would make Cargo
# compile RocksDB a second time.

SHELL := /bin/bash
CARGO ?= cargo
ONE   := --release --locked
NAME  ?= batch
ARGS  ?=
KEYS  ?= 3000000
LIMIT ?= 48MiB
RESIDENCY ?= mapped
CGROUP ?=

.DEFAULT_GOAL := help
.PHONY: help demo test campaign bench scale memory-plot check fmt clippy docs install

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

install: ## Install what is missing to build (C++ compiler, libclang), and say so.
	@.ci/install

demo: install ## Stream a year of flights through the store with 64 MiB, kill it twice, resume, verify.
	@CARGO=$(CARGO) .ci/demo $(ARGS)

test: install ## Run all tests: unit, integration, house rules, examples, doc tests, and the build without RocksDB.
	$(CARGO) test $(ONE)
	$(CARGO) test $(ONE) --no-default-features --features conformance,metrics --lib

campaign: install ## Run the tests that take minutes and gigabytes; before a release.
	$(CARGO) test $(ONE) --lib -- --ignored

bench: install ## Run a benchmark: make bench NAME=batch ARGS="--quick".
	$(CARGO) bench --locked --bench $(NAME) -- $(ARGS)

scale: install ## Load, scan and restart more keys than memory holds: make scale KEYS=3000000 LIMIT=48MiB [RESIDENCY=resident] [CGROUP=768MiB].
	$(CARGO) run $(ONE) --example scale -- --keys $(KEYS) --limit $(LIMIT) --residency $(RESIDENCY) \
		$(if $(CGROUP),--cgroup $(CGROUP)) $(ARGS)

check: fmt clippy docs ## Formatting, lints and documentation, all with warnings denied.

fmt: ## Check the formatting.
	$(CARGO) fmt --all --check

clippy: install ## Lint with and without RocksDB.
	$(CARGO) clippy $(ONE) --all-targets -- -D warnings
	$(CARGO) clippy $(ONE) --all-targets --no-default-features -- -D warnings

docs: install ## Build the documentation.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ONE) --no-deps --lib --examples
