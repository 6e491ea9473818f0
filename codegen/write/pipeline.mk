# Builds the pipeline: make, make -j2, make CC=clang, make ARCH=x86-64-v3.
#   make pipeline                  on the CPU
#   make pipeline-cuda             on NVIDIA GPUs, through nvcc; CUDA_ARCH="80 90" for cards that are not in this machine
#   make pipeline-shim SHIM=DIR    the same CUDA on the CPU, checked: DIR is tests/cuda_shim of ppsplit; CHECK=0: fast, and less checked
CC        ?= cc
CXX       ?= g++
MPICC     ?= mpicc
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc) nvcc)
ARCH      ?= native
CUDA_ARCH ?= native
CFLAGS    ?= -O3
NVCCFLAGS ?= -O3
# Several programs may share one runtime: RUNTIME=its sources RUNTIME_BUILD=its objects.
RUNTIME       ?= runtime
RUNTIME_BUILD ?= build/runtime
sources  = $(sort $(wildcard $(RUNTIME)/*.$(1) $(RUNTIME)/*/*.$(1) $(RUNTIME)/*/*/*.$(1)))
HEADERS := $(call sources,h)
Q       := $(if $(V),,@)
SAY     := $(if $(findstring s,$(firstword -$(MAKEFLAGS))),:,echo)
GOALS   := $(or $(MAKECMDGOALS),pipeline)

# The order of additions is written in the source: no flag may change it.
FLAGS   := -std=gnu11 $(CFLAGS) $(if $(ARCH),-march=$(ARCH)) -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -Wno-pass-failed \
           -fopenmp -I$(RUNTIME) -I$(RUNTIME)/api $(CPPFLAGS)
LIBS    := -fopenmp -lpthread -lm
has      = $(shell printf '\043include <$(1)>\nint main(void) { return 0; }\n' > .probe.c; \
             $(2) .probe.c -o .probe.out $(3) >/dev/null 2>&1 && echo 1; rm -f .probe.c .probe.out)

# ---- what there is ----

ifneq ($(filter-out clean,$(GOALS)),)
# Vectors as wide as the machine's: kernels of elementary functions take 0.7 of the time.  The library's products use them anyway.
ifneq ($(ARCH),)
FLAGS   += $(shell $(CC) -march=$(ARCH) -mprefer-vector-width=512 -Werror -x c -S -o /dev/null /dev/null 2>/dev/null && echo -mprefer-vector-width=512)
endif
ifeq ($(call has,dnnl.h,$(CC),-ldnnl),1)
FLAGS   += -DPP_DNNL
LIBS    += -ldnnl
else
$(info oneDNN (dnnl.h) not found: products and convolutions by other means)
endif
ifeq ($(call has,cblas.h,$(CC),-lopenblas),1)
FLAGS   += -DPP_OPENBLAS
LIBS    += -lopenblas
else
$(info OpenBLAS (cblas.h) not found: products by other means)
endif
ifeq ($(call has,mpi.h,$(MPICC),),1)
MPI     := 1
else
$(info MPI (mpicc) not found: ranks are threads of one process)
endif
endif

ifneq ($(filter pipeline-cuda,$(GOALS)),)
CUDA    := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC) 2>/dev/null)))
ifeq ($(CUDA),)
$(error nvcc not found: pipeline-cuda needs the CUDA toolkit; NVCC=FILE says where it is)
endif
CUDA_LIB  := $(firstword $(wildcard $(CUDA)/lib64 $(CUDA)/targets/*/lib $(CUDA)/lib))
CUDA_LIBS := -L$(CUDA_LIB) -Wl,-rpath,$(CUDA_LIB) -lcublas -lcudart -lstdc++
CUFLAGS   := -std=c++17 $(NVCCFLAGS) -I$(RUNTIME) -I$(RUNTIME)/api $(CPPFLAGS)
ifeq ($(call has,nccl.h,$(NVCC),-lnccl),1)
CUFLAGS   += -DPP_WITH_NCCL
CUDA_LIBS += -lnccl
else
$(info NCCL (nccl.h) not found: GPUs exchange through MPI, or within one process)
endif
ifeq ($(call has,cudnn.h,$(NVCC),-lcudnn),1)
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

STAGES  := $(patsubst %.c,build/%.o,$(wildcard stage*.c))
SHARED  := $(patsubst $(RUNTIME)/%.c,$(RUNTIME_BUILD)/%.o,$(call sources,c))
OBJ     := $(STAGES) build/pipeline.o $(SHARED)
# device KIND: the objects of the .cu files, made for it
device   = $(patsubst %.cu,build/%.$(1).o,$(wildcard stage*.cu)) $(patsubst $(RUNTIME)/%.cu,$(RUNTIME_BUILD)/%.$(1).o,$(call sources,cu))
CUDAOBJ := $(STAGES) build/pipeline.device.o $(SHARED) $(call device,cuda)
LINK     = $(if $(MPI),OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC),$(CC)) $(LDFLAGS)

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

pipeline: $(OBJ)
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(OBJ) $(LIBS)

pipeline-cuda: $(CUDAOBJ)
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(CUDAOBJ) $(LIBS) $(CUDA_LIBS)

ifneq ($(filter pipeline-shim,$(GOALS)),)
ifeq ($(wildcard $(SHIM)/shim.mk),)
$(error SHIM=DIR says where the CUDA shim is: tests/cuda_shim of ppsplit)
endif
O       ?= build/shim
include $(SHIM)/shim.mk
TAG     := shim$(if $(filter 1,$(CHECK)),,.plain)
SHIMOBJ := $(STAGES) build/pipeline.device.o $(SHARED) $(call device,$(TAG))

pipeline-shim: $(SHIMOBJ) $(O)/libshim.a
	@$(SAY) "  LD      $@"
	$(Q)$(LINK) -o $@ $(SHIMOBJ) $(O)/libshim.a $(LIBS) -lstdc++

SHIMCC   = $(CXX) $(SHIM_CUFLAGS) -DPP_WITH_NCCL $(SHIMFLAGS) -I$(RUNTIME) -I$(RUNTIME)/api -c -o $@ $<
build/%.$(TAG).o: %.cu $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  SHIM    $<"
	$(Q)$(SHIMCC)
$(RUNTIME_BUILD)/%.$(TAG).o: $(RUNTIME)/%.cu $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  SHIM    $<"
	$(Q)$(SHIMCC)
endif

# ---- objects ----

$(RUNTIME_BUILD)/net/transport_mpi.o: $(RUNTIME)/net/transport_mpi.c $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  CC      $<"
	$(Q)$(if $(MPI),OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) -DPP_MPI,$(CC)) $(FLAGS) -c -o $@ $<

$(RUNTIME_BUILD)/%.cuda.o: $(RUNTIME)/%.cu $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  NVCC    $<"
	$(Q)$(NVCC) $(CUFLAGS) -c -o $@ $<

$(RUNTIME_BUILD)/%.o: $(RUNTIME)/%.c $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  CC      $<"
	$(Q)$(CC) $(FLAGS) -c -o $@ $<

build/pipeline.device.o: pipeline.c $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  CC      $<"
	$(Q)$(CC) $(FLAGS) -DPP_WITH_CUDA -c -o $@ $<

build/%.cuda.o: %.cu $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  NVCC    $<"
	$(Q)$(NVCC) $(CUFLAGS) -c -o $@ $<

build/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	@$(SAY) "  CC      $<"
	$(Q)$(CC) $(FLAGS) -c -o $@ $<

clean:
	rm -rf build pipeline pipeline-cuda pipeline-shim
.PHONY: clean
