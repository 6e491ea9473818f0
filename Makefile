# ppsplit: one non-recursive Makefile.  make | make check | make bench | make layers | make help
CC       ?= cc
CFLAGS   ?= -O2 -g
BUILD    ?= build
PREFIX   ?= /usr/local
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wformat=2 -Wundef \
            -Wvla -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wimplicit-fallthrough -Wnull-dereference
ifdef CI
WARN     += -Werror
endif
PKGS     := libprotobuf-c libxml-2.0
CPPFLAGS += -D_GNU_SOURCE -I$(BUILD) $(shell pkg-config --cflags $(PKGS))
LDLIBS   += $(shell pkg-config --libs $(PKGS)) -lm
BASE     := -std=c11 -ffp-contract=off $(CFLAGS) $(CPPFLAGS) -MMD -MP

# The compiler: every .c of its folders, and of the runtime what it shares (schedules, safetensors).
COMPILER := $(wildcard frontend/*.c partition/*.c autodiff/*.c codegen/*.c) $(wildcard runtime/sched*.c runtime/safetensors.c runtime/npy.c)
OBJ      := $(COMPILER:%.c=$(BUILD)/%.o) $(BUILD)/onnx.pb-c.o

all: $(BUILD)/ppsplit

$(BUILD)/ppsplit: $(BUILD)/ppsplit.o $(BUILD)/libppsplit.a
	@echo "  LD      $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libppsplit.a: $(OBJ)
	@echo "  AR      $@"
	$(Q)rm -f $@ && ar rcsD $@ $^

$(BUILD)/%.o: %.c | $(BUILD)/onnx.pb-c.h
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(BASE) $(WARN) -c -o $@ $<

$(BUILD)/onnx.pb-c.h: frontend/onnx.proto
	@mkdir -p $(@D)
	@echo "  PROTOC  $<"
	$(Q)protoc-c --proto_path=frontend --c_out=$(BUILD) onnx.proto

$(BUILD)/onnx.pb-c.o: $(BUILD)/onnx.pb-c.h
	@echo "  CC      $(BUILD)/onnx.pb-c.c"
	$(Q)$(CC) $(BASE) -c -o $@ $(BUILD)/onnx.pb-c.c

# Unit tests: tests/test_NAME.c, each a TAP program linked with the whole compiler; tests/NAME.t are TAP scripts.
TESTS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
$(BUILD)/tests/%: tests/%.c $(BUILD)/libppsplit.a
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(BASE) $(WARN) -o $@ $< $(BUILD)/libppsplit.a $(LDFLAGS) $(LDLIBS) $(TESTLIBS)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: all clean
clean:
	rm -rf $(BUILD)
