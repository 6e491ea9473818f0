# shim.mk - builds the shim, and says how .cu files are compiled against it.  `make -f shim.mk O=DIR` makes DIR/libshim.a; a makefile
# that includes this one (SHIM, the shim's folder, and O set) compiles its .cu files with $(CXX) $(SHIM_CUFLAGS) and links without
# any -fsanitize: $(CXX) ... $(O)/libshim.a -lpthread, and the runtime's gemm.c.
# CHECK=0: without the checks that need the compiler's help, several times as fast.
SHIM         ?= $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
O            ?= build/cuda_shim
CHECK        ?= 1
CXX          ?= g++
SHIM_WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wformat=2 -Wundef -Wvla \
                -Wcast-qual -Wwrite-strings -Wnull-dereference -Wimplicit-fallthrough
SHIM_CUFLAGS := -x c++ -std=c++17 -O2 -g -ffp-contract=off -Wno-unknown-pragmas -I$(SHIM) -I$(SHIM)/../.. \
                $(if $(filter 1,$(CHECK)),-fsanitize=thread -fsanitize=alignment -fsanitize=bounds)

SHIM_HEADERS := $(wildcard $(SHIM)/*.h)
SHIM_OBJ     := $(patsubst $(SHIM)/%.cpp,$(O)/%.o,$(wildcard $(SHIM)/*.cpp))

$(O)/libshim.a: $(SHIM_OBJ)
	@rm -f $@ && ar rcsD $@ $^

$(O)/%.o: $(SHIM)/%.cpp $(SHIM_HEADERS) $(SHIM)/shim.mk
	@mkdir -p $(@D)
	@$(CXX) -std=c++17 -O2$(if $(CI),, -g) -fPIC $(SHIM_WARN) -I$(SHIM) -c -o $@ $<
