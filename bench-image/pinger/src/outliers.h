// The largest samples, and what went on locally while they were under way.
#ifndef OUTLIERS_H
#define OUTLIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// MOST_KEPT bounds what either end keeps of a cell. Samples beyond p99.9 of 16 million fit.
#define MOST_KEPT 16384

// entry is one message that took long. At the client value is its latency, at the server the time for which the
// server had not looked for messages, and took to answer.
struct entry {
	uint64_t value; // ns; what entries are ranked by
	uint64_t seq;   // number of the message in its cell
	uint64_t at;    // ns since the start of the measurement; client only
	uint64_t gap;   // ns for which this end did not look for messages while this one was or may have been under way
	uint64_t send;  // ns in send
};

// reservoir keeps the MOST_KEPT entries with the largest values.
struct reservoir {
	size_t count;
	// floor is the smallest value kept once it is full, 0 before: what is not larger need not be offered.
	uint64_t floor;
	bool dropped;                    // something was offered and did not fit
	struct entry heap[MOST_KEPT];    // the smallest first, until reservoir_sort
};

void reservoir_reset(struct reservoir *r);
void reservoir_add(struct reservoir *r, struct entry e);
// reservoir_sort orders entries by their message's number. Nothing can be added any more.
void reservoir_sort(struct reservoir *r);
// reservoir_rank orders entries by their values, the largest first. Nothing can be added any more.
void reservoir_rank(struct reservoir *r);
// reservoir_find looks for a message in sorted entries; NULL if it is not there.
const struct entry *reservoir_find(const struct reservoir *r, uint64_t seq);

// interval_kind says what the client was doing when it was held up.
enum interval_kind { BETWEEN_POLLS, IN_SEND };

// GAPS_KEPT is a power of two: more interruptions than fit into a second of a busy machine.
#define GAPS_KEPT 8192

// gaps are the latest times, in ticks, for which this end did not look for messages.
struct gaps {
	uint64_t written;
	struct {
		uint64_t from, to;
		enum interval_kind kind;
	} latest[GAPS_KEPT];
};

static inline void gaps_add(struct gaps *g, enum interval_kind kind, uint64_t from, uint64_t to) {
	size_t i = g->written++ & (GAPS_KEPT - 1);
	g->latest[i].from = from;
	g->latest[i].to = to;
	g->latest[i].kind = kind;
}

// gaps_within adds up, in ticks and by kind, the parts of the gaps that lie between two moments. Gaps end in the
// order in which they were added.
void gaps_within(const struct gaps *g, uint64_t from, uint64_t to, uint64_t sums[2]);

// place says with whose interruption a slow sample coincides: half or more of its excess over p50 with one of the
// client, of the server, of both together, of neither. Undetermined is one whose message fell out of the server's list.
enum place { AT_CLIENT, AT_SERVER, AT_BOTH, AT_NEITHER, UNDETERMINED, PLACES };
extern const char *const place_names[PLACES];

// MOST_TOLD bounds the outliers that are told one by one: all that a closed loop of 10 us finds beyond p99.9 in half a
// second, 6 kB of text, and more than anybody can tell apart on a plot. The sums are of all that were examined.
#define MOST_TOLD 64

// outlier is one slow sample and the place of its cause. At a rate a stall holds up many messages, of which it is the
// slowest: it stands for all of its place that were under way at the same time as itself.
struct outlier {
	uint64_t at, value; // ns: as of its entry
	enum place place;
	uint64_t samples; // for which it stands, itself included
	// For how long each end was kept from the message beyond what is usual, in ns. What the server does not list is not
	// known: its other messages took it longer.
	uint64_t client, server;
	bool server_known;
};

// attribution says where the time of the outliers went.
struct attribution {
	uint64_t p50, threshold; // ns; outliers are the samples beyond the threshold, p99.9
	uint64_t beyond;         // outliers
	uint64_t examined;       // of these, the ones that were kept
	uint64_t places[PLACES]; // of those examined, by place
	// excess is the sum over all examined of what they took more than p50, in ns, and what of it coincides with
	// interruptions.
	uint64_t excess, client_excess, server_excess;
	// slowest are told one by one, the slowest first.
	size_t told;
	struct outlier slowest[MOST_TOLD];
};

// typical is what is no interruption: the usual times in ns, to be taken off.
struct typical {
	uint64_t client_gap, client_send, server_gap, server_send;
};

// attribute compares both ends' lists: the client's ranked, the server's sorted.
void attribute(struct attribution *a, const struct reservoir *client, const struct reservoir *server, struct typical usual);

#endif
