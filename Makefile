# `make` builds as any user with a Rust toolchain; `make install` then copies, and needs no toolchain:
#
#     make && sudo make install
#
# The other targets need packages: they install the missing ones on Debian, as root, and print nothing
# if all are installed.

PREFIX  = /usr/local
DESTDIR =
SHARE   = $(DESTDIR)$(PREFIX)/share
# Seconds that `fuzz` runs each of its targets.
SECONDS = 60

CARGO     = cargo
TARGET    = $(or $(CARGO_TARGET_DIR),target)
BIN       = $(abspath $(TARGET))/release
DEMO      = $(TARGET)/demo
TOOLS     = nprof nprof-record nprof-symbolize nprof-blame nprof-flat nprof-paths nprof-annotate nprof-diff \
            nprof-format nprof-export nprof-import nprof-top cargo-nprof
CXX       = g++
DEMOFLAGS = -std=c++17 -O2 -g -fomit-frame-pointer -Wall -Wextra -pthread

# COMMAND:PACKAGE for each command that the demo runs, or FILE:PACKAGE.
DEMO_NEEDS = g++:g++ perl:perl
# The same for the tests, `lint` and `bench`.
NEEDS = g++:g++ objcopy:binutils gprof:binutils bzip2:bzip2 setpriv:util-linux mandoc:mandoc \
        perf:linux-perf strace:strace dwz:dwz xz:xz-utils zstd:zstd ld.lld:lld mold:mold \
        python3:python3 script:bsdutils zsh:zsh fish:fish musl-gcc:musl-tools chromium:chromium \
        $(ALLOCATORS)/libjemalloc.so.2:libjemalloc2 $(ALLOCATORS)/libmimalloc.so.2.0:libmimalloc2.0 \
        $(ALLOCATORS)/libtcmalloc_minimal.so.4:libtcmalloc-minimal4
ALLOCATORS = /usr/lib/x86_64-linux-gnu
# The same for the other profilers and programs that `papers` and `bench` run.
PEERS = valgrind:valgrind link-parser:link-grammar offcputime-bpfcc:bpfcc-tools bpftrace:bpftrace \
        uftrace:uftrace redis-server:redis-server heaptrack:heaptrack sqlite3:sqlite3 \
        $(ALLOCATORS)/libtcmalloc.so.4:libgoogle-perftools4

# The packages of PyPI with the engines that `fleet` runs the queries in.
ENGINES = duckdb==2.0.0 datafusion==55.0.0
# For `fleet-day`, and its options.
NUMPY   = numpy==2.4.6
DAY     =
ENV     = $(abspath $(TARGET))/fleet

# The directories of peers that cargo installs, and of generated completions.
PEERS_ROOT  = $(abspath $(TARGET))/peers
COMPLETIONS = $(TARGET)/completions

# Written by `build`, and the files it depends on: `install` needs cargo only if one of them is newer.
BUILT   = $(BIN)/.nprof-built
SOURCES = $(shell find Cargo.toml Cargo.lock nprof*/Cargo.toml nprof*/src nprof-preload/build.rs nprof-record/bpf tests/Cargo.toml \
                       tests/support tests/completions -type f)
# The profile of the program that writes completions.
PROFILE = release

# Installs the packages of the missing commands and files in a list COMMAND:PACKAGE...
define install_missing
	@missing=; for need in $(1); do \
	    command -v $${need%%:*} >/dev/null || [ -e $${need%%:*} ] || missing="$$missing $${need#*:}"; \
	done; \
	[ -z "$$missing" ] || { \
	    [ $$(id -u) = 0 ] || { echo "missing packages; as root: apt-get install$$missing"; exit 1; }; \
	    set -x; apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $$missing; }
endef

all: build

setup:
	$(call install_missing,$(NEEDS))
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 || \
	    rustup component add rustfmt clippy

# samply samples by cycles: without a counter for them it cannot record, and is not installed.
peers: setup build
	$(call install_missing,$(PEERS))
	@[ -x $(PEERS_ROOT)/bin/inferno-collapse-perf ] || \
	    $(CARGO) install --quiet --locked --root $(PEERS_ROOT) inferno
	@[ -x $(PEERS_ROOT)/bin/samply ] || ! $(BIN)/nprof-record -q -e cycles -o /dev/null true || \
	    $(CARGO) install --quiet --locked --root $(PEERS_ROOT) samply

build: $(BUILT)

$(BUILT): $(SOURCES)
	@command -v $(CARGO) >/dev/null || { \
	    echo "$(CARGO): not found; first run make as the user who has the Rust toolchain"; exit 1; }
	$(CARGO) build --release --workspace --bins --locked
	@$(MAKE) --no-print-directory completions
	@touch $@

# Users build without clang: the objects are part of the repository.
BPF = nprof-record/bpf
bpf:
	cd $(BPF) && for name in waits calls; do \
	    clang -target bpf -mcpu=v3 -O2 -g -ffile-prefix-map=$$PWD=. -Wall -Wextra \
	        -c $$name.bpf.c -o $$name.bpf.o && llvm-strip -g $$name.bpf.o || exit; done

# Writes the completions of the tools in BIN, from their --help.
completions:
	$(CARGO) run --profile $(PROFILE) --locked --package nprof-tests --example completions -- \
	    $(BIN) $(COMPLETIONS)

# Profiles the demo program, then perl, which every Debian has.
demo: demo-setup build $(DEMO)/demo
	@PATH="$(BIN):$$PATH" demo/show $(DEMO) demo $(DEMO)/demo
	@PATH="$(BIN):$$PATH" demo/show $(DEMO) perl perl demo/words.pl /usr/include

demo-setup:
	$(call install_missing,$(DEMO_NEEDS))

$(DEMO)/demo: demo/main.cpp demo/index.cpp $(DEMO)/libquery.so demo/index.hpp demo/query.hpp | demo-setup
	$(CXX) $(DEMOFLAGS) -o $@ demo/main.cpp demo/index.cpp -L$(DEMO) -lquery -Wl,-rpath,'$$ORIGIN'

$(DEMO)/libquery.so: demo/query.cpp demo/index.hpp demo/query.hpp | demo-setup
	@mkdir -p $(DEMO)
	$(CXX) $(DEMOFLAGS) -fPIC -shared -o $@ demo/query.cpp

# Uses the dev profile for everything: tests build the tools they run in their own profile.
test: setup
	$(CARGO) test --workspace --locked --no-fail-fast

# Measures the rates of false alarms and of missed changes of nprof-diff: three real programs with slower
# functions, 25 comparisons of real programs with themselves, comparisons with other rates and lengths,
# 25 comparisons of heap events with and without a growth of 3 %, and 15,600 comparisons of simulated programs.
calibrate: setup build
	PATH="$(BIN):$$PATH" bench/power
	PATH="$(BIN):$$PATH" bench/heap_alarms
	$(CARGO) test --package nprof-diff --locked -- --ignored --nocapture simulated
	$(CARGO) test --package nprof-tests --test diff_real_runs --locked -- --ignored --nocapture --test-threads=1

# `papers` runs the experiments of the papers that nprof comes from, `bench` measures speeds and sizes,
# both beside other profilers. They write their results into docs/measurements.md.
papers: peers
	PATH="$(BIN):$(PEERS_ROOT)/bin:$$PATH" tests/experiments/run

# perf needs minutes for the lines of inlined calls: it is stopped after two.
bench: peers $(DEMO)/demo
	PERF_TIMEOUT=120 PATH="$(BIN):$(PEERS_ROOT)/bin:$$PATH" bench/run $(DEMO)/demo

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package nprof-symbolize --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	mandoc -Tlint -Wwarning man/*.[157]
	python3 -B -c 'import ast, sys; [ast.parse(open(path).read(), path) for path in sys.argv[1:]]' \
	    $(shell find bench tests nprof* -name '*.py') $(shell grep -lIs '^\#!.*python3' bench/* packaging/* tests/*/*)
	python3 -B tests/lint/modules.py $(dir $(wildcard nprof*/Cargo.toml))
	python3 -B tests/lint/architecture.py
	python3 -B tests/lint/links.py
	python3 -B tests/lint/prose.py $(dir $(wildcard nprof*/Cargo.toml)) tests man/*.[157] *.md docs/*.md

# Fuzzes the readers of streams, images and recordings of other profilers. RUSTC_BOOTSTRAP lets a stable compiler instrument code.
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	cd nprof-stream && for target in $$($(CARGO) fuzz list); do \
	    mkdir -p fuzz/corpus/$$target && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target \
	        fuzz/corpus/$$target ../tests/conformance/vectors/* -- -max_total_time=$(SECONDS) || exit; \
	done
	cd nprof-symbolize && mkdir -p fuzz/corpus/image && fuzz/seeds fuzz/corpus/image && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run image fuzz/corpus/image -- -max_total_time=$(SECONDS)
	cd nprof-import && mkdir -p fuzz/corpus/recording && fuzz/seeds fuzz/corpus/recording && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run recording fuzz/corpus/recording -- -max_total_time=$(SECONDS)

# Records programs on other kernels and processors, in emulation, and judges the recordings. MACHINES has
# options and names of checks: see `tests/machines/run --help`. All it downloads is in the build directory.
MACHINES      =
MACHINE_NEEDS = debootstrap:debootstrap
machines:
	$(call install_missing,$(MACHINE_NEEDS))
	tests/machines/run $(abspath $(TARGET))/machines $(MACHINES)

# Compares the queries for Parquet files with the reports.
fleet: build
	@[ -x $(ENV)/bin/python3 ] || python3 -m venv $(ENV)
	@$(ENV)/bin/pip install --quiet $(ENGINES)
	PATH="$(BIN):$$PATH" $(ENV)/bin/python3 -B tests/fleet/check.py sql

# Simulates a day of 200 hosts from symbolized recordings, and queries it: make fleet-day RECORDINGS='a.nprof b.nprof'
fleet-day: build
	@[ -n "$(RECORDINGS)" ] || { echo 'make fleet-day: no recordings; name them in RECORDINGS' >&2; exit 1; }
	@[ -x $(ENV)/bin/python3 ] || python3 -m venv $(ENV)
	@$(ENV)/bin/pip install --quiet $(ENGINES) $(NUMPY)
	rm -rf $(TARGET)/fleet-day
	PATH="$(BIN):$$PATH" $(ENV)/bin/python3 -B tests/fleet/simulate.py $(DAY) sql $(TARGET)/fleet-day $(RECORDINGS)

# Renders the manual pages for a browser, with links between them.
html: setup
	@mkdir -p $(TARGET)/html
	for page in man/*.[157]; do \
	    mandoc -T html -O toc,man=%N.%S.html $$page > $(TARGET)/html/$${page#man/}.html || exit; \
	done
	@echo "The manual is in $(TARGET)/html/nprof.7.html."

install: build install-files

# Installs built files below DESTDIR. Tests install the tools of their profile with another BIN.
install-files:
	@install -d $(DESTDIR)$(PREFIX)/bin
	@install $(addprefix $(BIN)/,$(TOOLS)) $(DESTDIR)$(PREFIX)/bin
	@for section in 1 5 7; do \
	    install -d $(SHARE)/man/man$$section && \
	    install -m 644 man/*.$$section $(SHARE)/man/man$$section || exit; \
	done
	@install -d $(SHARE)/nprof/sql && install -m 644 sql/*.sql $(SHARE)/nprof/sql
	@install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
	    $(SHARE)/fish/vendor_completions.d
	@for tool in $(TOOLS); do \
	    install -m 644 $(COMPLETIONS)/bash/$$tool.bash \
	        $(SHARE)/bash-completion/completions/$$tool || exit; \
	done
	@install -m 644 $(COMPLETIONS)/zsh/_* $(SHARE)/zsh/site-functions
	@install -m 644 $(COMPLETIONS)/fish/* $(SHARE)/fish/vendor_completions.d
	@echo "Installed in $(DESTDIR)$(PREFIX):"
	@echo "    bin                           $(TOOLS)"
	@echo "    share/man/man1, man5, man7    their manual pages, nprof-format(5) and nprof(7)"
	@echo "    share/nprof/sql               queries for the files of nprof-export --to parquet"
	@echo "    share/bash-completion/completions, share/zsh/site-functions,"
	@echo "    share/fish/vendor_completions.d    completions of each tool"

# Writes a Debian package of the built files; needs dpkg and binutils.
DEB = $(abspath $(TARGET))/deb/nprof
deb: build
	@rm -rf $(DEB) $(DEB).deb
	@$(MAKE) --no-print-directory install-files DESTDIR=$(DEB) PREFIX=/usr >/dev/null
	@packaging/deb $(DEB) $$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# Packs programs that need no library of the system, for x86-64 and 64-bit ARM. As root, in the Debian of `machines`.
static: build
	$(call install_missing,$(MACHINE_NEEDS))
	@packaging/static $(abspath $(TARGET))/machines $(abspath $(TARGET))/static \
	    $$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml) $(TOOLS)

clean:
	$(CARGO) clean
	rm -rf nprof-stream/fuzz/target nprof-symbolize/fuzz/target nprof-import/fuzz/target

.PHONY: all setup peers build bpf completions demo demo-setup test calibrate papers bench lint fuzz fleet fleet-day html machines install install-files deb static clean
