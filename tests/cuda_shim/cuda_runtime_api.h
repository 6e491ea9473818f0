/* Nothing but the same declarations: CUDA has two headers. */
#include "cuda_runtime.h"
