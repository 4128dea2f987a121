#include "intervals.h"

#include <string.h>

void intervals_reset(struct intervals *log, uint64_t length, uint64_t duration) {
	memset(log, 0, sizeof *log);
	length = length ? length : 1;
	uint64_t fit = (duration + length * MOST_INTERVALS - 1) / (length * MOST_INTERVALS);
	log->length = length * (fit ? fit : 1);
	log->used = (duration + log->length - 1) / log->length;
}

uint64_t interval_quantile(const struct interval *in, double q) {
	double exact = q * (double)in->count;
	uint64_t rank = (uint64_t)exact, seen = 0;
	if ((double)rank < exact || rank == 0)
		rank++;
	for (size_t i = 0; i < HIST_LENGTH(COARSE_BITS); i++) {
		seen += in->buckets[i];
		if (seen >= rank) {
			uint64_t high = hist_high(i, COARSE_BITS);
			return high < in->max ? high : in->max;
		}
	}
	return in->max;
}
