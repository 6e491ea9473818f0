/* hook.c - the callback between steps of generated stages (stage_run.h), in build/tests/libpp.so
 * beside the runtime's gemm.c and conv.c. */
extern void (*pp_hook)(unsigned);
void (*pp_hook)(unsigned);
