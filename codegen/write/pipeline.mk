# Builds the pipeline: make, make -j2, make CC=clang, make ARCH=x86-64-v3; make help lists the goals.
#   make                           pipeline and run
#   make pipeline                  on the CPU
#   make run                       the launcher: ./run -n 4 train ...
#   make pipeline-cuda             on NVIDIA GPUs, through nvcc; CUDA_ARCH="80 90" for cards that are not in this machine
#   make pipeline-shim SHIM=DIR    the same CUDA on the CPU, checked: DIR is tests/cuda_shim of ppsplit; CHECK=0: fast, and less checked
#   make install-runtime           the runtime as a library, which other programs then link instead of compiling their own
#
# ARCH   the CPU it is for, as -march= wants it.  native: this machine's; a program made on a login node may then end with "Illegal
#        instruction" on the compute nodes: build it there, or name what both have (x86-64-v3: AVX2; x86-64-v4: AVX-512).  Empty: any.
# MPICC  MPI's compiler; by default CC, should it know mpi.h by itself (cc of a Cray), else mpicc.  none: ranks are threads.
# BLAS   libraries of matrix products: openblas, blis, mkl, armpl, onednn (float32 only), "onednn openblas", any pkg-config module with
#        a cblas.h, or none; by default oneDNN and OpenBLAS, each where it is.
# STAGE_CFLAGS   more flags, of stageN.c and stageN.cu alone: -O0 for one that is only looked at, -fsanitize=address
# PPSPLIT_RUNTIME   auto: the compiled runtime of the ppsplit that wrote this (runtime/compiled names its PREFIX), or an installed one,
#        if it has the same sources, libraries and flags; own: compiled here; or the PREFIX of an installed one, whatever its flags and its ARCH.

# ppsplit was ended while this folder took a new output's place: what is new lies in .next, what is to go in .next/.stale.
ifneq ($(wildcard .next),)
SETTLED := $(shell { { [ ! -e .next/.stale ] || while read -r f; do rm -f "$$f" || exit; done <.next/.stale; } && rm -f .next/.stale && \
    (cd .next && find . -type f) | while read -r f; do \
        mkdir -p "$${f%/*}" && { cmp -s ".next/$$f" "$$f" || mv -f ".next/$$f" "$$f"; } || exit; done; } >&2 && rm -rf .next && echo yes)
$(error $(if $(SETTLED),this folder was half replaced when ppsplit was ended; now it is the new output: make again,cannot complete what is in .next))
endif

CC        ?= cc
CXX       ?= g++
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc) nvcc)
ARCH_GIVEN := $(filter-out undefined default,$(origin ARCH))
ARCH      ?= native
BLAS      ?= auto
CUDA_ARCH ?= native
CFLAGS    ?= -O3
NVCCFLAGS ?= -O3
PREFIX    ?= /usr/local
VERSION   := @VERSION@
# Several programs may share one runtime: RUNTIME=its sources RUNTIME_BUILD=its objects.
ifdef RUNTIME_BUILD
PPSPLIT_RUNTIME ?= own
endif
PPSPLIT_RUNTIME ?= auto
RUNTIME       ?= runtime
RUNTIME_BUILD ?= build/runtime
sources  = $(sort $(wildcard $(RUNTIME)/*.$(1) $(RUNTIME)/*/*.$(1) $(RUNTIME)/*/*/*.$(1)))
HEADERS := $(call sources,h)
Q       := $(if $(V),,@)
SILENT  := $(findstring s,$(firstword -$(MAKEFLAGS)))
SAY     := $(if $(SILENT),:,echo)
GOALS   := $(or $(patsubst all,pipeline,$(filter-out run,$(MAKECMDGOALS))),$(if $(MAKECMDGOALS),help,pipeline))
INCLUDE := -I$(RUNTIME) -I$(RUNTIME)/api $(CPPFLAGS)

# The order of additions is written in the source: no flag may change it.  Vectors are as wide as the CPU has them (CFLAGS may say
# otherwise): kernels of elementary functions take 0.7 of the time.
MARCH   := $(if $(ARCH),-march=$(ARCH))
FLAGS    = -std=gnu11 -D_GNU_SOURCE $(WIDE) $(CFLAGS) $(MARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -Wno-pass-failed \
           -fopenmp $(INCLUDE)
LIBS     = -fopenmp -lpthread $(PRODUCT_LIBS) -lm

# ---- what there is ----

ifneq ($(filter-out clean help,$(GOALS)),)
WIDE     := $(if $(ARCH),$(shell $(CC) $(MARCH) -mprefer-vector-width=512 -Werror -x c -S -o /dev/null /dev/null 2>/dev/null && \
              echo -mprefer-vector-width=512))
UNWRITABLE := $(shell { mkdir -p build && : >build/.try && rm -f build/.try; } 2>&1)
ifneq ($(UNWRITABLE),)
$(error nothing can be built in $(CURDIR), in its folder build: $(UNWRITABLE))
endif
# DETECTED=FILE: what an earlier run has found, in the same circumstances
RESULT   := $(or $(DETECTED),build/detected.mk)
ifeq ($(DETECTED),)
$(shell CC='$(CC)' MPICC='$(MPICC)' ARCH='$(ARCH)' ARCH_GIVEN='$(ARCH_GIVEN)' BLAS='$(BLAS)' CFLAGS='$(CFLAGS)' CPPFLAGS='$(CPPFLAGS)' \
    FLAGS='$(FLAGS)' LDFLAGS='$(LDFLAGS)' RUNTIME='$(RUNTIME)' PPSPLIT_RUNTIME='$(PPSPLIT_RUNTIME)' sh $(RUNTIME)/detect.sh $(RESULT))
endif
include $(RESULT)
ifneq ($(DETECT_ERROR),)
$(error $(DETECT_ERROR))
endif
$(if $(SILENT),,$(info $()  FOUND   $(FOUND)))
# The wrappers of MPI libraries call the compiler that these variables name.
MPI_CC   := $(if $(subst x$(CC),,x$(or $(MPI),$(CC))),OMPI_CC='$(CC)' MPICH_CC='$(CC)' I_MPI_CC='$(CC)' $(MPI),$(CC))
endif

ifneq ($(filter pipeline-cuda,$(GOALS)),)
CUDA    := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC) 2>/dev/null)))
ifeq ($(CUDA),)
$(error nvcc not found: pipeline-cuda needs the CUDA toolkit; NVCC=FILE says where it is)
endif
has        = $(shell d=$$(mktemp -d) && echo '\#include <$(1)>' >$$d/probe.c && echo 'int main(void) { return 0; }' >>$$d/probe.c && \
               $(NVCC) $$d/probe.c -o $$d/probe $(2) >/dev/null 2>&1 && echo 1; rm -rf "$$d")
CUDA_LIB  := $(firstword $(wildcard $(CUDA)/lib64 $(CUDA)/targets/*/lib $(CUDA)/lib))
CUDA_LIBS := -L$(CUDA_LIB) -Wl,-rpath,$(CUDA_LIB) -lcublasLt -lcublas -lcudart -lstdc++
# What the backward computes again has to have the forward's bits: the gradient of a maximum compares the two.
CUFLAGS   := -std=c++17 $(NVCCFLAGS) -fmad=false $(INCLUDE)
ifeq ($(call has,nccl.h,-lnccl),1)
CUFLAGS   += -DPP_WITH_NCCL
CUDA_LIBS += -lnccl
else
$(info NCCL (nccl.h) not found: GPUs exchange through MPI, or within one process)
endif
ifeq ($(call has,cudnn.h,-lcudnn),1)
CUFLAGS   += -DPP_WITH_CUDNN
CUDA_LIBS += -lcudnn
else
$(info cuDNN (cudnn.h) not found: convolutions by kernels of our own)
endif
ifeq ($(CUDA_ARCH)$(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU'),native0)
$(info No GPU in this machine: code for compute capability 8.0 and 9.0; CUDA_ARCH says otherwise)
override CUDA_ARCH := 80 90
endif
CAPABLE   := $(subst sm_,,$(CUDA_ARCH))
CUFLAGS   += $(if $(filter native,$(CAPABLE)),-arch=native,$(foreach a,$(CAPABLE),-gencode arch=compute_$(a),code=sm_$(a)) \
             -gencode arch=compute_$(lastword $(CAPABLE)),code=compute_$(lastword $(CAPABLE)))
endif

# ---- programs ----

# stageN_weight.c, stageN_weight.cu: weight gradients of your own, which stageN.c and stageN.cu include.
WEIGHTS := $(wildcard stage*_weight.c stage*_weight.cu)
$(foreach w,$(WEIGHTS),$(if $(shell grep -l '^.include "$w"' $(subst _weight,,$w) 2>/dev/null),,\
    $(error $w: $(subst _weight,,$w) is not there or has no gradients of parameters)))
own_weight        = $(if $(filter $*_weight.$(1),$(WEIGHTS)),-DOWN_WEIGHT)
sources_of_stages = $(filter-out $(WEIGHTS),$(wildcard stage*.$(1)))
# custom_*.c, custom_*.cu: the functions of operations of your own (ppsplit --ops).
STAGES  := $(patsubst %.c,build/%.o,$(call sources_of_stages,c) $(wildcard custom_*.c))
TOTALS  := $(patsubst %.c,build/%.o,$(wildcard totals.c))
OWN     := $(patsubst $(RUNTIME)/%.c,$(RUNTIME_BUILD)/%.o,$(call sources,c))
# An installed runtime has been compiled for its ARCH, the stages for theirs: both are looked at when the program starts.
SHARED  := $(if $(INSTALLED),build/machine.o $(INSTALLED),$(OWN))
OBJ     := $(STAGES) $(TOTALS) build/pipeline.o $(SHARED)
# device KIND: the objects of the .cu files, made for it
device   = $(patsubst %.cu,build/%.$(1).o,$(call sources_of_stages,cu) $(wildcard custom_*.cu)) $(patsubst $(RUNTIME)/%.cu,$(RUNTIME_BUILD)/%.$(1).o,$(call sources,cu))
CUDAOBJ := $(STAGES) $(TOTALS) build/pipeline.device.o $(call device,cuda) $(SHARED)
LINK     = $(MPI_CC) $(LDFLAGS)

ifneq ($(filter pipeline,$(GOALS)),)
ifeq ($(STAGES),)
$(error these stages are for CUDA only: make pipeline-cuda; ppsplit --target cpu --target cuda makes both)
endif
endif
ifneq ($(filter pipeline-cuda pipeline-shim,$(GOALS)),)
ifeq ($(wildcard stage*.cu),)
$(error these stages are for the CPU only: make pipeline; ppsplit --target cuda makes stages for GPUs)
endif
endif

# What is compiled and linked depends on how: each file below build/flags holds the command and what it meant when it was last used,
# and is written anew only when that changes.
# flags DIR,NAME,TEXT: the name of the file, which then holds the text
flags    = $(1)/flags/$(2)$(shell mkdir -p $(1)/flags; printf '%s\n' '$(subst ','\'',$(3))' >$(1)/flags/$(2).$$$$; \
             if cmp -s $(1)/flags/$(2).$$$$ $(1)/flags/$(2); then rm $(1)/flags/$(2).$$$$; else mv $(1)/flags/$(2).$$$$ $(1)/flags/$(2); fi)
ifneq ($(filter-out clean help,$(GOALS)),)
CC_STAGE   := $(call flags,build,cc,$(CC) $(FLAGS) $(STAGE_CFLAGS) $(COMPILER_ID))
CC_LINK    := $(call flags,build,link,$(LINK) $(LIBS) $(INSTALLED))
CC_OWN     := $(call flags,$(RUNTIME_BUILD),cc,$(CC) $(FLAGS) $(COMPILER_ID))
CC_PRODUCT := $(call flags,$(RUNTIME_BUILD),product,$(PRODUCT_FLAGS) $(FOUND_PRODUCTS))
CC_MPI     := $(call flags,$(RUNTIME_BUILD),mpi,$(MPI_CC) $(FOUND_MPI))
endif
ifneq ($(filter pipeline-cuda,$(GOALS)),)
NVCC_STAGE := $(call flags,build,cuda,$(NVCC) $(CUFLAGS) $(STAGE_CFLAGS))
NVCC_OWN   := $(call flags,$(RUNTIME_BUILD),cuda,$(NVCC) $(CUFLAGS))
NVCC_LINK  := $(call flags,build,cuda-link,$(CUDA_LIBS))
endif

# Files that come and go are in the list, files that change are newer than what includes them.
ifneq ($(filter-out clean help,$(GOALS)),)
WEIGHTS_LIST := $(call flags,build,weights,$(WEIGHTS))
endif

# made KIND,COMMAND: the recipe of an object
define made
@mkdir -p $(@D)
@$(SAY) "  $(1)	$<"
$(Q)$(2) -c -o $@ $<
endef

all: pipeline run

run: $(RUNTIME)/run.sh
	@$(SAY) "  WRITE   $@"
	$(Q)cp $< $@.tmp && chmod a+x $@.tmp && mv -f $@.tmp $@

pipeline: $(OBJ) $(CC_LINK)
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(OBJ) $(LIBS)

pipeline-cuda: $(CUDAOBJ) $(CC_LINK) $(NVCC_LINK)
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(CUDAOBJ) $(LIBS) $(CUDA_LIBS)

ifneq ($(filter pipeline-shim,$(GOALS)),)
# A relative DIR is meant from where make was called, which with -C is not here.
SHIM_PLACES   := $(SHIM) $(if $(filter /%,$(SHIM)),,$(SHIM:%=$(PWD)/%))
SHIM_GIVEN    := $(SHIM)
override SHIM := $(patsubst %/shim.mk,%,$(firstword $(wildcard $(SHIM_PLACES:%=%/shim.mk))))
ifeq ($(SHIM),)
SHIM_WRONG    := $(if $(wildcard $(SHIM_PLACES)),the CUDA shim (shim.mk) is not there,there is no such folder)
$(error $(if $(SHIM_GIVEN),SHIM=$(SHIM_GIVEN): $(SHIM_WRONG),pipeline-shim needs SHIM=DIR); DIR is the folder tests/cuda_shim in the sources of ppsplit)
endif
O       ?= build/shim
include $(SHIM)/shim.mk
TAG     := shim$(if $(filter 1,$(CHECK)),,.plain)
SHIMOBJ := $(STAGES) $(TOTALS) build/pipeline.device.o $(call device,$(TAG)) $(SHARED)
SHIMCC  := $(CXX) $(SHIM_CUFLAGS) -DPP_WITH_NCCL $(SHIMFLAGS) $(INCLUDE)
SHIM_STAGE := $(call flags,build,$(TAG),$(SHIMCC) $(STAGE_CFLAGS))

# The shim's cuBLAS calls the runtime's products.
pipeline-shim: $(SHIMOBJ) $(O)/libshim.a $(CC_LINK)
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(SHIMOBJ) $(O)/libshim.a $(INSTALLED) $(LIBS) -lstdc++

build/%.$(TAG).o: %.cu $(HEADERS) $(SHIM_HEADERS) $(SHIM_STAGE) $(WEIGHTS) $(WEIGHTS_LIST)
	$(call made,SHIM,$(SHIMCC) $(STAGE_CFLAGS) $(call own_weight,cu))
$(RUNTIME_BUILD)/%.$(TAG).o: $(RUNTIME)/%.cu $(HEADERS) $(SHIM_HEADERS)
	$(call made,SHIM,$(SHIMCC))
endif

# ---- objects ----

$(RUNTIME_BUILD)/net/transport_mpi.o: $(RUNTIME)/net/transport_mpi.c $(HEADERS) $(CC_OWN) $(CC_MPI)
	$(call made,CC,$(MPI_CC) $(if $(MPI),-DPP_MPI) $(FLAGS))
$(addprefix $(RUNTIME_BUILD)/device/cpu/,gemm.o gemm_half.o gemm_arithmetic.o): $(RUNTIME_BUILD)/%.o: $(RUNTIME)/%.c $(HEADERS) $(CC_OWN) $(CC_PRODUCT)
	$(call made,CC,$(CC) $(FLAGS) $(PRODUCT_FLAGS))
$(RUNTIME_BUILD)/%.cuda.o: $(RUNTIME)/%.cu $(HEADERS) $(NVCC_OWN)
	$(call made,NVCC,$(NVCC) $(CUFLAGS))
$(RUNTIME_BUILD)/%.o: $(RUNTIME)/%.c $(HEADERS) $(CC_OWN)
	$(call made,CC,$(CC) $(FLAGS))
build/machine.o: $(RUNTIME)/exec/machine.c $(HEADERS) $(CC_STAGE)
	$(call made,CC,$(CC) $(FLAGS) -Dpp_machine_check=pp_machine_check_stages)
build/pipeline.device.o: pipeline.c $(HEADERS) $(CC_STAGE)
	$(call made,CC,$(CC) $(FLAGS) -DPP_WITH_CUDA)
build/%.cuda.o: %.cu $(HEADERS) $(NVCC_STAGE) $(WEIGHTS) $(WEIGHTS_LIST)
	$(call made,NVCC,$(NVCC) $(CUFLAGS) $(STAGE_CFLAGS) $(call own_weight,cu))
build/%.o: %.c $(HEADERS) $(CC_STAGE) $(WEIGHTS) $(WEIGHTS_LIST)
	$(call made,CC,$(CC) $(FLAGS) $(STAGE_CFLAGS) $(call own_weight,c))

# ---- the runtime for other programs ----

build/libppruntime.a: $(OWN)
	@$(SAY) "  AR      $@"
	$(Q)rm -f $@ && ar rcsD $@ $(OWN)

# The lines of build/detected.mk.id are what detect.sh compares.
INTO    := $(DESTDIR)$(PREFIX)
define PC
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include/ppsplit/runtime

Name: ppsplit-runtime
Description: what programs made by ppsplit run on
Version: $(VERSION)
Cflags: -I$${includedir} -I$${includedir}/api
Libs: -L$${libdir} -lppruntime $(LIBS)
endef
export PC
install-runtime: build/libppruntime.a
	@$(SAY) "  INSTALL $(INTO)/lib/libppruntime.a"
	$(Q)install -d $(INTO)/lib/pkgconfig
	$(Q)install -m644 build/libppruntime.a $(INTO)/lib
	$(Q){ cat $(RESULT).id; echo "$$PC"; } >$(INTO)/lib/pkgconfig/ppsplit-runtime.pc
	$(Q)cd $(RUNTIME) && for f in $(patsubst $(RUNTIME)/%,%,$(HEADERS)); do install -Dm644 $$f $(INTO)/include/ppsplit/runtime/$$f || exit; done

clean:
	rm -rf build pipeline pipeline-cuda pipeline-shim run

help:
	@echo "all              pipeline and run, as make alone"
	@echo "run              the launcher, ./run -n 4 train ...: with make pipeline-cuda run, for example"
	@echo "pipeline         the program for the CPU: make, make -j4; ARCH=CPU BLAS=NAME MPICC=COMPILER say for what and with what"
	@echo "pipeline-cuda    the program for NVIDIA GPUs, with nvcc; CUDA_ARCH=\"80 90\" for cards that are not in this machine"
	@echo "pipeline-shim    its CUDA on the CPU, checked: SHIM=DIR is tests/cuda_shim of ppsplit"
	@echo "install-runtime  the runtime as a library for other programs: PREFIX=DIR"
	@echo "clean            removes what was built"
.PHONY: all clean install-runtime help
