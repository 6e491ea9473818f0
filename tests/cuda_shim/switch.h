/*
 * switch.h - shim_switch(&save, load): leaves one stack for another.  Callee-saved registers go to
 * the old stack, whose pointer goes to *save.  shim_fresh() prepares a stack on which entry() will
 * begin.  Other machines take ucontext (and any does with -DSHIM_UCONTEXT).
 */
#ifndef SHIM_SWITCH_H
#define SHIM_SWITCH_H

#include <cstddef>
#include <cstdint>

#if (defined __x86_64__ || defined __aarch64__) && !defined SHIM_UCONTEXT

extern "C" void shim_switch(void **save, void *load);

#if defined __x86_64__
asm(R"(
    .text
    .globl shim_switch
    .type shim_switch, @function
shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size shim_switch, .-shim_switch
)");

static inline void *shim_fresh(char *stack, size_t bytes, void (*entry)()) {
    void **sp =
        reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15));
    *--sp = nullptr;                                    /* entry() sees the stack as after a call */
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    return sp;
}
#else
asm(R"(
    .text
    .globl shim_switch
    .type shim_switch, %function
shim_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size shim_switch, .-shim_switch
)");

static inline void *shim_fresh(char *stack, size_t bytes, void (*entry)()) {
    uint64_t *sp = reinterpret_cast<uint64_t *>((reinterpret_cast<uintptr_t>(stack) + bytes) &
                                                ~uintptr_t(15)) -
                   20;
    for (int i = 0; i < 20; i++)
        sp[i] = 0;
    sp[11] = reinterpret_cast<uint64_t>(entry);         /* x30 */
    return sp;
}
#endif

#else

#include <ucontext.h>

static inline void shim_switch(void **save, void *load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t *>(load));
}

static inline void *shim_fresh(char *stack, size_t bytes, void (*entry)()) {
    /* the bottom of the stack keeps its first context */
    ucontext_t *c = reinterpret_cast<ucontext_t *>(stack);
    getcontext(c);
    c->uc_stack.ss_sp = stack + 4096;
    c->uc_stack.ss_size = bytes - 4096;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    return c;
}

#endif
#endif
