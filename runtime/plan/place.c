/*
 * place.c - the arena of a rank: how many bytes of what, then the pointers that stages, messages and the optimizer use.
 * In: instances with offsets (slots.c), parameters, contributions.  Nothing here fails but for memory of the tables.
 */
#include "plan.h"

#include <string.h>

int64_t stats_bytes(const PpStage *st)
{
    int64_t n = 0;
    for (int k = 0; k < st->n_param; k++)
        n += st->param[k].stat ? align_up(st->param[k].t.bytes) : 0;
    return n;
}

void plan_sizes(Planner *p)
{
    Rank *r = p->r;
    MemoryPlan *m = &r->mem;
    int train = r->run->opt->mode == MODE_TRAIN;
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        m->param += align_up(st->bytes_param);
        m->konst += align_up(st->bytes_const);
        m->grad += train ? align_up(st->bytes_grad) : 0;
        if (align_up(st->bytes_work) > m->work)
            m->work = align_up(st->bytes_work);
    }
    p->work = m->work;
    if (aside_wanted(r))
        m->work += p->work;
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type == SA_R && stats_bytes(r->stage[r->op[k].local].st) > p->stats)
            p->stats = stats_bytes(r->stage[r->op[k].local].st);
    m->work += p->stats;
}

char *plan_carve(char **at, int64_t bytes)
{
    char *p = *at;
    *at += align_up(bytes);
    return p;
}

void plan_carve_params(Rank *r, char **at)
{
    int train = r->run->opt->mode == MODE_TRAIN;
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        rs->param = plan_carve(at, rs->st->bytes_param);
        rs->grad = train ? plan_carve(at, rs->st->bytes_grad) : NULL;
        rs->konst = plan_carve(at, rs->st->bytes_const);
        for (int k = 0; k < rs->st->n_param; k++) {
            RankParam *q = &rs->rp[k];
            q->value = rs->param + q->p->offset;
            q->grad = train && q->p->grad_offset >= 0 ? rs->grad + q->p->grad_offset : NULL;
            for (int j = 0; j < optim_states(r->run->opt) && q->update; j++)
                q->state[j] = plan_carve(at, q->p->t.bytes);
        }
    }
}

void plan_carve_rest(Planner *p, char **at, char *slots)
{
    Rank *r = p->r;
    const PpPlan *plan = p->plan;
    r->work = plan_carve(at, p->work);
    r->work_aside = aside_wanted(r) ? plan_carve(at, p->work) : NULL;
    r->stat_copy = plan_carve(at, p->stats);
    for (int i = 0; i < plan->n_input; i++)
        if (r->chunk[i])
            r->chunk[i] = plan_carve(at, r->chunk_stride[i] ? r->chunk_stride[i] * p->m : align_up(plan->input[i].bytes));
    if (r->uses_scale)
        r->scale = plan_carve(at, (int64_t)PP_ALIGN * p->m);
    r->scale_host = r->scale; /* on a device stream.c has other places */
    memcpy(r->chunk_host, r->chunk, (size_t)plan->n_input * sizeof *r->chunk);
    for (int i = 0; i < plan->n_output && !r->on_device; i++)
        if (r->collect[i])
            r->collect[i] = plan_carve(at, tensor_bytes(&plan->output[i], r->collect_rows, plan->rows));
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        const PpParam *q = &plan->stage[c->user_stage]->param[c->user_param];
        if (c->user < 0)
            c->buf = plan_carve(at, q->t.bytes);
        char *mine =
            c->owner >= 0 ? r->stage[c->owner].rp[c->owner_param].grad : r->stage[c->user].rp[c->user_param].grad;
        if (c->message >= 0)
            r->msg[c->message].buf = c->user < 0 ? c->buf : mine;
        if (c->back >= 0)
            r->msg[c->back].buf = mine;
    }
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type >= SA_SEND_F && r->op[k].a.type <= SA_RECV_B)
            for (int j = r->op[k].first; j < r->op[k].first + r->op[k].count; j++)
                r->msg[j].buf = slots + p->inst[p->sent[j]].offset;
    for (int i = 0; i < p->n_fix; i++) {
        const RankParam *q = &r->stage[p->fix[i].local].rp[p->fix[i].param];
        r->msg[p->fix[i].msg].buf = p->fix[i].grad ? q->grad : q->value;
    }
}

PpStatus plan_point(Planner *p, char *slots)
{
    Rank *r = p->r;
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        const PpStage *st = rs->st;
        int64_t m = p->m;
        rs->in = plan_zeroed(m * st->n_input, sizeof(void *));
        rs->out = plan_zeroed(m * st->n_output, sizeof(void *));
        rs->dy = plan_zeroed(m * st->n_dy, sizeof(void *));
        rs->dx = plan_zeroed(m * st->n_dx, sizeof(void *));
        rs->out_again = plan_zeroed(m * st->n_output, sizeof(void *));
        rs->stash = plan_zeroed(m, sizeof(char *));
        rs->stash_again = plan_zeroed(m, sizeof(char *));
        rs->saved = plan_zeroed(m, sizeof(char *));
        if (!rs->in || !rs->out || !rs->dy || !rs->dx || !rs->stash || !rs->saved || !rs->out_again || !rs->stash_again)
            return plan_no_memory();
        for (int k = 0; k < p->m; k++) {
            for (int i = 0; i < st->n_input; i++) {
                const PpInput *in = &st->input[i];
                rs->in[k * st->n_input + i] = in->from == -1
                                                  ? r->chunk[in->from_output] + k * r->chunk_stride[in->from_output]
                                              : in->from == -2 ? r->scale + (int64_t)k * PP_ALIGN
                                                               : slots + p->inst[plan_in(p, l, i, k)].offset;
            }
            for (int o = 0; o < st->n_output; o++) {
                rs->out[k * st->n_output + o] = slots + p->inst[plan_out(p, l, o, k)].offset;
                rs->out_again[k * st->n_output + o] = slots + p->inst[plan_kept_out(p, l, o, k)].offset;
            }
            for (int j = 0; j < st->n_dy; j++)
                rs->dy[k * st->n_dy + j] = slots + p->inst[plan_dy(p, l, j, k)].offset;
            for (int j = 0; j < st->n_dx; j++)
                rs->dx[k * st->n_dx + j] = slots + p->inst[plan_dx(p, l, j, k)].offset;
            rs->stash[k] = slots + p->inst[plan_stash(p, l, k)].offset;
            rs->stash_again[k] = slots + p->inst[plan_kept_stash(p, l, k)].offset;
            rs->saved[k] = slots + p->inst[plan_saved(p, l, k)].offset;
        }
    }
    return PP_OK;
}
