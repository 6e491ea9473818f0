#!/usr/bin/env bash
# A product that the library refuses ends a run with a message and exit 3, on threads of OpenMP too; nothing goes on with numbers that never were.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
# The head's product is large enough for the library.
"$build/models/make_gpt" --vocab 512 --dim 64 --layers 2 --heads 2 --seq 64 --rows 4 -o gpt.onnx && "$build/models/make_tokens" --rows 8 --seq 64 --vocab 512 || exit 1
ok "splits and builds" split_model gpt.onnx out h.1:begin --loss cross_entropy
ldd out/pipeline | grep -q libdnnl || { skip "a refused product" "no oneDNN"; plan_done; exit; }
cat >refuse.c <<'END'
int dnnl_sgemm(void);
int dnnl_sgemm(void) { return 1; }  /* dnnl_out_of_memory */
END
ok "a library that refuses" ${CC:-cc} -shared -fPIC -o refuse.so refuse.c
for threads in 1 2; do
    LD_PRELOAD=$work/refuse.so timeout $patience out/pipeline train --data input_ids=x.npy --data target=target.npy --batch 8 --microbatches 2 --threads $threads --checkpoint saved >said 2>err
    is "$threads threads: exit" $? 3
    is "$threads threads: one message" "$(sed 's/rank [01], action .* of stage [01].* failed/WHERE/' err)" \
        "pipeline: error: WHERE: a product of float32: oneDNN refused it (dnnl_sgemm)"
    ok "$threads threads: no checkpoint" test ! -e saved
done
plan_done
