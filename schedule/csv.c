/*
 * csv.c - the text form of schedules.
 *
 * In: a CSV file (one row per rank, one cell per action, empty = idle), or rows in memory.  Out:
 * the other of the two.
 *
 *     action   := simple | compound | ""
 *     simple   := <stage> <type> [<microbatch>] ["@" <peer stage>]      (R: "@" <parts>)
 *     compound := "(" simple (";" simple)* ")" "OVERLAP_F_B"
 *
 * The parser is strict: every byte of a cell must be part of the action.  Numbers are bounded by
 * what the file itself can hold, so a hostile file cannot make anybody allocate more than a
 * multiple of its own size.
 */
#include "rows.h"

#include "base/file/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_name[SA_TYPES] = {
    "",        "F",       "B",           "I",
    "W",       "R",       "SEND_F",      "RECV_F",
    "SEND_B",  "RECV_B",  "WAIT_SEND_F", "WAIT_SEND_B",
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
    "OFFLOAD", "FETCH",   "SEND_P",      "RECV_P",
    "SEND_GP", "RECV_GP", "WAIT_OFFLOAD",
};

const char *sched_type_name(int type)
{
    return type >= 0 && type < SA_TYPES ? type_name[type] : "?";
}

/* ---- Printing ---- */

/* The stage on the other side when the text has no "@": the neighbour. */
static int default_peer(int type, int stage)
{
    return sched_toward(type) ? stage + sched_toward(type) : -1;
}

int sched_action_text(char *buf, size_t size, const SchedAction *a)
{
    char mb[16] = "", peer[16] = "";
    if (a->type == SA_IDLE)
        return snprintf(buf, size, "%s", "");
    if (a->microbatch >= 0)
        snprintf(mb, sizeof mb, "%d", a->microbatch);
    if ((sched_has_peer(a->type) || a->type == SA_R) &&
        a->peer != default_peer(a->type, a->stage))
        snprintf(peer, sizeof peer, "@%d", a->peer);
    return snprintf(buf, size, "%d%s%s%s", a->stage, sched_type_name(a->type), mb, peer);
}

int sched_refuse(SchedError *e, const Schedule *s, int rank, int index, const char *fmt, ...)
{
    char action[64], why[sizeof e->text / 2];
    const int cell = sched_cell(&s->row[rank], index);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    sched_action_text(action, sizeof action, &s->row[rank].a[index]);
    return sched_fail(e, SCHED_EREFUSED, rank, cell, "rank %d, cell %d (%s): %s", rank, cell,
                      action, why);
}

static void put_row(FILE *f, const SchedRow *row)
{
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        char buf[96];
        int part = a->overlap & SCHED_PART,
            first =
                part && (i == 0 || !(a[-1].overlap & SCHED_PART) || (a[-1].overlap & SCHED_LAST));
        sched_action_text(buf, sizeof buf, a);
        fprintf(f, "%s%s%s%s", i == 0 ? "" : part && !first ? ";" : ",", first ? "(" : "", buf,
                part && (a->overlap & SCHED_LAST) ? ")OVERLAP_F_B" : "");
    }
}

void sched_write(const Schedule *s, FILE *f)
{
    for (int r = 0; r < s->ranks; r++) {
        put_row(f, &s->row[r]);
        fputc('\n', f);
    }
}

char *sched_text(const Schedule *s, size_t *len)
{
    Memory m;
    FILE *f = memory_open(&m);
    for (int r = 0; f && r < s->ranks; r++) {
        fputs(r ? "\n" : "", f);
        put_row(f, &s->row[r]);
    }
    if (memory_close(f, &m))
        return NULL;
    if (len)
        *len = m.n;
    return m.at;
}

/* ---- Parsing ---- */

static const char *parse_int(const char *p, const char *end, int *out)
{
    int v = 0;
    if (p == end || *p < '0' || *p > '9' ||
        (*p == '0' && p + 1 < end && p[1] >= '0' && p[1] <= '9'))
        return NULL;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (v > (SCHED_MAX_CELLS - 9) / 10)
            return NULL;
        v = v * 10 + (*p - '0');
    }
    *out = v;
    return p;
}

/* NULL, or what is wrong: activations go to later stages, gradients to earlier ones. */
static const char *bad_peer(const SchedAction *a)
{
    const int to = sched_toward(a->type);
    if (to < 0 && a->peer < 0)
        return "stage 0 has no earlier stage";
    if (to == 0)
        return a->peer >= 0 && a->peer != a->stage ? NULL
                                                   : "it needs the other stage, as in 0SEND_P@3";
    return (to > 0) == (a->peer > a->stage) && a->peer != a->stage ? NULL
           : to > 0 ? "its peer must be a later stage"
                    : "its peer must be an earlier stage";
}

/* NULL if [p, end) is one simple action, else the reason why not. */
static const char *parse_simple(const char *p, const char *end, SchedAction *a)
{
    int best = 0;
    size_t best_len = 0;
    *a = sched_act(SA_IDLE, -1, -1);
    if (!(p = parse_int(p, end, &a->stage)))
        return "an action begins with a stage number";
    const char *word = p;
    while (p < end && ((*p >= 'A' && *p <= 'Z') || *p == '_'))
        p++;
    for (int t = 1; t < SA_TYPES; t++)
        if (strlen(type_name[t]) == (size_t)(p - word) &&
            memcmp(type_name[t], word, (size_t)(p - word)) == 0) {
            best = t;
            best_len = (size_t)(p - word);
        }
    if (!best_len)
        return "no action has this name";
    a->type = (uint8_t)best;
    if (p < end && *p != '@') {
        if (!sched_has_microbatch(best))
            return "this action has no microbatch";
        if (!(p = parse_int(p, end, &a->microbatch)))
            return "a microbatch number is expected";
    } else if (sched_has_microbatch(best)) {
        return "the microbatch number is missing";
    }
    a->peer = default_peer(best, a->stage);
    if (p < end && *p == '@') {
        if (!sched_has_peer(best) && best != SA_R)
            return "only sends, receives and their waits have a peer";
        if (!(p = parse_int(p + 1, end, &a->peer)))
            return best == SA_R ? "expected the parts to compute again after '@', one bit for each"
                                : "a stage number is expected after '@'";
        if (best == SA_R && (a->peer < 1 || a->peer > SCHED_CHEAP))
            return "the parts to compute again are a number from 1 to 255";
    }
    if (p != end)
        return "there is more text after the action";
    return sched_has_peer(best) ? bad_peer(a) : NULL;
}

int sched_action_parse(const char *text, SchedAction *a)
{
    return parse_simple(text, text + strlen(text), a) == NULL;
}

static void trim(const char **p, const char **end)
{
    while (*p < *end && (**p == ' ' || **p == '\t'))
        ++*p;
    while (*p < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t'))
        --*end;
}

static const char *parse_cell(const char *p, const char *end, SchedRow *row)
{
    static const char tail[] = ")OVERLAP_F_B";
    size_t n_tail = sizeof tail - 1;
    SchedAction a;
    const char *why;
    trim(&p, &end);
    if (end - p >= 2 && *p == '"' && end[-1] == '"') {
        p++;
        end--;
        trim(&p, &end);
    }
    if (p == end) {
        sched_push(row, sched_act(SA_IDLE, -1, -1));
        return NULL;
    }
    if (*p != '(') {
        if (!(why = parse_simple(p, end, &a)))
            sched_push(row, a);
        return why;
    }
    if ((size_t)(end - p) < n_tail + 1 || memcmp(end - n_tail, tail, n_tail) != 0)
        return "a compound ends in ')OVERLAP_F_B'";
    end -= n_tail;
    for (p++;;) {
        const char *semi = memchr(p, ';', (size_t)(end - p)), *stop = semi ? semi : end, *q = p;
        const char *part_end = stop;
        trim(&q, &part_end);
        if ((why = parse_simple(q, part_end, &a)))
            return why;
        if (!sched_is_compute(a.type))
            return "a compound holds computations only";
        a.overlap = (uint8_t)(semi ? SCHED_PART : SCHED_PART | SCHED_LAST);
        sched_push(row, a);
        if (!semi)
            return NULL;
        p = semi + 1;
    }
}

/* Fills rank_of from the rows. */
static int find_rank(Schedule *s, SchedError *e)
{
    for (int i = 0; i < s->stages; i++)
        s->rank_of[i] = -1;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            if (a->type == SA_IDLE)
                continue;
            if (s->rank_of[a->stage] < 0)
                s->rank_of[a->stage] = r;
            if (s->rank_of[a->stage] != r)
                return sched_refuse(e, s, r, i,
                                    "stage %d is on rank %d already; a stage lives on one rank",
                                    a->stage, s->rank_of[a->stage]);
        }
    for (int i = 0; i < s->stages; i++)
        if (s->rank_of[i] < 0)
            return sched_fail(e, SCHED_EREFUSED, -1, -1,
                              "stage %d is on no rank, though stage %d is used", i, s->stages - 1);
    return SCHED_OK;
}

/* Numbers are bounded by the work a file describes: each (stage, microbatch) needs a forward of its
 * own. */
static int finish(Schedule *s, const char *origin, SchedError *e)
{
    int64_t forwards = 0;
    int top_stage = -1, top_mb = -1, backward = 0;
    for (int r = 0; r < s->ranks; r++) {
        int actions = 0;
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            actions += a->type != SA_IDLE;
            if (a->stage > top_stage)
                top_stage = a->stage;
            if (a->microbatch > top_mb)
                top_mb = a->microbatch;
            forwards += a->type == SA_F;
            backward |= a->type == SA_B || a->type == SA_I || a->type == SA_W;
            s->complete |= sched_is_send(a->type) || sched_is_recv(a->type);
        }
        if (!actions)
            return sched_fail(e, SCHED_EREFUSED, r, 0, "%s: row %d (rank %d) has no action", origin,
                              r, r);
    }
    if (forwards == 0)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s: there is no forward in this schedule",
                          origin);
    if ((int64_t)(top_stage + 1) * (top_mb + 1) > forwards)
        return sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s: %d stages with %d microbatches need %lld forwards, but there are %lld", origin,
            top_stage + 1, top_mb + 1, (long long)(top_stage + 1) * (top_mb + 1),
            (long long)forwards);
    s->stages = top_stage + 1;
    s->microbatches = top_mb + 1;
    s->infer = !backward;
    free(s->rank_of);
    if (!(s->rank_of = malloc((size_t)s->stages * sizeof *s->rank_of)))
        return sched_nomem(e);
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            if (a->type != SA_R && a->peer >= s->stages)
                return sched_fail(e, SCHED_EREFUSED, r, sched_cell(&s->row[r], i),
                                  "%s: rank %d, cell %d (%d%s%d): there is no stage %d", origin, r,
                                  sched_cell(&s->row[r], i), a->stage, sched_type_name(a->type),
                                  a->microbatch, a->peer);
        }
    return find_rank(s, e);
}

static int parse_rows(const char *text, size_t len, const char *origin, Schedule *s, SchedError *e)
{
    const char *p = text, *end = text + len;
    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (end > p && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        const char *line_end = stop > p && stop[-1] == '\r' ? stop - 1 : stop;
        int r = s->ranks, cell = 0;
        if (!memory_added(&s->row, &s->ranks, sizeof *s->row))
            return sched_nomem(e);
        if (p == line_end)
            return sched_fail(e, SCHED_EREFUSED, r, 0, "%s: row %d (rank %d) is empty", origin, r,
                              r);
        for (const char *c = p; c <= line_end; cell++) {
            const char *comma = memchr(c, ',', (size_t)(line_end - c)),
                       *cell_end = comma ? comma : line_end;
            int n = s->row[r].n;
            const char *why = parse_cell(c, cell_end, &s->row[r]);
            for (; !why && n < s->row[r].n; n++)
                s->row[r].a[n].cell = cell + 1;
            if (why) {
                int shown = cell_end - c > 80 ? 80 : (int)(cell_end - c);
                char safe[81];
                for (int i = 0; i < shown; i++)
                    safe[i] = c[i] >= 32 && c[i] < 127 ? c[i] : '?';
                safe[shown] = 0;
                return sched_fail(e, SCHED_EREFUSED, r, cell,
                                  "%s: row %d (rank %d), cell %d '%s': %s", origin, r, r, cell,
                                  safe, why);
            }
            c = cell_end + 1;
        }
        p = stop + 1;
    }
    if (s->ranks == 0)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s: the file is empty", origin);
    return sched_rows_ok(s, e);
}

int sched_parse(const char *text, size_t len, const char *origin, Schedule **out, SchedError *e)
{
    Schedule *s = sched_new("file", 0, 0, 0);
    int st;
    *out = NULL;
    if (!s)
        return sched_nomem(e);
    if (len && memchr(text, 0, len)) {
        sched_free(s);
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s is no schedule file, which is text (CSV)",
                          origin);
    }
    if ((st = parse_rows(text, len, origin, s, e)) || (st = finish(s, origin, e)) ||
        (st = sched_wait_reduce(s, e))) {
        sched_free(s);
        return st;
    }
    *out = s;
    return SCHED_OK;
}

char *sched_read(const char *path, size_t *n, SchedError *e)
{
    FILE *f = fopen(path, "rb");
    size_t cap = 0, got = 1;
    char *text = NULL;
    *n = 0;
    file_note_read(path);
    while (f && got) {
        if (*n == cap) {
            char *p = realloc(text, cap = cap ? cap * 2 : 1 << 16);
            if (!p) {
                free(text);
                fclose(f);
                sched_nomem(e);
                return NULL;
            }
            text = p;
        }
        *n += got = fread(text + *n, 1, cap - *n, f);
    }
    const int bad = !f || ferror(f);
    if (bad)
        sched_fail(e, SCHED_ERESOURCE, -1, -1, "%s: %s", path, strerror(errno));
    if (f)
        fclose(f);
    if (bad)
        free(text);
    return bad ? NULL : text;
}

static int is_rows(const char *at, size_t n, const void *of)
{
    SchedError e;
    Schedule *s;
    (void)of;
    const int is = !sched_parse(at, n, "", &s, &e);
    sched_free(s);
    return is;
}

int sched_put(const Schedule *s, FileWhole *w, const char *path)
{
    if (!file_begin_ours(w, path, &(FileOurs){is_rows, NULL, "a schedule"}))
        return -1;
    sched_write(s, w->f);
    return file_end(w);
}

int sched_load(const char *path, Schedule **out, SchedError *e)
{
    size_t n;
    char *text = sched_read(path, &n, e);
    *out = NULL;
    int st = text ? sched_parse(text, n, path, out, e) : e->status;
    free(text);
    return st;
}
