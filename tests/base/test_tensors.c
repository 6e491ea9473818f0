/*
 * test_tensors.c - tensors of one .safetensors file and of several (base/file/tensors.h): names are
 * found in the right file, of a module too; an index that names other files than those beside it,
 * tensors that are not there, or a tensor twice, is refused with what is wrong.
 */
#include "base/file/tensors.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/ppsplit-tensors-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4][128];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
    return path[k];
}

/* A file with [2] of float32 under each name: the number and one more. */
static void put_tensors(const char *file, float number, const char *const *name, int n)
{
    StWriter w;
    const int64_t dim = 2;
    const float data[2] = {number, number + 1};
    stw_init(&w);
    for (int i = 0; i < n; i++)
        stw_declare(&w, name[i], 1, 1, &dim);
    int bad = stw_begin(&w, path_of(file));
    for (int i = 0; i < n && !bad; i++)
        stw_write(&w, data, sizeof data);
    if (bad || stw_end(&w, 0))
        abort();
}

static void put_text(const char *file, const char *text)
{
    FILE *f = fopen(path_of(file), "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
}

static float first(const TensorFiles *t, const char *name)
{
    float v = -1;
    const StTensor *s = tensors_find(t, name, NULL);
    if (s)
        memcpy(&v, s->data, sizeof v);
    return v;
}

static void check_found(void)
{
    TensorFiles t;
    char err[ST_ERR] = "", of_module[160];
    put_text("m.safetensors.index.json",
             "{\"metadata\": {\"total_size\": 24, \"more\": [1, {}]},\n \"weight_map\": {\"a.w\": "
             "\"one.safetensors\", \"b.w\": \"two.safetensors\",\n\"a.b\": \"one.safetensors\"}}\n");
    ok(!tensors_open(&t, path_of("one.safetensors"), err, sizeof err) && first(&t, "a.b") == 1,
       "one file %s", err);
    ok(first(&t, "b.w") == -1, "what another file has is not there");
    tensors_close(&t);
    ok(!tensors_open(&t, path_of("m.safetensors.index.json"), err, sizeof err) && t.n == 2,
       "two files %s", err);
    ok(first(&t, "a.w") == 1 && first(&t, "b.w") == 7 && first(&t, "c") == -1,
       "tensors of both, and none else");
    const StFile *file = NULL;
    ok(tensors_find(&t, "b.w", &file) && file == &t.file[1], "and where they stand");
    ok(!tensors_whole(&t, err, sizeof err), "both are whole");
    tensors_close(&t);
    snprintf(of_module, sizeof of_module, "net.0=%s", path_of("one.safetensors"));
    ok(!tensors_open(&t, of_module, err, sizeof err) && first(&t, "net.0.a.w") == 1 &&
           first(&t, "a.w") == -1 && first(&t, "net.0a.w") == -1,
       "of a module %s", err);
    tensors_close(&t);
    ok(!strcmp(tensors_path(of_module), of_module + 6) &&
           !strcmp(tensors_path("runs/lr=1/m"), "runs/lr=1/m"),
       "a module has no slash");
}

static void check_refused(const char *what, const char *index, const char *why)
{
    TensorFiles t;
    char err[ST_ERR] = "";
    put_text("bad.json", index);
    int bad = tensors_open(&t, path_of("bad.json"), err, sizeof err);
    ok(bad && strstr(err, why), "refused: %s: %s", what, strchr(err, ':') ? strchr(err, ':') : err);
    if (!bad)
        tensors_close(&t);
}

int main(void)
{
    static const char *const one[] = {"a.w", "a.b"}, *const two[] = {"b.w"}, *const twin[] = {"a.w"};
    if (!mkdtemp(folder))
        return 1;
    put_tensors("one.safetensors", 1, one, 2);
    put_tensors("two.safetensors", 7, two, 1);
    put_tensors("twin.safetensors", 9, twin, 1);
    check_found();
    check_refused("another folder", "{\"weight_map\": {\"a.w\": \"../one.safetensors\"}}",
                  "no file beside the index");
    check_refused("no name", "{\"weight_map\": {\"a.w\": \"\"}}", "no file beside the index");
    check_refused("not there", "{\"weight_map\": {\"a.w\": \"three.safetensors\"}}",
                  "three.safetensors: No such file");
    check_refused("not in it", "{\"weight_map\": {\"b.w\": \"one.safetensors\"}}",
                  "'b.w' is not in one.safetensors");
    check_refused("twice",
                  "{\"weight_map\": {\"a.b\": \"one.safetensors\", \"a.w\": \"twin.safetensors\"}}",
                  "both have a tensor 'a.w'");
    check_refused("no map", "{\"metadata\": {}}", "no weight_map");
    check_refused("no JSON", "{\"weight_map\": {\"a.w\" \"one.safetensors\"}}", "byte");
    check_refused("more behind it", "{\"weight_map\": {\"a.w\": \"one.safetensors\"}} {", "after the end");
    static const char *const all[] = {"one.safetensors", "two.safetensors", "twin.safetensors",
                                      "m.safetensors.index.json", "bad.json"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unlink(path_of(all[i]));
    rmdir(folder);
    return tap_done();
}
