#include "hist.h"

#include <string.h>

static const struct totals none = {.min = UINT64_MAX};

void hist_reset(struct hist *h) {
	memset(h, 0, sizeof *h);
	h->totals = none;
}

void coarse_reset(struct coarse *c) {
	memset(c, 0, sizeof *c);
	c->totals = none;
}

static uint64_t quantile(const struct totals *t, const uint64_t *buckets, size_t length, unsigned bits, double q) {
	uint64_t all = t->count + t->over_range;
	if (all == 0)
		return 0;
	double exact = q * (double)all;
	uint64_t rank = (uint64_t)exact;
	if ((double)rank < exact || rank == 0)
		rank++;
	uint64_t seen = t->below;
	for (size_t i = 0; i < length; i++) {
		seen += buckets[i];
		if (seen >= rank) {
			uint64_t high = hist_high(i, bits);
			return high < t->max ? high : t->max;
		}
	}
	return t->max;
}

uint64_t hist_quantile(const struct hist *h, double q) {
	return quantile(&h->totals, h->buckets, HIST_LENGTH(FINE_BITS), FINE_BITS, q);
}

uint64_t coarse_quantile(const struct coarse *c, double q) {
	return quantile(&c->totals, c->buckets, HIST_LENGTH(COARSE_BITS), COARSE_BITS, q);
}

uint64_t hist_beyond(const struct hist *h, uint64_t value) {
	uint64_t beyond = h->totals.over_range - h->totals.below;
	if (value > HIST_HIGHEST)
		return beyond;
	for (size_t i = hist_index(value, FINE_BITS) + 1; i < HIST_LENGTH(FINE_BITS); i++)
		beyond += h->buckets[i];
	return beyond;
}
