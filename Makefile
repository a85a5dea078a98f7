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
O := $(BUILD)$(if $(SANITIZER),/san-$(subst $(comma),-,$(SANITIZER)))
comma := ,

PKGS     := libuv jansson libxxhash libmicrohttpd zlib liblz4 libcurl
CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS   += -std=c17 $(OPT) -g -march=$(MARCH) -ffp-contract=off -fno-math-errno -fno-semantic-interposition \
            -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith \
            -pthread -fno-omit-frame-pointer
LDLIBS   += $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -pthread
CPPFLAGS += $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
ifneq ($(SANITIZER),)
CFLAGS   += -fsanitize=$(SANITIZER) -fno-sanitize-recover=all -DBRAID_SANITIZED
LDFLAGS  += -fsanitize=$(SANITIZER)
endif

LIB_SRC  := $(wildcard engine/*.c planner/*.c operators/*.c) $(filter-out cluster/main.c,$(wildcard cluster/*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(O)/%.o)
TEST_SRC := $(wildcard tests/unit/test_*.c)
TEST_BIN := $(TEST_SRC:tests/unit/%.c=$(O)/tests/%)
HELP_OBJ := $(patsubst %.c,$(O)/%.o,$(filter-out $(TEST_SRC),$(wildcard tests/unit/*.c)))
BENCH_BIN := $(patsubst tests/bench/%.c,$(O)/bench/%,$(wildcard tests/bench/bench_*.c))

.PHONY: all test unit clean
all: $(O)/braid
$(O)/braid: $(O)/cluster/main.o $(O)/libbraid.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(O)/libbraid.a: $(LIB_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(O)/tests/%: $(O)/tests/unit/%.o $(HELP_OBJ) $(O)/libbraid.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(O)/bench/%: $(O)/tests/bench/%.o $(O)/libbraid.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
unit: $(TEST_BIN)
	@set -e; for t in $(TEST_BIN); do echo "== $$t"; $$t; done
clean:
	rm -rf $(BUILD)
.SECONDARY:
-include $(shell find $(O) -name '*.d' 2>/dev/null)
