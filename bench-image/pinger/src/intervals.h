// The parts of a measurement: a coarse histogram for each interval, without gaps from its start to its end.
#ifndef INTERVALS_H
#define INTERVALS_H

#include <stddef.h>
#include <stdint.h>

#include "hist.h"

#define MOST_INTERVALS 128

struct interval {
	uint64_t count, max; // of all samples, those out of range included
	uint64_t lost;       // messages without an answer
	uint32_t buckets[HIST_LENGTH(COARSE_BITS)]; // saturating
};

struct intervals {
	uint64_t length; // ns
	size_t used;
	struct interval log[MOST_INTERVALS];
};

// intervals_reset clears the intervals and sets their length to the smallest multiple of length at which a measurement
// of duration ns fits.
void intervals_reset(struct intervals *log, uint64_t length, uint64_t duration);

// interval_at returns the interval of a moment, in ns after the start; the last one for moments after the duration.
static inline struct interval *interval_at(struct intervals *log, uint64_t at) {
	uint64_t i = at / log->length;
	if (i >= log->used)
		i = log->used - 1;
	return &log->log[i];
}

// intervals_add counts a sample of a message that was sent, or should have been sent, at ns after the start.
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

// interval_quantile returns the upper edge of the bucket of a quantile, limited to the maximum: up to 3 % too large. 0
// when there is no sample.
uint64_t interval_quantile(const struct interval *in, double q);

#endif
