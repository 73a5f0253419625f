# Waystation: one target per thing you may want. `make` alone lists them.
# Each target installs what it needs (through apt on Debian and Ubuntu) and says so first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# The tests of the islands of unsafe code that Miri can run in minutes, and those with threads (long histories of one
# thread are left out).
MIRI_TESTS := lsm::memtable::tests storage::aligned log::ring the_ring_of_one_moment a_dead_ring simulated_machine::ring
TSAN_TESTS := lsm::memtable log:: storage:: db::

# Kernels of aarch64 have pages of 4, 16 or 64 KiB, and the allocator works with pages up to the size it is built for.
ifeq ($(shell uname -m),aarch64)
export JEMALLOC_SYS_WITH_LG_PAGE ?= 16
endif

.PHONY: help run serve install deb demo test models restless mutants fuzz sanitize soak bench-build bench lint docs book setup clean city-rivals

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: ## Install what the tests need
	scripts/setup-test.sh

# The sizes of the compaction engine that are simulated: two of them build faster than all that the tests take.
run serve city-rivals install deb: export WAYSTATION_IP_SIZES ?= 2,4
run: ## Build, and drive an hour of a real city through thirty engines; plots in target/city.html
	$(CARGO) build --release --locked -p waystation-cli
	$(TARGET)/release/waystation city --dir $(TARGET)/city --html $(TARGET)/city.html --json $(TARGET)/city.json

serve: setup ## Build, and serve a fleet that speaks MQTT through Mosquitto, until Ctrl-C (CARS=, RATE=)
	$(CARGO) build --release --locked -p waystation-cli
	scripts/serve.sh $(TARGET)/release/waystation $(or $(CARS),50) $(or $(RATE),200)

city-rivals: ## The city on Waystation, LevelDB and RocksDB (builds those two first: about 25 minutes, once)
	crates/waystation-rivals/build.sh
	$(CARGO) build --release --locked -p waystation-cli --features rivals
	$(TARGET)/release/waystation city --against leveldb,rocksdb --dir $(TARGET)/city --html $(TARGET)/city.html --json $(TARGET)/city.json

install: ## Build, and install the command, the systemd unit and the example configuration (PREFIX=, DESTDIR=)
	$(CARGO) build --release --locked -p waystation-cli
	install -Dm755 $(TARGET)/release/waystation $(DESTDIR)$(or $(PREFIX),/usr/local)/bin/waystation
	install -Dm644 packaging/waystation.toml $(DESTDIR)/etc/waystation/waystation.toml.example
	sed 's|/usr/bin/|$(or $(PREFIX),/usr/local)/bin/|' packaging/waystation.service | install -Dm644 /dev/stdin $(DESTDIR)/etc/systemd/system/waystation.service
	@echo "As a service: copy /etc/waystation/waystation.toml.example to waystation.toml, then"
	@echo "  adduser --system --group --home /var/lib/waystation waystation && systemctl enable --now waystation"

deb: ## Build, and make a Debian package in target/
	$(CARGO) build --release --locked -p waystation-cli
	packaging/deb.sh $(TARGET)/release/waystation $(TARGET)

demo: export WAYSTATION_IP_SIZES ?= 2,4
demo: ## Build, and take a tour through the commands
	$(CARGO) build --release --locked -p waystation-cli
	scripts/demo.sh $(TARGET)/release/waystation

test: setup ## Every test (under 40 minutes on two cores, with all that is built for them)
	WAYSTATION_FLIP_PART=8 WAYSTATION_FUZZ_SECONDS=40 WAYSTATION_METAMORPHIC_LISTS=60 WAYSTATION_MODEL_SEEDS=30 WAYSTATION_HISTORIES=15 $(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) models
	$(MAKE) restless
	$(MAKE) bindings

models: setup ## What threads share, under model checkers (shuttle, loom); part of `make test`
	RUSTFLAGS="--cfg shuttle" $(CARGO) test -p waystation --lib --locked --target-dir $(TARGET)/shuttle model_tests
	RUSTFLAGS="--cfg loom" $(CARGO) test -p waystation --lib --locked --target-dir $(TARGET)/loom memtable::model_tests

restless: ## Simulated crashes (SEEDS=, FIRST=) with threads held up at random; part of `make test`
	WAYSTATION_RESTLESS=1 WAYSTATION_SEEDS=$(or $(SEEDS),200) WAYSTATION_FIRST_SEED=$(or $(FIRST),1) $(CARGO) test --workspace --test simulation --locked -- --nocapture

mutants: setup ## Mistakes made on purpose, which the tests have to find (SEEDS= of the simulation each, NAMES=); minutes
	$(CARGO) run -q --locked -p waystation-mutants -- $(NAMES)

soak: ## Kills, simulated crashes and random histories for hours (SEEDS=, KILLS=)
	WAYSTATION_KILLS=$(or $(KILLS),2000) $(CARGO) test --release -p waystation --test suite kill:: -- --nocapture
	WAYSTATION_FIRST_SEED=$(or $(FIRST),100000) WAYSTATION_SEEDS=$(or $(SEEDS),100000) $(CARGO) test --release -p waystation --test simulation -- --nocapture
	$(MAKE) restless SEEDS=$(or $(SEEDS),100000) FIRST=$(or $(FIRST),100000)
	WAYSTATION_MODEL_SEEDS=$(or $(MODELS),2000) $(CARGO) test --release -p waystation --test suite model:: -- --nocapture
	WAYSTATION_METAMORPHIC_LISTS=$(or $(LISTS),20000) $(CARGO) test --release -p waystation --test suite metamorphic:: -- --nocapture
	WAYSTATION_HISTORIES=$(or $(HISTORIES),2000) $(CARGO) test --release -p waystation --test suite tombstones:: -- --nocapture
	WAYSTATION_SEEDS=$(or $(SEEDS),100000) $(CARGO) test --release -p waystation --test suite settled_graves:: -- --nocapture
	WAYSTATION_FLIP_PART=1 $(CARGO) test --release -p waystation-fuzz --test flips -- --nocapture
	$(CARGO) test -p waystation-cli --test suite rig:: -- --ignored
	$(MAKE) fuzz
	$(MAKE) sanitize

# Without FUZZ the soak's fuzzing: every target for so long, no toolchain but stable needed.
fuzz: ## Hostile bytes for the parsers: FUZZ=target is live (nightly, cargo-fuzz), else each for SECONDS_EACH=
ifdef FUZZ
	$(CARGO) run --release -q -p waystation-fuzz -- corpus fuzz/corpus
	$(CARGO) +nightly fuzz run $(FUZZ) -- -max_total_time=$(or $(SECONDS_EACH),600) -max_len=16384
else
	$(CARGO) run --release -q -p waystation-fuzz -- run $(or $(SECONDS_EACH),60)
endif

# Nightly only: what stable cannot do is said, and is no failure. ThreadSanitizer learns of mappings from libc's calls.
sanitize: ## Undefined behaviour (Miri) and data races (ThreadSanitizer) in the islands of unsafe code
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
	  PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --target-dir $(TARGET)/miri -p waystation --lib -- $(MIRI_TESTS); \
	else echo "sanitize: Miri NOT RUN: it needs a nightly toolchain with the components miri and rust-src"; fi
	@if $(CARGO) +nightly --version >/dev/null 2>&1 && [ -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src" ]; then \
	  RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test -Zbuild-std --target $(HOST) --target-dir $(TARGET)/tsan -p waystation --lib --features rustix/use-libc -- $(TSAN_TESTS); \
	else echo "sanitize: ThreadSanitizer NOT RUN: it needs a nightly toolchain with the component rust-src"; fi

bench-build: ## Build the benchmark with its rivals LevelDB, RocksDB and fjall (about 25 minutes, once)
	crates/waystation-rivals/build.sh
	$(CARGO) build --release --locked --package waystation-bench --features rivals

bench: ## The benchmark table of README.md, into target/db.json (needs bench-build)
	$(TARGET)/release/waystation-bench db --engines waystation,leveldb,rocksdb,fjall --num 1000000 --runs 3 --json $(TARGET)/db.json

# In the profile of the tests, so that C libraries and build scripts are built once for both.
lint: ## Formatting, clippy, and (where installed) cargo-deny and typos
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --profile test -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --log-level error check; else echo "cargo-deny is not installed: skipped"; fi
	@if command -v typos >/dev/null; then typos; else echo "typos is not installed: skipped"; fi

# Chapters at the head of modules name private neighbours: those are no links in the public reference.
docs: ## The reference of the public interface, from the source
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --locked
	@echo "open $(TARGET)/doc/waystation/index.html; the book is docs/README.md, or make book"

# mdBook comes through cargo where it is missing: some minutes, once.
book: ## The book (docs/) as pages to browse, in target/book
	@command -v mdbook >/dev/null || $(CARGO) install mdbook --locked --version '^0.5'
	PATH="$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$$PATH" mdbook build
	@echo "open target/book/index.html"

clean: ## Remove everything built, and the databases of run and bench
	$(CARGO) clean

-include hw/hw.mk
-include crates/waystation-advisor/placement.mk
-include crates/waystation-capi/capi.mk
