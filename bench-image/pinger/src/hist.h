// Histograms with the layout of HdrHistogram: each power of two is divided into equal parts, so that the width of a
// bucket is at most a fixed fraction of its values.
#ifndef HIST_H
#define HIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

// HIST_HIGHEST is the largest value with a bucket: 60 s in nanoseconds. HIST_LOWEST is the smallest.
#define HIST_LOWEST 1ull
#define HIST_HIGHEST 60000000000ull

// FINE_BITS gives three significant digits, COARSE_BITS buckets of 3 %.
#define FINE_BITS 11
#define COARSE_BITS 6

// HIST_LENGTH is the number of buckets of a histogram with 2^bits parts.
#define HIST_LENGTH(bits) ((size_t)(36 - (bits) + 2) << ((bits)-1))

// totals hold the exact values that the buckets cannot provide.
struct totals {
	// count is the number of samples in buckets, over_range the number of samples below HIST_LOWEST or above
	// HIST_HIGHEST, and below the number of the former.
	uint64_t count, over_range, below;
	// min and max cover all samples; sum and squares cover the samples in buckets.
	uint64_t min, max, sum;
	u128 squares;
};

struct hist {
	struct totals totals;
	uint64_t buckets[HIST_LENGTH(FINE_BITS)];
};

// coarse is for values that accompany the samples, such as the time in send.
struct coarse {
	struct totals totals;
	uint64_t buckets[HIST_LENGTH(COARSE_BITS)];
};

// hist_index returns the bucket of a value that is at most HIST_HIGHEST.
static inline size_t hist_index(uint64_t value, unsigned bits) {
	unsigned magnitude = 63 - (unsigned)__builtin_clzll(value | ((1ull << bits) - 1));
	unsigned shift = magnitude - (bits - 1);
	return ((size_t)shift << (bits - 1)) + (size_t)(value >> shift);
}

// hist_low and hist_high return the smallest and the largest value of a bucket.
static inline uint64_t hist_low(size_t index, unsigned bits) {
	size_t half = (size_t)1 << (bits - 1);
	if (index < 2 * half)
		return index;
	unsigned shift = (unsigned)(index / half) - 1;
	return (uint64_t)(index % half + half) << shift;
}

static inline uint64_t hist_high(size_t index, unsigned bits) { return hist_low(index + 1, bits) - 1; }

// totals_add counts a value and reports whether it belongs in a bucket.
static inline bool totals_add(struct totals *t, uint64_t value) {
	if (value < t->min)
		t->min = value;
	if (value > t->max)
		t->max = value;
	if (__builtin_expect(value < HIST_LOWEST || value > HIST_HIGHEST, 0)) {
		t->over_range++;
		t->below += value < HIST_LOWEST;
		return false;
	}
	t->count++;
	t->sum += value;
	t->squares += (u128)value * value;
	return true;
}

static inline void hist_add(struct hist *h, uint64_t value) {
	if (totals_add(&h->totals, value))
		h->buckets[hist_index(value, FINE_BITS)]++;
}

static inline void coarse_add(struct coarse *c, uint64_t value) {
	if (totals_add(&c->totals, value))
		c->buckets[hist_index(value, COARSE_BITS)]++;
}

void hist_reset(struct hist *h);
void coarse_reset(struct coarse *c);

// hist_quantile and coarse_quantile return the upper edge of the first bucket up to which at least a fraction q of the
// samples lies, limited to the true maximum. Samples above the range count as beyond every bucket. 0 without samples.
uint64_t hist_quantile(const struct hist *h, double q);
uint64_t coarse_quantile(const struct coarse *c, double q);
// hist_beyond returns the number of samples in buckets above the bucket of value, and above the range.
uint64_t hist_beyond(const struct hist *h, uint64_t value);

#endif
