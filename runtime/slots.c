/*
 * slots.c - in: tensors with a birth and a death along a row of actions; out: their offsets in one block, and its
 * length. A free list per size, last freed first: what was touched last is used again first.
 */
#include "internal.h"

#include <stdlib.h>

typedef struct {
    int64_t offset;
    int next;
} Slot;

typedef struct {
    int64_t bytes;
    int free;
} SizeClass;

typedef struct {
    Slot *slot;
    int n_slot, cap_slot;
    SizeClass *class;
    int n_class, cap_class;
    int64_t bytes;
} Slots;

static void *zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

static int find_class(Slots *p, int64_t bytes)
{
    for (int i = 0; i < p->n_class; i++)
        if (p->class[i].bytes == bytes)
            return i;
    if (p->n_class == p->cap_class) {
        p->cap_class = p->cap_class ? 2 * p->cap_class : 32;
        SizeClass *grown = realloc(p->class, (size_t)p->cap_class * sizeof *grown);
        if (!grown)
            return -1;
        p->class = grown;
    }
    p->class[p->n_class] = (SizeClass){bytes, -1};
    return p->n_class++;
}

static int take_slot(Slots *p, int c)
{
    int s = p->class[c].free;
    if (s >= 0) {
        p->class[c].free = p->slot[s].next;
        return s;
    }
    if (p->n_slot == p->cap_slot) {
        p->cap_slot = p->cap_slot ? 2 * p->cap_slot : 256;
        Slot *grown = realloc(p->slot, (size_t)p->cap_slot * sizeof *grown);
        if (!grown)
            return -1;
        p->slot = grown;
    }
    p->slot[p->n_slot] = (Slot){p->bytes, -1};
    p->bytes += p->class[c].bytes;
    return p->n_slot++;
}

/* Instances by birth and by death (counting sort), then one walk over the ops. */
PpStatus slots_place(Instance *inst, int64_t n_inst, int n_op, int64_t *bytes)
{
    Slots all = {0}, *p = &all;
    int64_t *born = zeroed(n_op + 2, sizeof *born), *dead = zeroed(n_op + 3, sizeof *dead);
    int64_t *by_birth = zeroed(n_inst, sizeof *by_birth), *by_death = zeroed(n_inst, sizeof *by_death);
    int *slot_of = zeroed(n_inst, sizeof *slot_of), *class_of = zeroed(n_inst, sizeof *class_of);
    PpStatus s = born && dead && by_birth && by_death && slot_of && class_of
                     ? PP_OK
                     : pp_fail(PP_ERR_IO, "out of memory while planning");
    if (s == PP_OK) {
        for (int64_t i = 0; i < n_inst; i++)
            if (inst[i].birth >= 0) {
                born[inst[i].birth + 1]++;
                dead[inst[i].death + 1]++;
            }
        for (int k = 0; k <= n_op; k++) {
            born[k + 1] += born[k];
            dead[k + 1] += dead[k];
        }
        for (int64_t i = 0; i < n_inst; i++)
            if (inst[i].birth >= 0) {
                by_birth[born[inst[i].birth]++] = i;
                by_death[dead[inst[i].death]++] = i;
            }
    }
    int64_t b = 0, d = 0;
    for (int k = 0; k < n_op && s == PP_OK; k++) {
        for (; b < born[k] && s == PP_OK; b++) {
            Instance *i = &inst[by_birth[b]];
            int c = find_class(p, align_up(i->bytes)), at = c < 0 ? -1 : take_slot(p, c);
            if (at < 0) {
                s = pp_fail(PP_ERR_IO, "out of memory while planning");
                break;
            }
            i->offset = p->slot[at].offset;
            slot_of[by_birth[b]] = at;
            class_of[by_birth[b]] = c;
        }
        for (; d < dead[k] && s == PP_OK; d++) {
            SizeClass *c = &p->class[class_of[by_death[d]]];
            int at = slot_of[by_death[d]];
            p->slot[at].next = c->free;
            c->free = at;
        }
    }
    *bytes = p->bytes;
    free(p->slot), free(p->class);
    free(born), free(dead), free(by_birth), free(by_death), free(slot_of), free(class_of);
    return s;
}
