/*
 * table.c - numbers of the stages beside one another.
 *
 * In: quantities, each with a number for each stage.  Out: a table, whose last row has the largest
 * of each divided by the mean.
 */
#include <math.h>

#include "figures.h"

/* NAN: there is nothing to compare. */
static double unevenness(const Quantity *q, uint32_t stages)
{
    double most = 0, sum = 0;
    for (uint32_t t = 0; t < stages; t++) {
        most = fmax(most, q->value[t]);
        sum += q->value[t];
    }
    return sum > 0 ? most / (sum / stages) : (double)NAN;
}

void put_balance(Text *t, uint32_t stages, const char *const *label, uint32_t n,
                 const Quantity *quantity)
{
    text_add(t, "<table><tr><th>stage</th>%s", label ? "<th>modules</th>" : "");
    for (uint32_t k = 0; k < n; k++)
        text_add(t, "<th class=\"n\">%s</th>", quantity[k].name);
    for (uint32_t i = 0; i < stages; i++) {
        text_add(t, "</tr>\n<tr><td>%u</td>", i);
        if (label)
            text_add(t, "<td>%s</td>", label[i] ? html_text(t->a, label[i]) : "");
        for (uint32_t k = 0; k < n; k++)
            text_add(t, "<td class=\"n\">%s</td>", quantity[k].text[i]);
    }
    text_add(t, "</tr>\n<tr><th%s>most over mean</th>", label ? " colspan=\"2\"" : "");
    for (uint32_t k = 0; k < n; k++) {
        const double most = unevenness(&quantity[k], stages);
        text_add(t, "<th class=\"n\">%s</th>",
                 isfinite(most) ? arena_printf(t->a, "%.2f", most) : "");
    }
    text_add(t, "</tr>\n</table>\n");
}
