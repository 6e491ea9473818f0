/*
 * fxname.c - what names say: that of an fx node ("mul_3"), of a kind and a number, and a
 * parameter's path, seen from the scope of a node.
 */
#include <stdlib.h>
#include <string.h>

#include "fx.h"

/* The length of a name without its number. */
static size_t base_length(const char *name)
{
    size_t n = strlen(name), k = n;
    while (k > 0 && name[k - 1] >= '0' && name[k - 1] <= '9')
        k--;
    return k < n && k > 1 && name[k - 1] == '_' ? k - 1 : n;
}

long fx_number(const char *name)
{
    size_t n = base_length(name);
    return name[n] ? strtol(name + n + 1, NULL, 10) : 0;
}

bool fx_is_one_of(const char *name, const char *const *base)
{
    for (; *base; base++)
        if (base_length(name) == strlen(*base) && !strncmp(name, *base, strlen(*base)))
            return true;
    return false;
}

bool fx_same_base(const char *a, const char *b)
{
    size_t n = base_length(a);
    return n == base_length(b) && !strncmp(a, b, n);
}

const char *fx_leaf(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? dot + 1 : target;
}

bool fx_is_own(const char *target, const char *scope)
{
    size_t n = (size_t)(fx_leaf(target) - target);
    n -= n > 0;
    return n == strlen(scope) && !strncmp(target, scope, n);
}
