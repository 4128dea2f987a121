// The course of a measurement: a coarse histogram for each interval of it, without gaps from its start to its end. When
// there is no room for another one, the intervals are made twice as long and merged in pairs; nothing is dropped.
#ifndef INTERVALS_H
#define INTERVALS_H

#include <stddef.h>
#include <stdint.h>

#include "hist.h"

#define MOST_INTERVALS 128

struct interval {
	uint64_t count, max; // of all samples, those out of range included
	uint64_t lost;       // messages without an answer
	uint32_t buckets[HIST_LENGTH(COARSE_BITS)]; // saturated at their largest number
};

struct intervals {
	uint64_t length; // ns
	size_t used;
	struct interval log[MOST_INTERVALS];
};

// intervals_reset starts anew, with the shortest multiple of length of which there is room for a measurement of so many
// ns. That many intervals are in use from the beginning.
void intervals_reset(struct intervals *log, uint64_t length, uint64_t duration);

// intervals_fold doubles the length.
void intervals_fold(struct intervals *log);

// interval_at is the interval of a moment, in ns after the start.
static inline struct interval *interval_at(struct intervals *log, uint64_t at) {
	uint64_t i = at / log->length;
	while (__builtin_expect(i >= MOST_INTERVALS, 0)) {
		intervals_fold(log);
		i = at / log->length;
	}
	if (i >= log->used)
		log->used = i + 1;
	return &log->log[i];
}

// intervals_add counts a sample of a message that was sent, or should have been, at ns after the start.
static inline void intervals_add(struct intervals *log, uint64_t at, uint64_t value) {
	struct interval *in = interval_at(log, at);
	in->count++;
	if (value > in->max)
		in->max = value;
	if (value <= HIST_HIGHEST) {
		uint32_t *bucket = &in->buckets[hist_index(value, COARSE_BITS)];
		*bucket += *bucket != UINT32_MAX;
	}
}

// interval_quantile is the upper edge of the bucket of a quantile, drawn in to the maximum: up to 3 % too large. 0 when
// there is no sample.
uint64_t interval_quantile(const struct interval *in, double q);

#endif
