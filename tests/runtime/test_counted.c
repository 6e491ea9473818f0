/*
 * test_counted.c - what sums over replicas take, counted (runtime/plan/counted.c) and listed
 * message by message (buckets.c, replicas.c): the same bytes for each replica, and of the one that
 * takes most; parameters of many buckets, of a part of one, of several in one.  What all replicas
 * send in closed form.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/api/pp.h"
#include "runtime/plan/plan.h"
#include "tap.h"

enum { STAGES = 2, PARAMS = 7, MICROBATCHES = 2 };

static PpParam param[STAGES][PARAMS];
static PpStage stage[STAGES];
static const PpStage *const stages[] = {&stage[0], &stage[1]};
static const PpPlan model = {
    .n_stage = STAGES, .n_param = STAGES * PARAMS, .stage = stages, .rows = 1};

static void make_params(int s)
{
    static const int64_t elements[PARAMS] = {3000000, 5, 70001, 4096, 1200000, 17, 4097};
    int64_t at = 0;
    for (int i = 0; i < PARAMS; i++) {
        param[s][i] = (PpParam){.t = {.name = "p", .bytes = 4 * elements[i], .dtype = PP_F32},
                                .trainable = 1,
                                .use = PP_OWN,
                                .param = s * PARAMS + i,
                                .offset = at,
                                .grad_offset = at};
        at += (4 * elements[i] + 63) / 64 * 64;
    }
    stage[s] = (PpStage){.index = s,
                         .has_backward = 1,
                         .param = param[s],
                         .n_param = PARAMS,
                         .bytes.param = at,
                         .bytes.grad = at};
}

/* sent: to which what it sends to other replicas is added */
static int64_t total(PlanRequest ask, int counted, int replica, int64_t *sent)
{
    Plan p = {0};
    ask.counted = counted;
    ask.replica = replica;
    int64_t bytes = plan_build(&p, &ask) == PP_OK ? plan_total(&p) : -1;
    for (const Message *m = p.msg; m < p.msg + p.n_msg; m++)
        *sent += m->axis == AXIS_PEERS && m->sent ? m->bytes : 0;
    plan_free(&p);
    return bytes;
}

int main(void)
{
    static const int64_t row0[MICROBATCHES + 1] = {0, 1, 2};
    static SchedError e;
    Schedule *s;
    for (int i = 0; i < STAGES; i++)
        make_params(i);
    SchedNeeds needs = {.unshard = "1", .buffers = 8};
    if (!ok(!sched_generate("loopedbfs", 1, STAGES, MICROBATCHES, SCHED_PLACE_DEFAULT, &s, &e) &&
                !sched_lower_for(s, &needs, &e),
            "rows: %s", e.text))
        return tap_done();
    for (int d = 2; d <= 300; d = d < 8 ? d + 1 : d * 7)
        for (int zero = 0; zero < 4; zero++)
            for (int64_t bucket = 16384; bucket <= 16384 * 64; bucket *= 8) {
                PlanRequest ask = {.model = &model,
                                   .schedule = s,
                                   .microbatches = MICROBATCHES,
                                   .replicas = d,
                                   .bucket = bucket,
                                   .zero = zero,
                                   .row0 = row0,
                                   .train = 1,
                                   .threads = 1,
                                   .states = 2,
                                   .tags = INT64_MAX};
                /* gradients and their sums or new parameters; or parameters for three runs of a
                 * stage: of two stages, there and back, the last one's stay */
                const int64_t b = stage[0].bytes.grad,
                              closed = (d - 1) * (zero == 3 ? 2 * b + 3 * b : 2 * 2 * b);
                int64_t most = 0, different = 0, sent = 0, none = 0;
                for (int k = 0; k < d; k += d < 20 ? 1 : 9) {
                    int64_t listed = total(ask, 0, k, &sent);
                    different += listed <= 0 || listed != total(ask, 1, k, &none);
                    most = listed > most ? listed : most;
                }
                int64_t worst = total(ask, 1, -1, &none);
                ok(!different && (d < 20 ? worst == most && sent == closed : worst >= most),
                   "%d replicas, buckets of %lld bytes, --zero %d: %lld bytes", d,
                   (long long)bucket, zero, (long long)worst);
            }
    sched_free(s);
    return tap_done();
}
