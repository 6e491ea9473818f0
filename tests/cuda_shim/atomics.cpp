/*
 * atomics.cpp - what the compiler calls for std::atomic and __atomic builtins in code built with
 * -fsanitize=thread: host code of .cu files.  They are the plain operations, in the strongest
 * order.
 */
#include <cstdint>

#define ATOMICS(bits)                                                                              \
    typedef uint##bits##_t U##bits;                                                                \
    U##bits __tsan_atomic##bits##_load(const volatile U##bits *p, int);                            \
    void __tsan_atomic##bits##_store(volatile U##bits *p, U##bits v, int);                         \
    U##bits __tsan_atomic##bits##_exchange(volatile U##bits *p, U##bits v, int);                   \
    U##bits __tsan_atomic##bits##_load(const volatile U##bits *p, int)                             \
    {                                                                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile U##bits *p, U##bits v, int)                          \
    {                                                                                              \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    U##bits __tsan_atomic##bits##_exchange(volatile U##bits *p, U##bits v, int)                    \
    {                                                                                              \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    FETCH(bits, add)                                                                               \
    FETCH(bits, sub) FETCH(bits, and) FETCH(bits, or) FETCH(bits, xor) FETCH(bits, nand)           \
        COMPARE(bits, strong) COMPARE(bits, weak)

#define FETCH(bits, op)                                                                            \
    U##bits __tsan_atomic##bits##_fetch_##op(volatile U##bits *p, U##bits v, int);                 \
    U##bits __tsan_atomic##bits##_fetch_##op(volatile U##bits *p, U##bits v, int)                  \
    {                                                                                              \
        return __atomic_fetch_##op(p, v, __ATOMIC_SEQ_CST);                                        \
    }

#define COMPARE(bits, kind)                                                                        \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile U##bits *p, U##bits *want,          \
                                                      U##bits v, int, int);                        \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile U##bits *p, U##bits *want,          \
                                                      U##bits v, int, int)                         \
    {                                                                                              \
        return __atomic_compare_exchange_n(p, want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }

extern "C" {
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int);
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int);
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
}
