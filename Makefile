# ppsplit: one non-recursive Makefile.  make, make check, make bench ...; `make help` lists the goals.
CC       ?= cc
CFLAGS   ?= -O2$(if $(CI),, -g)
BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
VERSION  := $(shell sed -n 's/.*PPSPLIT_VERSION "\(.*\)"/\1/p' base/cli/version.h)
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)
say       = $(if $(findstring s,$(firstword -$(MAKEFLAGS))),,@echo "  $(1)	$(2)")

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wformat=2 -Wundef \
            -Wvla -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wimplicit-fallthrough -Wnull-dereference
ifdef CI
WARN     += -Werror
endif
PKGS     := libprotobuf-c
CPPFLAGS += -D_GNU_SOURCE -I. -I$(BUILD) $(shell pkg-config --cflags $(PKGS))
LDLIBS   += $(shell pkg-config --libs $(PKGS)) -lm
BASE     := -std=c11 -ffp-contract=off $(CFLAGS) $(CPPFLAGS) -MMD -MP

# ---- the compiler: every .c of its folders, and what it shares with the runtime ----

ROOMS    := base ir frontend mesh partition autodiff codegen schedule runtime report planner annotate
sources   = $(sort $(foreach r,$(1),$(wildcard $(r)/*.$(2) $(r)/*/*.$(2) $(r)/*/*/*.$(2))))
# What plans a rank's memory is the runtime's; planner/ asks it.
PLANS    := $(wildcard runtime/plan/*.c runtime/core/*.c) runtime/optim/registry.c runtime/device/cpu/conv_shape.c
COMPILER := $(call sources,$(filter-out runtime,$(ROOMS)),c) $(PLANS)
COMMAND  := ppsplit.c $(sort $(wildcard command/*.c))
OBJ      := $(COMPILER:%.c=$(BUILD)/%.o) $(BUILD)/onnx.pb-c.o $(BUILD)/embed.o
# The runtime's sources, the rooms it stands on, the output's Makefile and its launcher travel inside the compiler, as a table that output.c writes into out/.
RUNTIME  := $(foreach e,c h def cu sh,$(call sources,runtime,$(e)) $(filter-out schedule/tool/%,$(call sources,schedule,$(e))) $(wildcard base/file/*.$(e) base/cli/*.$(e)))

all: $(BUILD)/ppsplit $(BUILD)/handed/lib/libppruntime.a

$(BUILD)/ppsplit: $(COMMAND:%.c=$(BUILD)/%.o) $(BUILD)/libppsplit.a
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libppsplit.a: $(OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcsD $@ $^

IN_OUTPUT := codegen/write/pipeline.mk codegen/write/run.sh partition/print/pipe.xsd
$(BUILD)/embed.o: codegen/write/embed.sh $(IN_OUTPUT) $(RUNTIME)
	@mkdir -p $(@D)
	$(call say,EMBED,$@)
	$(Q)codegen/write/embed.sh $(VERSION) $(IN_OUTPUT) $(RUNTIME) > $(BUILD)/embed.c
	$(Q)$(CC) -std=c11 -I. $(CFLAGS) -c -o $@ $(BUILD)/embed.c

# The runtime as generated programs build it, without optional libraries: its own tests link it.
OWN      := $(patsubst %.c,$(BUILD)/runtime.o/%.o,$(filter %.c,$(RUNTIME)))
$(BUILD)/libppruntime.a: $(OWN)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcsD $@ $^
$(BUILD)/runtime.o/%.o: WARN += -Wno-unknown-pragmas
$(BUILD)/runtime.o/%.o: BASE += -fwrapv -Iruntime
$(BUILD)/runtime.o/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) $(WARN) -c -o $@ $<

$(PLANS:%.c=$(BUILD)/%.o): BASE += -fwrapv
$(PLANS:%.c=$(BUILD)/%.o) $(patsubst %.c,$(BUILD)/%.o,$(wildcard planner/*.c)): BASE += -Iruntime
$(BUILD)/%.o: %.c | $(BUILD)/onnx.pb-c.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) $(WARN) -c -o $@ $<

$(BUILD)/onnx.pb-c.h: frontend/onnx/onnx.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)
	$(Q)protoc-c --proto_path=frontend/onnx --c_out=$(BUILD) onnx.proto

$(BUILD)/onnx.pb-c.o: $(BUILD)/onnx.pb-c.h
	$(call say,CC,$(BUILD)/onnx.pb-c.c)
	$(Q)$(CC) $(BASE) -c -o $@ $(BUILD)/onnx.pb-c.c

# ---- tests: tests/ROOM/test_NAME.c are TAP programs linked with the compiler and the runtime, tests/ROOM/NAME.t TAP scripts ----

UNIT     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/*/test_*.c))
UNIT     := $(filter-out $(if $(shell pkg-config --exists libxml-2.0 && echo yes),,%/test_partition),$(UNIT))
TOOLS    := $(BUILD)/tests/tools/compare $(BUILD)/tests/tools/fuzz_nets $(BUILD)/tests/tools/fuzz_lengths $(BUILD)/tests/tools/hostile $(BUILD)/tests/tools/rename $(BUILD)/tests/tools/onnx_backend $(BUILD)/tests/tools/peaks $(BUILD)/tests/tools/count_alloc.so $(BUILD)/tests/faults/inject $(BUILD)/tests/faults/fail_alloc.so $(BUILD)/models/make_gpt $(BUILD)/models/make_tokens
LONG     := $(addprefix tests/,whole/sanitize.t planner/plan.t codegen/compilers.t whole/shim.t runtime/test_cuda_lib.t codegen/nvcc.t \
            codegen/codegen_cuda.t whole/fuzz.t runtime/watchdog.t runtime/gemm.t runtime/device.t whole/models.t whole/docs.t \
            frontend/frontend.t known/known.t schedule/schedules.t runtime/recompute.t whole/lengths.t whole/gpu.t whole/lengths_cuda.t \
            whole/contributing.t frontend/errors.t frontend/exporters.t whole/library.t whole/test_cuda_shim.t runtime/run.t runtime/members.t \
            whole/install.t codegen/makefile.t runtime/memory.t)
SCRIPTS  := $(LONG) $(filter-out $(LONG),$(sort $(wildcard tests/*/*.t)))     # several at a time: the long ones are not left for the end

# Tests without optimization, which the compiler does in a third of the time: their own time goes to what they call.  Those of the runtime have loops
# of their own, to compare with.
ORACLE   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/share/oracle/*.c))
$(ORACLE): BASE += -Iruntime -fwrapv
$(BUILD)/liboracle.a: $(ORACLE)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcsD $@ $^
$(BUILD)/tests/%: tests/%.c $(BUILD)/liboracle.a $(BUILD)/libppsplit.a $(BUILD)/libppruntime.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(if $(findstring /test_,$@),$(BASE:-O2=$(if $(findstring /runtime/,$@),-O1,-O0)),$(BASE)) -Iruntime -Itests -Itests/share -fwrapv $(WARN) -o $@ $< $(filter %.o,$^) $(BUILD)/liboracle.a $(BUILD)/libppsplit.a $(BUILD)/libppruntime.a $(LDFLAGS) $(LDLIBS) -lpthread

# The report is checked against its schema.
$(BUILD)/tests/partition/test_partition: BASE += $(shell pkg-config --cflags libxml-2.0)
$(BUILD)/tests/partition/test_partition: LDLIBS += $(shell pkg-config --libs libxml-2.0)

# It takes the options of ppsplit.
$(BUILD)/tests/tools/peaks: $(patsubst command/%.c,$(BUILD)/command/%.o,$(wildcard command/*.c))

$(BUILD)/tests/%.so: tests/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O1 $(WARN) -fPIC -shared -o $@ $< -ldl

$(BUILD)/models/%: models/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) $(WARN) -o $@ $< $(LDFLAGS) -lm

tools: $(TOOLS)

# Scripts build many generated programs: they share the runtime's objects (tests/lib.sh), optimized, for these run in many; stages are not.
PIPELINE_CFLAGS ?= -O1
FIRST    := $(BUILD)/tests/first
SHARED    = RUNTIME=$(abspath $(FIRST)/runtime) RUNTIME_BUILD=$(abspath $(BUILD)/tests/objects) CFLAGS='$(PIPELINE_CFLAGS)' LDFLAGS='$(PIPELINE_CFLAGS)'
# What stages for GPUs include is half of the time in which one is compiled: with the shim's checks, and without.
DEVICE_H := $(FIRST)/runtime/api/pp_device.h
$(BUILD)/tests/objects/made: $(BUILD)/ppsplit $(RUNTIME) codegen/write/pipeline.mk $(BUILD)/cuda_shim/libshim.a
	@mkdir -p $(@D)
	@rm -rf $(DEVICE_H).gch
	$(Q)$(BUILD)/ppsplit -q models/doc-ts/model.onnx --split layers.1:begin --loss cross_entropy --target cpu --target cuda -o $(FIRST)
	$(Q)$(MAKE) -C $(FIRST) pipeline $(SHARED)
	$(Q)! command -v $(CXX) >/dev/null || for check in 1 0; do \
	    $(MAKE) -s -C $(FIRST) pipeline-shim CHECK=$$check SHIM=$(abspath tests/cuda_shim) O=$(abspath $(BUILD)/cuda_shim) \
	        SHIMFLAGS='-O1 -g0 -Wall -Wextra -Werror' STAGE_CFLAGS=-O0 $(SHARED) || exit; done
	@mkdir $(DEVICE_H).gch
	$(Q)! command -v $(CXX) >/dev/null || for how in shim shim.plain; do \
	    $$(sed 's/-x c++/&-header/' $(FIRST)/build/flags/$$how) -o $(DEVICE_H).gch/$$how $(DEVICE_H) || exit; done
	@echo '$(CC)' >$@

# Tests that compile stages themselves (tests/share/stage_run.h) load parts of the runtime, and those for GPUs under the CUDA shim.
STANDS_ALONE := -Wno-unknown-pragmas -fPIC -ffp-contract=off -I. -Iruntime -Iruntime/api
DEVICE   := tests/share/stage_device.cu $(wildcard runtime/device/cuda/*.cu)
DEVICE   := $(filter-out %/device_cuda.cu,$(DEVICE))
$(BUILD)/tests/libpp.so: tests/share/hook.c runtime/device/cpu/gemm.c runtime/device/cpu/gemm_half.c runtime/device/cpu/product.c runtime/device/cpu/attention.c runtime/device/cpu/conv.c runtime/device/cpu/conv_shape.c runtime/device/cpu/conv_winograd.c $(call sources,runtime,h)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 -O1 $(STANDS_ALONE) -shared -o $@ $(filter %.c,$^) -lm
$(BUILD)/tests/device/%.o: %.cu $(call sources,runtime,h) $(wildcard tests/cuda_shim/*.h)
	@mkdir -p $(@D)
	$(call say,SHIM,$<)
	$(Q)$(CXX) -x c++ -std=c++17 -O1 $(STANDS_ALONE) -Itests/cuda_shim -c -o $@ $<
$(BUILD)/tests/libdevice.so: $(DEVICE:%.cu=$(BUILD)/tests/device/%.o) $(BUILD)/cuda_shim/libshim.a $(BUILD)/tests/libpp.so
	$(call say,LD,$@)
	$(Q)$(CXX) -shared -o $@ $(filter %.o,$^) -Wl,--whole-archive $(BUILD)/cuda_shim/libshim.a -Wl,--no-whole-archive $(abspath $(BUILD)/tests/libpp.so) -lpthread
$(BUILD)/cuda_shim/libshim.a: $(wildcard tests/cuda_shim/*)
	@mkdir -p $(@D)
	$(call say,SHIM,$@)
	$(Q)! command -v $(CXX) >/dev/null || $(MAKE) -s -f tests/cuda_shim/shim.mk O=$(@D)

$(UNIT): | $(BUILD)/tests/libpp.so $(if $(shell command -v $(CXX)),$(BUILD)/tests/libdevice.so)
# On two cores three at a time: for a fifth of its time one waits, for another process or for seconds to pass.
check: $(BUILD)/ppsplit tools $(UNIT) $(BUILD)/tests/objects/made
	$(Q)$(MAKE) -s layers
	$(Q)BUILD=$(BUILD) PIPELINE_CFLAGS='$(PIPELINE_CFLAGS)' prove -j3 --timer --exec 'timeout -k 10 1500' $(UNIT) $(SCRIPTS)

# ---- other goals ----

# What clangd and other editors' servers read: the command of each source of the compiler and the runtime, as make would run it.
compile_commands.json: $(BUILD)/onnx.pb-c.h Makefile
	$(call say,WRITE,$@)
	$(Q){ echo '['; sep=; for f in $(COMMAND) $(COMPILER) $(filter %.c,$(filter-out $(COMPILER),$(RUNTIME))); do \
	    case $$f in runtime/*) more='-fwrapv -Iruntime' ;; planner/*) more=-Iruntime ;; *) more= ;; esac; \
	    printf '%s{"directory": "%s", "file": "%s", "command": "%s"}' "$$sep" '$(CURDIR)' "$$f" \
	        '$(CC) $(filter-out -MMD -MP,$(BASE)) '"$$more"' $(WARN) -c '"$$f"; sep=",$$(printf '\nx')"; sep=$${sep%x}; \
	  done; echo; echo ']'; } >$@.tmp && mv $@.tmp $@

bench: all tools
	$(Q)BUILD=$(BUILD) tests/bench/compile
	$(Q)BUILD=$(BUILD) tests/bench/run
	$(Q)BUILD=$(BUILD) tests/bench/cuts
	$(Q)BUILD=$(BUILD) tests/bench/schedules
	$(Q)BUILD=$(BUILD) tests/bench/predict
	$(Q)BUILD=$(BUILD) tests/bench/conv
	$(Q)BUILD=$(BUILD) tests/bench/tensor
	$(Q)BUILD=$(BUILD) tests/bench/lengths

demo: all tools
	$(Q)BUILD=$(BUILD) models/demo

# The table of operators; CASES: of what tests/frontend/onnx_cases.py has written, the counts too.
operators: $(BUILD)/ppsplit $(BUILD)/tests/tools/onnx_backend
	$(Q)test -z "$(CASES)" || tests/operators $< --count $(BUILD)/tests/tools/onnx_backend $(CASES)
	$(Q)tests/operators $< > docs/operators.md

# Random graphs in every way there is to compute them, from seed FROM on: what fails is reduced and kept in tests/nets.
FROM     ?= 1000000
COUNT    ?= 100000
# Pipeline bugs that others' users have reported: every cut under every schedule; and such errors in what ppsplit writes: what catches each.
known: all tools $(BUILD)/tests/objects/made
	$(Q)KNOWN=all BUILD=$(BUILD) PIPELINE_CFLAGS='$(PIPELINE_CFLAGS)' tests/known/known.t && KNOWN=all BUILD=$(BUILD) PIPELINE_CFLAGS='$(PIPELINE_CFLAGS)' tests/known/mutants.t

fuzz-nets: $(BUILD)/tests/tools/fuzz_nets
	$(Q)$< --keep tests/nets --from $(FROM) --count $(COUNT)
	$(Q)$< --compiled --keep tests/nets --batch 25 --from $(FROM) --count $$(( $(COUNT) / 10 ))
	$(Q)! command -v $(CXX) >/dev/null || $< --device --keep tests/nets --batch 10 --from $(FROM) --count $$(( $(COUNT) / 1000 ))

# Random models over random meshes, schedules and options, bit for bit as unsplit.
fuzz-mesh: COUNT = 1000
fuzz-mesh: all tools $(BUILD)/tests/objects/made
	$(Q)BUILD=$(BUILD) PIPELINE_CFLAGS='$(PIPELINE_CFLAGS)' tests/fuzz/mesh $(FROM) $(COUNT)

# Random models of any length, bit for bit as bound to some.
fuzz-lengths: COUNT = 1000
fuzz-lengths: all tools $(BUILD)/tests/objects/made
	$(Q)BUILD=$(BUILD) PIPELINE_CFLAGS='$(PIPELINE_CFLAGS)' tests/fuzz/lengths $(FROM) $(COUNT)

# Bytes that others wrote, to all that reads them, under sanitizers: with libFuzzer where clang has it, else with mutations of our own.
# TARGETS="import csv" (default: all), then graphs drawn at random through the compiler, under the same sanitizers: in all FUZZ_SECONDS.
FUZZ_SECONDS ?= 600
FUZZ     := $(BUILD)/fuzz
SANE     := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_CC  := $(if $(shell echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return p && n > 1 << 30; }' | \
              clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null && echo yes),clang)
fuzz: all tools
	$(Q)$(MAKE) -s BUILD=$(FUZZ) CC=$(or $(FUZZ_CC),$(CC)) CFLAGS='$(SANE)$(if $(FUZZ_CC), -fsanitize=fuzzer-no-link)' $(FUZZ)/$(if $(FUZZ_CC),fuzz_bytes,drive) $(FUZZ)/tests/tools/fuzz_nets
	$(Q)FROM=$(FROM) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run $(abspath $(BUILD)) $(abspath $(FUZZ)) $(TARGETS)

# Everything that may fail does, once: 1,000 system calls, every allocation of ten models, processes that are killed, and ranks as threads under
# ThreadSanitizer; in about FAULTS_SECONDS, of what takes longer an even part (FAULTS_SECONDS= : all of it, for hours).
FAULTS_SECONDS ?= 600
LASTS = BUILD=$(BUILD) SECONDS_MOST=$(if $(FAULTS_SECONDS),$$(( $(FAULTS_SECONDS) * $(1) / 10 )))
faults: all tools $(BUILD)/tests/objects/made
	$(Q)failed=0; \
	$(call LASTS,4) COUNT=600 tests/faults/outputs.t >$(BUILD)/faults.log & beside=$$!; \
	$(call LASTS,4) COUNT=450 KILLS=100 tests/faults/checkpoints.t || failed=1; \
	wait $$beside || failed=1; cat $(BUILD)/faults.log; \
	$(call LASTS,5) COUNT=1000000 MODELS=10 tests/faults/allocations.t || failed=1; \
	$(call LASTS,1) tests/faults/threads || failed=1; exit $$failed

FUZZED    = $(CC) $(BASE) -Itests -Itests/share $(WARN) -o $@ $(filter %.c,$^) $(BUILD)/libppsplit.a $(LDFLAGS) $(LDLIBS)
$(BUILD)/fuzz_bytes: tests/fuzz/fuzz_bytes.c $(BUILD)/libppsplit.a
	$(call say,CC,$<)
	$(Q)$(FUZZED) -fsanitize=fuzzer
$(BUILD)/drive: tests/fuzz/drive.c tests/fuzz/fuzz_bytes.c $(BUILD)/libppsplit.a
	$(call say,CC,$<)
	$(Q)$(FUZZED)

# No file may include from a room above its own: base < ir < frontend < partition < autodiff < codegen, and base < schedule < runtime;
# report/, planner/ and annotate/ stand on both.  Includes are looked at before anything is compiled.
layers:
	$(Q)tests/layers $(call sources,$(ROOMS) command,c) $(call sources,$(ROOMS) command,h) $(call sources,runtime,cu)
	$(Q)$(MAKE) -s $(OBJ) $(OWN)
	$(Q)tests/circles $(OBJ)
	$(Q)tests/circles $(OWN)

sanitize:
	$(Q)SANITIZED=1 ASAN_OPTIONS=detect_leaks=0 $(MAKE) check BUILD=$(BUILD)/sanitize \
	    CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
	    PIPELINE_CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"

clang:
	$(Q)$(MAKE) all tools BUILD=$(BUILD)/clang CC=clang CI=1

coverage:
	$(Q)$(MAKE) check BUILD=$(BUILD)/coverage CFLAGS="-O0 -g --coverage"
	$(Q)cd $(BUILD)/coverage && gcov -n $$(find . -name '*.gcda') 2>/dev/null | grep -A1 "^File '\(base\|ir\|frontend\|partition\|autodiff\|codegen\|schedule\|runtime\|report\)" || true

format:
	$(Q)clang-format -i $(wildcard *.c) $(call sources,$(ROOMS) command tests,[ch])

# What a linter says, where there is one, without what it misreads (hexadecimal numbers, lists on the stack), and functions that nobody calls.
MISREAD  := uninitvar uninitStructMember autoVariables compareBoolExpressionWithInt internalAstError zerodivcond incorrectLogicOperator ctunullpointer
lint:
	$(Q)! command -v cppcheck >/dev/null || cppcheck --quiet --std=c11 --enable=warning,portability $(addprefix --suppress=,$(MISREAD)) -I. -I$(BUILD) $(filter-out $(PLANS),$(COMPILER))
	$(Q)$(MAKE) -s BUILD=$(BUILD)/lint CFLAGS='-O0 -ffunction-sections' $(BUILD)/lint/ppsplit $(BUILD)/lint/libppruntime.a
	$(Q)CC='$(CC)' tests/dead $(BUILD)/lint

# The library's headers: ppsplit.h and what it includes.
PUBLIC    = $(filter %.h %.def,$(shell $(CC) -MM -I. ppsplit.h))

# The runtime as outputs compile it, for all of them to link: with what this machine has, for ARCH= (native).
$(BUILD)/installed/Makefile: $(BUILD)/ppsplit
	$(Q)$(BUILD)/ppsplit -q models/doc-ts/model.onnx -o $(@D)
	@touch $@

# Beside build/ppsplit, which hands it over to the outputs that it writes: they compile their stages only.
$(BUILD)/handed/lib/libppruntime.a: $(RUNTIME) codegen/write/pipeline.mk | $(BUILD)/installed/Makefile
	$(call say,RUNTIME,$@)
	$(Q)$(BUILD)/ppsplit -q models/doc-ts/model.onnx -o $(BUILD)/installed
	$(Q)+env -u CFLAGS $(MAKE) -s -C $(BUILD)/installed install-runtime PPSPLIT_RUNTIME=own PREFIX=$(abspath $(BUILD)/handed) DESTDIR=

# The command with its manual and completions, and the compiler as a library.
SHARE    := $(PREFIX)/share
DOCS     := README.md CHANGELOG.md LICENSE $(wildcard docs/*.md docs/*.svg docs/*.png docs/cluster/*)
install-compiler: $(BUILD)/ppsplit
	install -Dm755 $(BUILD)/ppsplit $(DESTDIR)$(PREFIX)/bin/ppsplit
	install -Dm755 tools/ppsplit-export $(DESTDIR)$(PREFIX)/bin/ppsplit-export
	for f in ppsplit ppsplit-export; do install -Dm644 docs/$$f.1 $(DESTDIR)$(PREFIX)/share/man/man1/$$f.1 || exit; done
	for f in $(DOCS); do install -Dm644 $$f $(DESTDIR)$(SHARE)/doc/ppsplit/$$f || exit; done
	for f in machines/*; do install -Dm644 $$f $(DESTDIR)$(SHARE)/ppsplit/$$f || exit; done
	install -Dm755 docs/completions/complete.sh $(DESTDIR)$(SHARE)/ppsplit/complete.sh
	install -d $(addprefix $(DESTDIR)$(SHARE)/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	sed 's|@PREFIX@|$(PREFIX)|' docs/completions/ppsplit.bash > $(DESTDIR)$(SHARE)/bash-completion/completions/ppsplit
	sed 's|@PREFIX@|$(PREFIX)|' docs/completions/_ppsplit > $(DESTDIR)$(SHARE)/zsh/site-functions/_ppsplit
	sed 's|@PREFIX@|$(PREFIX)|' docs/completions/ppsplit.fish > $(DESTDIR)$(SHARE)/fish/vendor_completions.d/ppsplit.fish
	for p in pipeline pipeline-cuda; do \
	    ln -sf ppsplit $(DESTDIR)$(SHARE)/bash-completion/completions/$$p && \
	    ln -sf ppsplit.fish $(DESTDIR)$(SHARE)/fish/vendor_completions.d/$$p.fish || exit; done
	install -Dm644 $(BUILD)/libppsplit.a $(DESTDIR)$(PREFIX)/lib/libppsplit.a
	for h in $(PUBLIC); do install -Dm644 $$h $(DESTDIR)$(PREFIX)/include/ppsplit/$$h || exit; done
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|' docs/ppsplit.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/ppsplit.pc

# And the runtime, which outputs then link: for this machine's CPU, or ARCH=.
install: install-compiler $(BUILD)/installed/Makefile
	$(MAKE) -C $(BUILD)/installed install-runtime PPSPLIT_RUNTIME=own PREFIX=$(PREFIX) DESTDIR=$(abspath $(or $(DESTDIR),/))

DIST     := dist
# For pip install dist/ppsplit-*.whl: what is installed, with the command linked statically, without completions,
# which know the folder that they are installed in.
wheel: $(BUILD)/ppsplit
	$(Q)rm -rf $(BUILD)/wheel
	$(Q)$(MAKE) -s install-compiler PREFIX= DESTDIR=$(BUILD)/wheel
	$(Q)rm -r $(addprefix $(BUILD)/wheel/share/,bash-completion zsh fish ppsplit/complete.sh)
	$(Q)$(CC) $(CFLAGS) -static $(LDFLAGS) -o $(BUILD)/wheel/bin/ppsplit $(COMMAND:%.c=$(BUILD)/%.o) $(BUILD)/libppsplit.a $(LDLIBS)
	$(Q)python3 tools/wheel $(BUILD)/wheel $(VERSION) $(DIST)

uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/ppsplit bin/ppsplit-export share/man/man1/ppsplit.1 share/man/man1/ppsplit-export.1 share/zsh/site-functions/_ppsplit \
	    $(foreach p,ppsplit pipeline pipeline-cuda,share/bash-completion/completions/$(p) share/fish/vendor_completions.d/$(p).fish) \
	    lib/libppsplit.a lib/pkgconfig/ppsplit.pc lib/libppruntime.a lib/pkgconfig/ppsplit-runtime.pc)
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,include/ppsplit share/ppsplit share/doc/ppsplit)

clean:
	rm -rf $(BUILD) compile_commands.json

# A variable's value, for scripts.
print-%:
	@echo '$($*)'

help:
	@echo "all                     the compiler, build/ppsplit (BUILD=DIR elsewhere; CI=1: warnings are errors, nothing for debuggers; V=1: commands are shown)"
	@echo "tools                   what tests and the demo need besides"
	@echo "check                   all tests; tests/README.md says how to run one"
	@echo "bench                   times of compiling and training, cuts, schedules, predictions beside measured times, convolutional networks, lengths"
	@echo "demo                    a small GPT trained over 4 ranks, merged and proven"
	@echo "known                   pipeline bugs that others' users have reported, under every schedule"
	@echo "fuzz-nets               random graphs in every way there is to compute them: FROM=SEED COUNT=N"
	@echo "fuzz-lengths            random models of any length, bit for bit as bound to some: FROM=SEED COUNT=N (1000)"
	@echo "fuzz-mesh               random models over random meshes and schedules, bit for bit as unsplit: FROM=SEED COUNT=N (1000)"
	@echo "fuzz                    mutated files to all readers and the compiler, under sanitizers: FUZZ_SECONDS=600 TARGETS=\"import csv\""
	@echo "faults                  system calls and allocations that fail, processes that are killed, threads under TSan: FAULTS_SECONDS=600"
	@echo "operators               docs/operators.md; CASES=DIR: counts of ONNX's cases there (tests/frontend/onnx_cases.py)"
	@echo "layers                  includes against the order of the rooms"
	@echo "lint                    cppcheck, and functions that nobody calls"
	@echo "sanitize                check under AddressSanitizer and UBSan"
	@echo "clang                   the compiler and the tools, built by clang"
	@echo "coverage                check, and the lines that it reaches"
	@echo "format                  clang-format over all sources"
	@echo "compile_commands.json   how each source is compiled, for editors"
	@echo "install                 the command, the library, the runtime, manual, completions: PREFIX=DIR DESTDIR=DIR ARCH=CPU"
	@echo "install-compiler        the same without the runtime: every output then compiles its own"
	@echo "wheel                   dist/ppsplit-VERSION-*.whl for pip: the command, for any Linux, and ppsplit-export"
	@echo "uninstall               removes what install has put there: PREFIX=DIR DESTDIR=DIR"
	@echo "clean                   removes build/"
	@echo "print-NAME              the value of a variable of the Makefile"

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

.PHONY: all tools check known bench demo operators fuzz faults fuzz-nets fuzz-mesh fuzz-lengths layers sanitize clang coverage format lint install install-compiler wheel uninstall clean help
