#include "intervals.h"

#include <string.h>

void intervals_reset(struct intervals *log, uint64_t length, uint64_t duration) {
	memset(log, 0, sizeof *log);
	length = length ? length : 1;
	uint64_t fit = (duration + length * MOST_INTERVALS - 1) / (length * MOST_INTERVALS);
	log->length = length * (fit ? fit : 1);
	log->used = (duration + log->length - 1) / log->length;
}

static void merge(struct interval *into, const struct interval *from) {
	into->count += from->count;
	into->lost += from->lost;
	if (from->max > into->max)
		into->max = from->max;
	for (size_t i = 0; i < HIST_LENGTH(COARSE_BITS); i++) {
		uint64_t sum = (uint64_t)into->buckets[i] + from->buckets[i];
		into->buckets[i] = sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
	}
}

void intervals_fold(struct intervals *log) {
	for (size_t i = 1; i < log->used; i++) {
		if (i % 2 == 1)
			merge(&log->log[i / 2], &log->log[i]);
		else
			log->log[i / 2] = log->log[i];
	}
	log->used = (log->used + 1) / 2;
	memset(&log->log[log->used], 0, (MOST_INTERVALS - log->used) * sizeof log->log[0]);
	log->length *= 2;
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
