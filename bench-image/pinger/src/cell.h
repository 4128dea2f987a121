// One cell as the client measures it: a protocol, a size and a rate, over a path that is already open.
#ifndef CELL_H
#define CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hist.h"
#include "intervals.h"
#include "net.h"
#include "outliers.h"

// window records when the latest messages were sent, or their state.
struct window {
	uint64_t *sent; // by number modulo length: ticks, perhaps with the flag WOKEN, or one of the states below
	uint64_t length;
};

#define ANSWERED 0ull
#define LOST 1ull
// WOKEN marks a message before which the client slept until a timer woke it.
#define WOKEN (1ull << 63)

struct cell {
	// Parameters.
	struct path path;
	struct link *control;
	enum protocol protocol;
	size_t size;
	struct tag_keys keys;
	double rate; // messages per second on an absolute schedule; 0: the next message follows the answer to the last
	bool spin;
	uint64_t duration, warmup, loss; // ticks

	// Results. They do not include messages of the warm-up, except gaps and window.
	struct hist rtt;      // from send to answer
	struct hist intended; // from the intended send time, or the end of the client's own sleep, up to WAKE_NS later; open loop only
	// sends is the time in send. When the client polls in a closed loop, this is the time until it reads the clock
	// again, a few polls later: between send and answer it does nothing but poll.
	struct coarse sends;
	struct coarse idle;   // closed loop: from an answer to the next send; open loop: how late a message was sent
	struct coarse held;   // interruptions: readings of the clock further apart than floor
	struct intervals intervals;
	struct reservoir slow;
	struct gaps gaps;
	struct window window;
	uint64_t sent, received, lost, late, duplicates, reordered, strays;
	uint64_t start, finish; // ticks: of the measurement
	uint64_t first;         // number of the first message that counts
	// In ticks: the usual time between two readings of the clock during empty polls, the time above which it is an
	// interruption, and the usual time in send.
	uint64_t usual_look, floor, usual_send;

	// State while the cell runs.
	bool measuring;
	uint64_t highest; // number of the latest message answered
	unsigned char out[MAX_TCP + 64] __attribute__((aligned(64)));
	unsigned char in[MAX_TCP + 64] __attribute__((aligned(64)));
};

// window_length returns the length of the window that a rate needs, so that a message stays in it until it counts as
// lost.
uint64_t window_length(double rate, uint64_t loss_ns);

// closed_loop and open_loop measure a cell. Both die when they cannot complete the measurement.
void closed_loop(struct cell *c);
void open_loop(struct cell *c);

#endif
