// One cell as the client measures it: a protocol, a size and a rate, over a path that is open already.
#ifndef CELL_H
#define CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hist.h"
#include "intervals.h"
#include "net.h"
#include "outliers.h"

// window remembers when the latest messages were sent, and what became of them.
struct window {
	uint64_t *sent; // by number modulo length: ticks, or one of the states below
	uint64_t length;
};

#define ANSWERED 0ull
#define LOST 1ull

struct cell {
	// What to do.
	struct path path;
	struct link *control;
	enum protocol protocol;
	size_t size;
	double rate; // messages a second on an absolute schedule; 0: the next follows the answer to the last
	bool spin;
	uint64_t duration, warmup, loss; // ticks

	// What came of it. Messages of the warm-up are in none of it, but for gaps and window.
	struct hist rtt;      // from send to answer
	struct hist intended; // from when it should have been sent; open loop only
	// sends is the time in send. Where the client polls in a closed loop it lasts until it looked at the clock again, a
	// few polls later: between send and answer it has nothing to do but to poll.
	struct coarse sends;
	struct coarse idle;   // closed loop: from an answer to the next send; open loop: how late a message was sent
	struct coarse held;   // interruptions: looks further apart than floor
	struct intervals intervals;
	struct reservoir slow;
	struct gaps gaps;
	struct window window;
	uint64_t sent, received, lost, late, duplicates, reordered, strays;
	uint64_t start, finish; // ticks: of the measurement
	uint64_t first;         // number of the first message that counts
	// Ticks: the usual time between two looks at the clock while polling in vain, above which time it is an
	// interruption, and the usual time in send.
	uint64_t usual_look, floor, usual_send;

	// While it runs.
	bool measuring;
	uint64_t highest; // number of the latest message answered
	unsigned char out[MAX_TCP + 64] __attribute__((aligned(64)));
	unsigned char in[MAX_TCP + 64] __attribute__((aligned(64)));
};

// window_length is what a rate needs, so that a message is in it until it counts as lost.
uint64_t window_length(double rate, uint64_t loss_ns);

// closed_loop and open_loop measure a cell. Both die when it cannot be measured to its end.
void closed_loop(struct cell *c);
void open_loop(struct cell *c);

#endif
