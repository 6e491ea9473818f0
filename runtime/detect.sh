#!/bin/sh
# detect.sh RESULT - finds out what a program can be built with on this machine: what the flags mean to the compiler, MPI, libraries of
# matrix products, an installed runtime.  In: the Makefile's variables CC MPICC ARCH BLAS CFLAGS CPPFLAGS FLAGS LDFLAGS RUNTIME
# PPSPLIT_RUNTIME in the environment.  Out: RESULT, which the Makefile includes; it is written anew only when something has changed.
set -u
export LC_ALL=C
result=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/ppsplit-detect.XXXXXX") || exit
trap 'rm -rf "$dir"' EXIT
error=

# links COMPILER HEADER FUNCTION [FLAG...]: does a program that needs the function come to be?  The compiler may have several words.
links() {
    cc=$1 header=$2 function=$3; shift 3
    printf '#include <%s>\nvoid *volatile used;\nint main(void) { used = (void *)%s; return 0; }\n' "$header" "$function" >"$dir/probe.c"
    $cc $CFLAGS $CPPFLAGS -w "$dir/probe.c" $LDFLAGS -o "$dir/probe" "$@" >/dev/null 2>&1
}

# version COMPILER HEADER WORDS [FLAG...]: the words with the header's macros put in, numbers joined by dots
version() {
    cc=$1; shift
    printf '#include <%s>\nversion %s\n' "$1" "$2" >"$dir/probe.c"; shift 2
    $cc $CFLAGS $CPPFLAGS -w -E -P "$@" "$dir/probe.c" 2>/dev/null | sed -n 's/^version *//p' | sed 's/"//g; s/ *\. */./g; s/  */ /g; s/ $//'
}

# ---- the compiler ----

# What the compiler defines before it reads anything: its version and, where ARCH is native, this machine's instructions.
macros=$($CC $FLAGS $CPPFLAGS -dM -E -x c /dev/null 2>/dev/null)
case $macros in
*__AVX512F__*) vectors=" (AVX-512)" ;;
*__AVX2__*) vectors=" (AVX2)" ;;
*__ARM_FEATURE_SVE\ *) vectors=" (SVE)" ;;
*) vectors= ;;
esac
machine=$(printf '%s\n' "$macros" | cksum | tr ' ' -)
compiler=$(printf '%s\n' "$macros" | sed -n 's/^#define __VERSION__ "\(.*\)"/\1/p')
case $compiler in [0-9]*) compiler="gcc $compiler" ;; esac

# ---- MPI ----

# The compiler itself may be a wrapper (cc of a Cray, CC=mpicc); a named MPICC is taken alone, MPICC=none is no MPI.
mpi=
case ${MPICC:-} in
none) ;;
'') for cc in "$CC" mpicc; do links "$cc" mpi.h MPI_Init && mpi=$cc && break; done ;;
*) links "$MPICC" mpi.h MPI_Init && mpi=$MPICC ;;
esac
if [ -n "$mpi" ]; then
    number=$(version "$mpi" mpi.h 'I_MPI_VERSION/MPICH_VERSION/OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION' | tr -d ' ')
    case $number in
    */*/[0-9]*) mpi_found="MPI (Open MPI ${number##*/})" ;;
    [0-9]*) mpi_found="MPI (Intel MPI ${number%%/*})" ;;
    */[0-9]*) number=${number#*/}; mpi_found="MPI (MPICH ${number%%/*})" ;;
    *) mpi_found="MPI (${mpi##*/})" ;;
    esac
else
    mpi_found="no MPI"
fi

# ---- libraries of matrix products ----

# At run time the program finds the libraries where they were at build.
with_rpath() {
    for word; do
        case $word in -L*) echo "$word -Wl,-rpath,${word#-L}" ;; *) echo "$word" ;; esac
    done | tr '\n' ' '
}

# product LABEL MODULE HEADER FUNCTION MACROS ROOT LIBS: by pkg-config, else below ROOT, else where the compiler looks by itself
product() {
    if command -v pkg-config >/dev/null && pkg-config --exists "$2" 2>/dev/null; then
        flags=$(pkg-config --cflags "$2") libs=$(with_rpath $(pkg-config --libs "$2")) number=$(pkg-config --modversion "$2")
        links "$CC" "$3" "$4" $flags $libs && return
    fi
    flags= libs=$7 number=
    [ -z "$6" ] || flags=-I$6/include libs="$(with_rpath "-L$6/lib") $7"
    links "$CC" "$3" "$4" $flags $libs
}

products= product_flags= product_libs=
for name in $(echo "$BLAS" | sed 's/^auto$/onednn? openblas?/'); do
    optional=
    case $name in *'?') optional=1 name=${name%'?'} ;; esac
    case $name in
    none) products="$products, products by own kernels"; continue ;;
    onednn) set -- oneDNN dnnl dnnl.h dnnl_sgemm -DPP_DNNL "${DNNLROOT:-}" -ldnnl ;;
    openblas) set -- OpenBLAS openblas cblas.h openblas_set_num_threads "-DPP_CBLAS -DPP_OPENBLAS" "${OPENBLAS_ROOT:-}" -lopenblas ;;
    blis) set -- BLIS blis blis.h cblas_dgemm "-DPP_CBLAS -DPP_BLIS" "${BLIS_ROOT:-}" -lblis ;;
    mkl) set -- MKL mkl-dynamic-lp64-seq mkl.h cblas_dgemm "-DPP_CBLAS -DPP_MKL" "${MKLROOT:-}" \
        "-lmkl_intel_lp64 -lmkl_sequential -lmkl_core -lpthread -lm -ldl" ;;
    armpl) set -- "Arm Performance Libraries" armpl-dynamic-lp64-seq armpl.h cblas_dgemm "-DPP_CBLAS -DPP_ARMPL" "${ARMPL_DIR:-}" -larmpl_lp64 ;;
    *) set -- "$name" "$name" cblas.h cblas_dgemm -DPP_CBLAS "" "" ;;
    esac
    if ! product "$@"; then
        products="$products, no $1"
        [ -n "$optional" ] || error="BLAS=$name: no program with $4() of <$3> comes to be, neither by pkg-config $2 nor with ${7:-no other flags}"
        continue
    fi
    case $name in
    onednn) number=$(version "$CC" dnnl_version.h DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH $flags) ;;
    openblas) [ -n "$number" ] || number=$(version "$CC" openblas_config.h OPENBLAS_VERSION $flags | sed 's/ *OpenBLAS *//') ;;
    esac
    product_flags="$product_flags $5 $flags" product_libs="$product_libs $libs"
    products="$products, $1${number:+ $number}"
done
found="$mpi_found$products"

# ---- an installed runtime ----

# Whatever decides what the runtime's objects are; the .pc file of an installed one holds the same lines.
sources=$(cd "$RUNTIME" && find . -name '*.[ch]' | sort | xargs cat | { sha256sum 2>/dev/null || cksum; } | cut -c 1-16)
cflags=$(echo $CFLAGS $CPPFLAGS)
id="sources=$sources
compiler=$compiler
libraries=$found
cflags=$cflags
machine=$machine
arch=${ARCH:-none}"

field() { sed -n "s/^$1=//p" "$pc"; }

# Why the installed runtime is another; nothing when it is this one.  Its ARCH decides where none was asked for.
other() {
    if [ "$(field sources)" != "$sources" ]; then echo "has other sources"
    elif [ "$(field libraries)" != "$found" ]; then echo "was built with $(field libraries)"
    elif [ "$PPSPLIT_RUNTIME" != auto ]; then :
    elif [ "$(field compiler)" != "$compiler" ]; then echo "was built by $(field compiler)"
    elif [ "$(field cflags)" != "$cflags" ]; then echo "was built with $(field cflags)"
    elif [ "$(field arch)" = native ] && [ "${ARCH:-none}" = native ] && [ "$(field machine)" != "$machine" ]; then echo "is for another CPU"
    elif [ -n "$ARCH_GIVEN" ] && [ "$(field arch)" != "${ARCH:-none}" ]; then echo "is for ARCH=$(field arch)"
    fi
}

# Where there may be one: with the ppsplit that wrote this folder, beside the one in PATH, and where pkg-config looks.
places() {
    if [ "$PPSPLIT_RUNTIME" != auto ]; then
        echo "$PPSPLIT_RUNTIME/lib/pkgconfig"
        return
    fi
    [ -f "$RUNTIME/compiled" ] && echo "$(cat "$RUNTIME/compiled")/lib/pkgconfig"
    echo "${PKG_CONFIG_PATH:-}" | tr : '\n'
    command -v ppsplit >/dev/null && echo "$(dirname "$(dirname "$(command -v ppsplit)")")/lib/pkgconfig"
    command -v pkg-config >/dev/null && pkg-config --variable=pc_path pkg-config 2>/dev/null | tr : '\n'
}

remedy="make PPSPLIT_RUNTIME=own compiles runtime/ for this program alone, make install-runtime PPSPLIT_RUNTIME=own PREFIX=$PPSPLIT_RUNTIME installs it there"
installed= runtime="own runtime"
[ "$PPSPLIT_RUNTIME" = own ] || for place in $(places); do
    pc=$place/ppsplit-runtime.pc
    [ -f "$pc" ] && [ -f "$place/../libppruntime.a" ] || continue
    lib=$(cd "$place/.." && pwd)
    why=$(other)
    if [ -n "$why" ]; then
        runtime="own runtime (that of $lib $why)"
        [ "$PPSPLIT_RUNTIME" = auto ] || error="PPSPLIT_RUNTIME=$PPSPLIT_RUNTIME: the runtime there $why; $remedy"
    else
        installed=$lib/libppruntime.a runtime="runtime of $lib (ARCH=$(field arch))"
        break
    fi
done
case $PPSPLIT_RUNTIME in auto | own) ;; *) [ -n "$installed$error" ] || error="PPSPLIT_RUNTIME=$PPSPLIT_RUNTIME: no lib/libppruntime.a there; $remedy" ;; esac

# ---- the result ----

# make's own characters, and the lines of the .pc file with it
quote() { printf '%s' "$1" | sed 's/\$/$$/g; s/#/\\#/g'; }
cat >"$dir/result" <<END
COMPILER_ID   := $machine
MPI           := $(quote "$mpi")
PRODUCT_FLAGS := $(quote "$product_flags")
PRODUCT_LIBS  := $(quote "$product_libs")
INSTALLED     := $(quote "$installed")
FOUND_MPI     := $(quote "$mpi_found")
FOUND_PRODUCTS := $(quote "$products")
FOUND         := $(quote "$found; ARCH=${ARCH:-none}$vectors; $runtime")
DETECT_ERROR  := $(quote "$error")
END
mkdir -p "$(dirname "$result")"
cmp -s "$dir/result" "$result" || cp "$dir/result" "$result"
printf '%s\n' "$id" >"$dir/id"
cmp -s "$dir/id" "$result.id" || cp "$dir/id" "$result.id"
