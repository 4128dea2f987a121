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

// interrupted is for how long an end was kept from a message, beyond what is usual and at most for limit.
static uint64_t interrupted(const struct entry *e, uint64_t usual_gap, uint64_t usual_send, uint64_t limit) {
	uint64_t time = more_than(e->gap, usual_gap) + more_than(e->send, usual_send);
	return time < limit ? time : limit;
}

void attribute(struct attribution *a, const struct reservoir *client, const struct reservoir *server, struct typical usual) {
	a->examined = a->client = a->server = a->both = a->neither = a->undetermined = 0;
	a->excess = a->client_excess = a->server_excess = 0;
	for (size_t i = 0; i < client->count; i++) {
		const struct entry *sample = &client->heap[i];
		if (sample->value <= a->threshold)
			continue;
		a->examined++;
		uint64_t excess = more_than(sample->value, a->p50);
		uint64_t here = interrupted(sample, usual.client_gap, usual.client_send, excess), there = 0;
		const struct entry *found = reservoir_find(server, sample->seq);
		if (found)
			there = interrupted(found, usual.server_gap, usual.server_send, excess);
		a->excess += excess;
		a->client_excess += here;
		a->server_excess += there;
		if (here >= (excess + 1) / 2 && here >= there)
			a->client++;
		else if (there >= (excess + 1) / 2)
			a->server++;
		else if (here + there >= (excess + 1) / 2)
			a->both++;
		else if (!found && server->dropped && server->floor > (excess + 1) / 2)
			// What the server does not list took it at most the floor, and that might explain this one.
			a->undetermined++;
		else
			a->neither++;
	}
}
