# `make demo` and `make test` need no more than the Rust toolchain and Debian's package
# registry: `setup` installs what is missing, and says nothing where all is there.

PREFIX  = /usr/local
DESTDIR =
SHARE   = $(DESTDIR)$(PREFIX)/share
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
NEEDS = g++:g++ objcopy:binutils gprof:binutils bzip2:bzip2 setpriv:util-linux mandoc:mandoc \
        perf:linux-perf strace:strace dwz:dwz xz:xz-utils zstd:zstd ld.lld:lld mold:mold \
        python3:python3 script:bsdutils zsh:zsh fish:fish musl-gcc:musl-tools
# The same of what `papers` and `bench` run beside it.
PEERS = valgrind:valgrind link-parser:link-grammar

# Where the peers that are crates are installed, and the completions are made.
PEERS_ROOT  = $(abspath $(TARGET))/peers
COMPLETIONS = $(TARGET)/completions

# Installs the packages of those commands in a list COMMAND:PACKAGE... that are missing.
define install_missing
	@missing=; for need in $(1); do \
	    command -v $${need%%:*} >/dev/null || missing="$$missing $${need#*:}"; \
	done; \
	[ -z "$$missing" ] || { set -x; apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $$missing; }
endef

all: build

setup:
	$(call install_missing,$(NEEDS))
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 || \
	    rustup component add rustfmt clippy

# samply samples by cycles: where there is no counter of them it is of no use.
peers: setup build
	$(call install_missing,$(PEERS))
	@[ -x $(PEERS_ROOT)/bin/inferno-collapse-perf ] || \
	    $(CARGO) install --quiet --locked --root $(PEERS_ROOT) inferno
	@[ -x $(PEERS_ROOT)/bin/samply ] || ! $(BIN)/nprof-record -q -e cycles -o /dev/null true || \
	    $(CARGO) install --quiet --locked --root $(PEERS_ROOT) samply

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

# Whether nprof-diff raises no more false alarms than it says, and finds what it says: 25 comparisons
# of real programs with themselves, other rates and lengths, one function slower, and 15,600
# comparisons of simulated programs.
calibrate: setup
	$(CARGO) test --package nprof-diff --locked -- --ignored --nocapture simulated
	$(CARGO) test --package nprof-tests --test diff_real_runs --locked -- --ignored --nocapture --test-threads=1

# The experiments of the papers nprof comes from, with its peers beside it, then speeds and sizes:
# both put what they find into docs/measurements.md.
papers: peers
	PATH="$(BIN):$(PEERS_ROOT)/bin:$$PATH" tests/experiments/run

# perf needs minutes for the lines of what is inlined: more than two are not waited for.
bench: peers $(DEMO)/demo
	PERF_TIMEOUT=120 PATH="$(BIN):$(PEERS_ROOT)/bin:$$PATH" bench/run $(DEMO)/demo

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	mandoc -Tlint -Wwarning man/*.[157]

# Fuzzes what reads streams, and what reads images. RUSTC_BOOTSTRAP lets a stable compiler instrument code.
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	cd nprof-stream && for target in $$($(CARGO) fuzz list); do \
	    mkdir -p fuzz/corpus/$$target && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target \
	        fuzz/corpus/$$target ../tests/conformance/vectors/* -- -max_total_time=$(SECONDS) || exit; \
	done
	cd nprof-symbolize && mkdir -p fuzz/corpus/image && fuzz/seeds fuzz/corpus/image && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run image fuzz/corpus/image -- -max_total_time=$(SECONDS)

install: build install-files

# What was built, under DESTDIR; the tests install theirs by another BIN.
install-files:
	$(CARGO) run --quiet --locked --package nprof-tests --example completions -- \
	    $(BIN) $(COMPLETIONS)
	install -d $(DESTDIR)$(PREFIX)/bin
	install $(addprefix $(BIN)/,$(TOOLS)) $(DESTDIR)$(PREFIX)/bin
	for section in 1 5 7; do \
	    install -d $(SHARE)/man/man$$section && \
	    install -m 644 man/*.$$section $(SHARE)/man/man$$section || exit; \
	done
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
	    $(SHARE)/fish/vendor_completions.d
	for tool in $(TOOLS); do \
	    install -m 644 $(COMPLETIONS)/bash/$$tool.bash \
	        $(SHARE)/bash-completion/completions/$$tool || exit; \
	done
	install -m 644 $(COMPLETIONS)/zsh/_* $(SHARE)/zsh/site-functions
	install -m 644 $(COMPLETIONS)/fish/* $(SHARE)/fish/vendor_completions.d

clean:
	$(CARGO) clean
	rm -rf nprof-stream/fuzz/target nprof-symbolize/fuzz/target

.PHONY: all setup peers build demo test calibrate papers bench lint fuzz install install-files clean
