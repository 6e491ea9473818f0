/* half.h - 16-bit floating-point numbers, binary16 and bfloat16, to double and back, rounded to
 * nearest even. */
#ifndef PPSPLIT_HALF_H
#define PPSPLIT_HALF_H

#include <stdint.h>

double half_to_double(uint16_t h);
uint16_t half_of_double(double v);
double bfloat_to_double(uint16_t h);
uint16_t bfloat_of_double(double v);

#endif
