# Braid. `make help` lists the targets with their current settings.
BUILD     ?= build
SANITIZER ?=
OPT       ?= -O2
# x86-64-v3 (AVX2) where the machine has it: the same on all such machines, known to valgrind.
MARCH     ?= $(shell grep -qw avx2 /proc/cpuinfo && echo x86-64-v3 || echo x86-64-v2)
CC        ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
JOBS         ?= $(shell nproc)
TEST_SCALE   ?= 20
TEST_TIMEOUT ?= 600
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
BENCH        ?= *
comma := ,
# V=1 shows the commands.
Q   := $(if $(V),,@)
say  = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@printf '  %-4s %s\n' $(1) '$(2)')
# MUTATE=1: with the planted bugs of engine/mutate.h, for tests/faults/test_mutations.
MUTATE ?=
O := $(BUILD)$(if $(SANITIZER),/san-$(subst $(comma),-,$(SANITIZER)))$(if $(MUTATE),/mutate)

PKGS     := libuv jansson libxxhash libmicrohttpd zlib libcurl
CPPFLAGS += -I. -D_GNU_SOURCE $(if $(MUTATE),-DBRAID_MUTATE)
CFLAGS   += -std=c17 $(OPT) -g -march=$(MARCH) -ffp-contract=off -fno-math-errno -fno-semantic-interposition \
            -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith \
            -pthread -fno-omit-frame-pointer
CXXFLAGS += -std=c++17 $(OPT) -g -march=$(MARCH) -Wall -Wextra -Werror -pthread
LDLIBS   += $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -pthread
CPPFLAGS += $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
ifneq ($(SANITIZER),)
CFLAGS   += -fsanitize=$(SANITIZER) -fno-sanitize-recover=all -DBRAID_SANITIZED
LDFLAGS  += -fsanitize=$(SANITIZER)
endif
# The fuzz build is clang's, whose warnings differ: gcc is the one that decides.
FUZZING := $(findstring fuzzer,$(SANITIZER))
CFLAGS  += $(if $(FUZZING),-Wno-error)

# Debian packages: to build and run; to test; to lint, fuzz, measure and draw.
DEPS       := gcc libc6-dev pkg-config libuv1-dev libjansson-dev libxxhash-dev libmicrohttpd-dev zlib1g-dev \
              libcurl4-openssl-dev
DEPS_TEST  := libcmocka-dev libsqlite3-dev python3 locales tzdata
DEPS_DEV   := clang clang-format clang-tidy cppcheck g++ libsimdjson-dev graphviz mmdebstrap

LIB_SRC  := $(wildcard engine/*.c planner/*.c operators/*.c) $(filter-out cluster/main.c,$(wildcard cluster/*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(O)/%.o)
TEST_SRC := $(wildcard tests/unit/test_*.c)
TEST_BIN := $(TEST_SRC:tests/unit/%.c=$(O)/tests/%)
HELP_OBJ := $(patsubst %.c,$(O)/%.o,$(filter-out $(TEST_SRC),$(wildcard tests/unit/*.c)))
BENCH_SRC := $(wildcard tests/bench/bench_*.c tests/bench/bench_*.cc)
BENCH_BIN := $(sort $(patsubst tests/bench/%,$(O)/bench/%,$(basename $(BENCH_SRC))))
BENCH_HELP := $(patsubst %.c,$(O)/%.o,$(filter-out $(BENCH_SRC),$(wildcard tests/bench/*.c)))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(O)/fuzz/%)
# Each gen_X makes docs/X.md.
DOCS_BIN := $(patsubst %.c,$(O)/%,$(wildcard docs/gen_*.c))
# Tests that start threads, or use what does: these run under ThreadSanitizer too.
THREAD_TESTS = $(shell grep -lE 'pthread_|uv_thread|engine/(executor|log|log_local)\.h|log_suite|tests/unit/world\.h|cluster/(server|http)\.h' \
                 $(TEST_SRC) /dev/null | sed -E 's|.*/||; s|\.c$$||')
SCRIPTS  := $(wildcard tests/e2e/test_* tests/faults/test_*)
C_FILES   = $(shell git ls-files '*.c' '*.h' '*.cc')

.PHONY: all help deps deps-test deps-dev demo test test-run unit test-san test-locale bench fuzz soak lint lint-format lint-tidy \
        lint-cppcheck lint-clang-tidy fmt compdb docs fresh clean have-pkgs FORCE
all: $(O)/braid ## build build/braid (SANITIZER=address,undefined: build/san-address-undefined/braid)

help: ## this list
	@echo "Targets:"
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 | "sort" }' $(firstword $(MAKEFILE_LIST))
	@echo; echo "Settings (make NAME=VALUE ...):"
	@printf '  %-13s %s\n' BUILD '$(BUILD)' CC '$(CC)' OPT '$(OPT)' MARCH '$(MARCH)' SANITIZER '$(or $(SANITIZER),none)' \
	  JOBS '$(JOBS)' TEST_SCALE '$(TEST_SCALE) (percent of the iterations, sanitized runs)' \
	  TEST_TIMEOUT '$(TEST_TIMEOUT) (seconds a test program)' FUZZ_SECONDS '$(FUZZ_SECONDS) (a fuzz target)' \
	  SOAK_SECONDS '$(SOAK_SECONDS)' \
	  BENCH '$(BENCH) (which benchmarks: bench_NAME)'

# ---- dependencies: apt, only what is missing ----
missing = $(shell for p in $(1); do dpkg-query -W -f '$${db:Status-Status}\n' $$p 2>/dev/null | grep -qx installed || echo $$p; done)
define install
	@m="$(call missing,$(1))"; if [ -z "$$m" ]; then echo "deps: all of them are installed"; else \
	echo "deps: installing $$m"; s=; [ "$$(id -u)" = 0 ] || s=sudo; \
	{ $$s apt-get -qq update; $$s env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$m; } \
	>$(BUILD)/deps.log 2>&1 </dev/null || { tail -20 $(BUILD)/deps.log; exit 1; }; fi
endef
deps: | $(BUILD) ## install what building and running need (apt, only what is missing)
	$(call install,$(DEPS))
deps-test: | $(BUILD) ## the same and what the tests need, with a German locale
	$(call install,$(DEPS) $(DEPS_TEST))
	@$(MAKE) --no-print-directory $(BUILD)/locale/de_DE.UTF-8
deps-dev: deps-test ## the same and what lint, fuzz, bench and docs need
	$(call install,$(DEPS_DEV))
# A locale with a decimal comma, in a directory of ours: found through LOCPATH.
$(BUILD)/locale/de_DE.UTF-8: | $(BUILD)
	@mkdir -p $(@D)
	localedef -i de_DE -f UTF-8 $@
$(BUILD):
	@mkdir -p $@
have-pkgs:
	@pkg-config --exists $(PKGS) || { echo "Libraries are missing: run \`make deps\` first." >&2; exit 1; }

# ---- building ----
$(O)/braid: $(O)/cluster/main.o $(O)/libbraid.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(O)/libbraid.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $^
# Changed flags rebuild everything.
$(O)/flags: FORCE | have-pkgs
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS)' | cmp -s - $@ || \
	 echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS)' >$@
$(O)/%.o: %.c $(O)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(O)/cluster/openapi.o: cluster/openapi.json
$(O)/cluster/starter.o: $(wildcard dataflows/starters/*.json)
$(O)/%.cc.o: %.cc $(O)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<
$(O)/tests/%: $(O)/tests/unit/%.o $(HELP_OBJ) $(O)/libbraid.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(O)/docs/%: $(O)/docs/%.o $(O)/docs/page.o $(O)/libbraid.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(O)/tests/test_expr_oracle $(O)/tests/test_joins $(O)/tests/test_window_kinds: private LDLIBS += -lsqlite3
# bench_X is made of bench_X.c, of bench_X.cc (C++, linked with simdjson), or of both.
.SECONDEXPANSION:
cc_of = $(patsubst %,$(O)/%.o,$(wildcard tests/bench/$(1).cc))
c_of  = $(patsubst %.c,$(O)/%.o,$(wildcard tests/bench/$(1).c))
$(O)/bench/%: $$(call c_of,$$*) $$(call cc_of,$$*) $(BENCH_HELP) $(O)/libbraid.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(if $(filter %.cc.o,$^),$(CXX),$(CC)) $(LDFLAGS) -o $@ $^ $(if $(filter %.cc.o,$^),-lsimdjson) $(LDLIBS)
$(O)/soak/%: $(O)/tests/soak/%.o $(O)/libbraid.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# A fuzz target: with libFuzzer under clang (see `fuzz`), else with a driver that runs files.
$(O)/fuzz/%: $(O)/tests/fuzz/%.o $(if $(FUZZING),,$(O)/tests/fuzz/driver.o) $(O)/libbraid.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(subst fuzzer-no-link,fuzzer,$(LDFLAGS)) -o $@ $^ $(LDLIBS)

# ---- running ----
demo: ## install, build, and see Braid share work between dataflows (under two minutes after the installs)
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) all >$(BUILD)/demo-build.log 2>&1 || { tail -20 $(BUILD)/demo-build.log; exit 1; }
	@tests/e2e/demo $(BUILD)/braid

# ---- testing ----
SAN  := $(BUILD)/san-address-undefined
TSAN := $(BUILD)/san-thread
names = $(TEST_BIN:$(O)/%=%) $(FUZZ_BIN:$(O)/%=%)
test: ## install, build and run all tests; ends in `N passed, N failed, N skipped`
	@$(MAKE) --no-print-directory deps-test
	@$(MAKE) --no-print-directory test-run
test-run: ## the same without installing
	@echo "building ..."
	@$(MAKE) -s -j$(JOBS) all $(TEST_BIN) $(FUZZ_BIN) $(DOCS_BIN)
	@$(MAKE) -s -j$(JOBS) SANITIZER=address,undefined $(names:%=$(SAN)/%)
	@$(if $(THREAD_TESTS),$(MAKE) -s -j$(JOBS) SANITIZER=thread $(THREAD_TESTS:%=$(TSAN)/tests/%))
	@$(MAKE) -s -j$(JOBS) MUTATE=1 $(BUILD)/mutate/tests/test_equiv
	@$(RUNNER) tidy:tests/tidy tidy:tests/selftest $(DOCS_BIN:%=docs:%) $(TEST_BIN:%=unit:%) $(TEST_BIN:%=locale:%) $(FUZZ_BIN:%=corpus:%) \
	  $(names:%=asan:$(SAN)/%) $(THREAD_TESTS:%=tsan:$(TSAN)/tests/%) $(SCRIPTS:%=script:%)
RUNNER = tests/run --build $(BUILD) --jobs $(JOBS) --timeout $(TEST_TIMEOUT) --scale $(TEST_SCALE)
unit: $(TEST_BIN) ## the unit tests alone, as they are built now
	@$(RUNNER) $(TEST_BIN:%=unit:%)
test-locale: all $(TEST_BIN) $(BUILD)/locale/de_DE.UTF-8 ## unit and end-to-end tests under de_DE.UTF-8 and Asia/Kathmandu
	@$(RUNNER) $(TEST_BIN:%=locale:%) $(patsubst %,locale-script:%,$(wildcard tests/e2e/test_*))
test-san: ## the unit tests and fuzz corpora under all sanitizers with all iterations
	@$(MAKE) -s -j$(JOBS) SANITIZER=address,undefined $(names:%=$(SAN)/%)
	@$(if $(THREAD_TESTS),$(MAKE) -s -j$(JOBS) SANITIZER=thread $(THREAD_TESTS:%=$(TSAN)/tests/%))
	@$(RUNNER) --scale 100 $(names:%=asan:$(SAN)/%) $(THREAD_TESTS:%=tsan:$(TSAN)/tests/%)

# ---- measuring and fuzzing ----
bench: ## measure; a table, and build/bench/results.tsv (BENCH=decode: bench_decode only)
	@$(MAKE) --no-print-directory deps-dev >/dev/null
	@$(MAKE) -s -j$(JOBS) all $(filter $(BENCH:%=$(O)/bench/bench_%) $(if $(filter *,$(BENCH)),%),$(BENCH_BIN))
	@tests/bench/run $(O) $(filter $(BENCH:%=$(O)/bench/bench_%) $(if $(filter *,$(BENCH)),%),$(BENCH_BIN))
FUZZER := fuzzer-no-link,address,undefined
FUZZ_O := $(BUILD)/san-$(subst $(comma),-,$(FUZZER))
fuzz: ## run every fuzz target under libFuzzer for FUZZ_SECONDS; crashes stay in build/fuzz
	@$(MAKE) --no-print-directory deps-dev >/dev/null
	@$(MAKE) -s -j$(JOBS) CC=clang SANITIZER=$(FUZZER) $(FUZZ_SRC:tests/fuzz/%.c=$(FUZZ_O)/fuzz/%)
	@tests/fuzz/run $(BUILD) $(FUZZ_SECONDS) $(JOBS) $(FUZZ_SRC:tests/fuzz/%.c=$(FUZZ_O)/fuzz/%)
soak: all $(O)/soak/state_keys ## a server under constant change for SOAK_SECONDS, watched for growth and loss
	@SOAK_SECONDS=$(SOAK_SECONDS) tests/soak/soak $(O)
fresh: ## `make demo` and `make test` in a bare Debian 12 (mmdebstrap; needs root)
	@$(MAKE) --no-print-directory deps-dev >/dev/null
	@tests/fresh $(BUILD)/fresh

# ---- looking after the code ----
lint: deps-dev ## clang-format, the tidy test, cppcheck and clang-tidy
	@$(MAKE) -k -j$(JOBS) --no-print-directory lint-format lint-tidy lint-cppcheck lint-clang-tidy
lint-format:
	@clang-format --dry-run -Werror $(C_FILES) && echo "clang-format: ok"
lint-tidy:
	@tests/tidy >$(BUILD)/tidy.log && echo "tidy: ok" || { grep -v ^ok $(BUILD)/tidy.log; exit 1; }
# Suppressed where they are wrong, no wider: sizeof of a pointer that is meant (a list through free
# memory); right shifts of negative numbers, which gcc and clang define; bounds written as hexadecimal
# floats, which cppcheck misreads; cells of columns reached by byte pointers; what a callee fills.
CPPCHECK_SKIP := pointerSize:engine/state.c shiftNegativeLHS:engine/num.c uninitvar:engine/committer.c \
  invalidPointerCast:operators/window_acc.c ctuuninitvar:tests/bench/bench_engine.c \
  $(addprefix incorrectLogicOperator:,engine/expr_func.c engine/expr_node.c engine/sbuf.c engine/record.c)
lint-cppcheck:
	@mkdir -p $(O)/cppcheck
	@cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	  --cppcheck-build-dir=$(O)/cppcheck --suppress=missingIncludeSystem \
	  $(CPPCHECK_SKIP:%=--suppress=%) -I. -D_GNU_SOURCE $(LINTED) && echo "cppcheck: ok"
LINTED = $(LIB_SRC) $(wildcard cluster/main.c tests/bench/*.c tests/fuzz/*.c docs/*.c)
lint-clang-tidy: $(LINTED:%.c=$(O)/lint/%.ok)
	@echo "clang-tidy: ok"
# `if ((rc = f()) < 0)` is how we write it, whether rc is read again or not.
ANALYZER := -analyzer-config deadcode.DeadStores:WarnForDeadNestedAssignments=false
# As fresh as the object, so that a changed header counts.
$(O)/lint/%.ok: %.c $(O)/%.o .clang-tidy
	@mkdir -p $(@D)
	$(call say,TIDY,$<)
	@clang-tidy -quiet $(ANALYZER:%=--extra-arg=-Xclang --extra-arg=%) $< -- $(CPPFLAGS) $(filter-out -Werror -fno-semantic-interposition,$(CFLAGS)) >$(@:.ok=.log) 2>&1 || \
	  { grep -v 'warnings generated' $(@:.ok=.log); exit 1; }
	@touch $@
fmt: ## format the code
	clang-format -i $(C_FILES)
docs: $(DOCS_BIN) $(O)/braid ## docs/operators.md and spec.md from the parsers' tables, docs/cli.md and braid.1 from the commands
	$(foreach g,$(DOCS_BIN),$(g) docs/$(g:$(O)/docs/gen_%=%).md && ) true
	$(O)/braid help --markdown >docs/cli.md
	$(O)/braid help --man >docs/braid.1
compdb: ## compile_commands.json for editors
	@{ echo '['; for f in $(filter %.c,$(C_FILES)); do [ -z "$$n" ] || echo ','; n=1; \
	  printf '{"directory":"%s","file":"%s","command":"%s"}' '$(CURDIR)' "$$f" '$(CC) $(CPPFLAGS) $(CFLAGS) -c '"$$f"; \
	  done; echo; echo ']'; } >compile_commands.json
clean: ## remove what was built
	rm -rf $(BUILD) compile_commands.json
FORCE:
.SECONDARY:
-include $(foreach d,engine planner operators cluster docs tests/unit tests/bench tests/fuzz tests/soak,$(wildcard $(O)/$(d)/*.d))
