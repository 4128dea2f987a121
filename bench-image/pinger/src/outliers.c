#include "outliers.h"

#include <stdlib.h>
#include <string.h>

void reservoir_reset(struct reservoir *r) { memset(r, 0, sizeof *r); }

static void sift_down(struct entry *heap, size_t count, size_t i, struct entry e) {
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= count)
			break;
		if (child + 1 < count && heap[child + 1].value < heap[child].value)
			child++;
		if (heap[child].value >= e.value)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = e;
}

void reservoir_add(struct reservoir *r, struct entry e) {
	if (r->count < MOST_KEPT) {
		size_t i = r->count++;
		while (i > 0 && r->heap[(i - 1) / 2].value > e.value) {
			r->heap[i] = r->heap[(i - 1) / 2];
			i = (i - 1) / 2;
		}
		r->heap[i] = e;
		if (r->count == MOST_KEPT)
			r->floor = r->heap[0].value;
		return;
	}
	r->dropped = true;
	if (e.value <= r->floor)
		return;
	sift_down(r->heap, r->count, 0, e);
	r->floor = r->heap[0].value;
}

static int by_seq(const void *a, const void *b) {
	uint64_t x = ((const struct entry *)a)->seq, y = ((const struct entry *)b)->seq;
	return x < y ? -1 : x > y;
}

void reservoir_sort(struct reservoir *r) { qsort(r->heap, r->count, sizeof r->heap[0], by_seq); }

static int by_value(const void *a, const void *b) {
	uint64_t x = ((const struct entry *)a)->value, y = ((const struct entry *)b)->value;
	return x > y ? -1 : x < y ? 1 : by_seq(a, b);
}

void reservoir_rank(struct reservoir *r) { qsort(r->heap, r->count, sizeof r->heap[0], by_value); }

const struct entry *reservoir_find(const struct reservoir *r, uint64_t seq) {
	struct entry key = {.seq = seq};
	return bsearch(&key, r->heap, r->count, sizeof r->heap[0], by_seq);
}

void gaps_within(const struct gaps *g, uint64_t from, uint64_t to, uint64_t sums[2]) {
	sums[BETWEEN_POLLS] = sums[IN_SEND] = 0;
	uint64_t oldest = g->written > GAPS_KEPT ? g->written - GAPS_KEPT : 0;
	for (uint64_t i = g->written; i > oldest; i--) {
		size_t at = (i - 1) & (GAPS_KEPT - 1);
		if (g->latest[at].to <= from)
			break;
		uint64_t start = g->latest[at].from > from ? g->latest[at].from : from;
		uint64_t stop = g->latest[at].to < to ? g->latest[at].to : to;
		if (stop > start)
			sums[g->latest[at].kind] += stop - start;
	}
}

static uint64_t more_than(uint64_t value, uint64_t usual) { return value > usual ? value - usual : 0; }

// interrupted returns how long an end was kept from a message, beyond the usual time.
static uint64_t interrupted(const struct entry *e, uint64_t usual_gap, uint64_t usual_send) {
	return more_than(e->gap, usual_gap) + more_than(e->send, usual_send);
}

static uint64_t at_most(uint64_t value, uint64_t limit) { return value < limit ? value : limit; }

const char *const place_names[PLACES] = {"client", "server", "both", "neither", "undetermined"};

// place_of returns the place of an outlier from the length of the interruptions at the client (here) and at the server
// (there).
static enum place place_of(uint64_t excess, uint64_t here, uint64_t there, bool known, const struct reservoir *server) {
	uint64_t half = (excess + 1) / 2;
	if (here >= half && here >= there)
		return AT_CLIENT;
	if (there >= half)
		return AT_SERVER;
	if (here + there >= half)
		return AT_BOTH;
	// An unlisted message took the server at most the floor, which might explain this outlier.
	if (!known && server->dropped && server->floor > half)
		return UNDETERMINED;
	return AT_NEITHER;
}

static bool together(const struct outlier *x, const struct outlier *y) {
	return x->place == y->place && x->at < y->at + y->value && y->at < x->at + x->value;
}

// tell counts an outlier under a slower one that represents it, or lists it if there is room.
static void tell(struct attribution *a, const struct outlier *o) {
	for (size_t i = 0; i < a->listed; i++) {
		if (together(&a->slowest[i], o)) {
			a->slowest[i].samples++;
			return;
		}
	}
	if (a->listed < MOST_LISTED)
		a->slowest[a->listed++] = *o;
}

void attribute(struct attribution *a, const struct reservoir *client, const struct reservoir *server, struct typical usual) {
	memset(a->places, 0, sizeof a->places);
	a->examined = a->excess = a->client_excess = a->server_excess = a->listed = 0;
	for (size_t i = 0; i < client->count; i++) {
		const struct entry *sample = &client->heap[i], *found = reservoir_find(server, sample->seq);
		if (sample->value <= a->threshold)
			break;
		struct outlier o = {.at = sample->at, .value = sample->value, .samples = 1, .server_known = found || !server->dropped};
		o.client = interrupted(sample, usual.client_gap, usual.client_send);
		if (found)
			o.server = interrupted(found, usual.server_gap, usual.server_send);
		uint64_t excess = more_than(sample->value, a->p50);
		uint64_t here = at_most(o.client, excess), there = at_most(o.server, excess);
		o.place = place_of(excess, here, there, found, server);
		a->examined++;
		a->places[o.place]++;
		a->excess += excess;
		a->client_excess += here;
		a->server_excess += there;
		tell(a, &o);
	}
}
