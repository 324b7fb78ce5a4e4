# `make demo` and `make test` need no more than the Rust toolchain and Debian's package
# registry: `setup` installs what is missing, and says nothing where all is there.

PREFIX  = /usr/local
DESTDIR =
# How long `fuzz` runs each of its targets.
SECONDS = 60

CARGO     = cargo
TARGET    = $(or $(CARGO_TARGET_DIR),target)
BIN       = $(abspath $(TARGET))/release
DEMO      = $(TARGET)/demo
TOOLS     = nprof-record nprof-symbolize nprof-flat nprof-paths nprof-diff nprof-format
CXX       = g++
DEMOFLAGS = -std=c++17 -O2 -g -fomit-frame-pointer -Wall -Wextra -pthread

# A command that the demo, the tests, `lint` or `bench` run, and Debian's package of it.
NEEDS = g++:g++ objcopy:binutils bzip2:bzip2 setpriv:util-linux mandoc:mandoc perf:linux-perf \
        strace:strace dwz:dwz xz:xz-utils zstd:zstd ld.lld:lld mold:mold

all: build

setup:
	@missing=; for need in $(NEEDS); do \
	    command -v $${need%%:*} >/dev/null || missing="$$missing $${need#*:}"; \
	done; \
	[ -z "$$missing" ] || { set -x; apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $$missing; }
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 || \
	    rustup component add rustfmt clippy

build:
	$(CARGO) build --release --workspace --bins --locked

# Profiles a program of ours, then one that is on every Debian.
demo: build $(DEMO)/demo
	@PATH="$(BIN):$$PATH" demo/show $(DEMO) demo $(DEMO)/demo
	@PATH="$(BIN):$$PATH" demo/show $(DEMO) perl perl demo/words.pl /usr/include

$(DEMO)/demo: demo/main.cpp demo/index.cpp $(DEMO)/libquery.so demo/index.hpp demo/query.hpp | setup
	$(CXX) $(DEMOFLAGS) -o $@ demo/main.cpp demo/index.cpp -L$(DEMO) -lquery -Wl,-rpath,'$$ORIGIN'

$(DEMO)/libquery.so: demo/query.cpp demo/index.hpp demo/query.hpp | setup
	@mkdir -p $(DEMO)
	$(CXX) $(DEMOFLAGS) -fPIC -shared -o $@ demo/query.cpp

# One profile for everything: the tests' own tools are built beside them.
test: setup
	$(CARGO) test --workspace --locked --no-fail-fast

# How nprof compares with perf on the same work, as ratios; then the stream by itself.
bench: build $(DEMO)/demo
	@PATH="$(BIN):$$PATH" bench/compare $(DEMO)/demo
	@PATH="$(BIN):$$PATH" bench/record $(DEMO)/demo
	$(CARGO) bench --package nprof-format --bench stream --locked

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	mandoc -Tlint -Wwarning man/*.[157]

# Fuzzes what reads streams, and what reads images. RUSTC_BOOTSTRAP lets a stable compiler instrument code.
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	cd nprof-format && for target in $$($(CARGO) fuzz list); do \
	    mkdir -p fuzz/corpus/$$target && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target \
	        fuzz/corpus/$$target ../tests/conformance/vectors/* -- -max_total_time=$(SECONDS) || exit; \
	done
	cd nprof-symbolize && mkdir -p fuzz/corpus/image && fuzz/seeds fuzz/corpus/image && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run image fuzz/corpus/image -- -max_total_time=$(SECONDS)

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install $(addprefix $(BIN)/,$(TOOLS)) $(DESTDIR)$(PREFIX)/bin
	for section in 1 5 7; do \
	    install -d $(DESTDIR)$(PREFIX)/share/man/man$$section && \
	    install -m 644 man/*.$$section $(DESTDIR)$(PREFIX)/share/man/man$$section || exit; \
	done

clean:
	$(CARGO) clean
	rm -rf nprof-format/fuzz/target nprof-symbolize/fuzz/target

.PHONY: all setup build demo test bench lint fuzz install clean
