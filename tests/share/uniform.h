/* uniform.h - the same numbers in every run, evenly over [-1, 1) (Numerical Recipes, 7.1). */
#ifndef UNIFORM_H
#define UNIFORM_H

#include <stdint.h>

__attribute__((unused)) static float uniform(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

#endif
