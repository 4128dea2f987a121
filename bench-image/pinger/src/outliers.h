// The largest samples, and the local activity while they were in flight.
#ifndef OUTLIERS_H
#define OUTLIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// MOST_KEPT bounds the entries that either end keeps for a cell. The samples beyond p99.9 of 16 million fit.
#define MOST_KEPT 16384

// entry is a message that took long. At the client, value is its latency; at the server, the time for which the server
// had not polled for messages plus the time it took to answer.
struct entry {
	uint64_t value; // ns; entries are ranked by it
	uint64_t seq;   // number of the message in its cell
	uint64_t at;    // ns since the start of the measurement; client only
	uint64_t gap;   // ns for which this end did not poll while this message was or may have been in flight
	uint64_t send;  // ns in send
};

// reservoir keeps the MOST_KEPT entries with the largest values.
struct reservoir {
	size_t count;
	// floor is the smallest value kept once the reservoir is full, 0 before: values that are not larger need not be
	// offered.
	uint64_t floor;
	bool dropped;                    // something was offered and did not fit
	struct entry heap[MOST_KEPT];    // the smallest first, until reservoir_sort
};

void reservoir_reset(struct reservoir *r);
void reservoir_add(struct reservoir *r, struct entry e);
// reservoir_sort orders entries by message number. No entry can be added afterwards.
void reservoir_sort(struct reservoir *r);
// reservoir_rank orders entries by value, the largest first. No entry can be added afterwards.
void reservoir_rank(struct reservoir *r);
// reservoir_find finds a message in sorted entries, or returns NULL.
const struct entry *reservoir_find(const struct reservoir *r, uint64_t seq);

// interval_kind is the activity of the client when it was delayed.
enum interval_kind { BETWEEN_POLLS, IN_SEND };

// GAPS_KEPT is a power of two that is larger than the number of interruptions in a second of a busy machine.
#define GAPS_KEPT 8192

// gaps are the latest periods, in ticks, in which this end did not poll for messages.
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

// gaps_within adds up, in ticks and by kind, the parts of the gaps that lie between two moments. Gaps end in the order
// in which they were added.
void gaps_within(const struct gaps *g, uint64_t from, uint64_t to, uint64_t sums[2]);

// place states whose interruption a slow sample coincides with: half or more of its excess over p50 coincides with
// interruptions of the client, of the server, of both together, or of neither. A sample is undetermined if its message
// is missing in the server's full list.
enum place { AT_CLIENT, AT_SERVER, AT_BOTH, AT_NEITHER, UNDETERMINED, PLACES };
extern const char *const place_names[PLACES];

// MOST_LISTED bounds the outliers that are listed one by one: as many as a closed loop of 10 us has beyond p99.9 in half
// a second, 6 kB of text, and more than a reader can distinguish on a plot. The sums cover all samples that were
// examined.
#define MOST_LISTED 64

// outlier is one slow sample and the place of its cause. At a rate a stall delays many messages. Their slowest
// represents all messages with the same place that were in flight at the same time.
struct outlier {
	uint64_t at, value; // ns, as in its entry
	enum place place;
	uint64_t samples; // number of samples that it represents, itself included
	// How long each end was kept from the message beyond the usual time, in ns. If the server does not list the
	// message, its time is not known: the server lists its messages that took longer.
	uint64_t client, server;
	bool server_known;
};

// attribution states where the time of the outliers went.
struct attribution {
	uint64_t p50, threshold; // ns; outliers are the samples beyond the threshold, p99.9
	uint64_t beyond;         // outliers
	uint64_t examined;       // the outliers that were kept
	uint64_t places[PLACES]; // examined outliers by place
	// excess is the sum, over all examined samples, of the time beyond p50, in ns; client_excess and server_excess are
	// the parts of it that coincide with interruptions.
	uint64_t excess, client_excess, server_excess;
	// slowest holds listed outliers that are listed one by one, the slowest first.
	size_t listed;
	struct outlier slowest[MOST_LISTED];
};

// typical holds the usual times in ns, which are not interruptions and are subtracted.
struct typical {
	uint64_t client_gap, client_send, server_gap, server_send;
};

// attribute compares the lists of both ends: the client's must be ranked, the server's sorted.
void attribute(struct attribution *a, const struct reservoir *client, const struct reservoir *server, struct typical usual);

#endif
