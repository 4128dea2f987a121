#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "net.h"

#define MOST_SIZES 64
#define MOST_RATES 32

struct client_options {
	const char *server, *local; // local: an own address, or NULL
	struct key key;
	int port;
	enum protocol protocol;
	size_t sizes[MOST_SIZES];
	size_t size_count;
	double rates[MOST_RATES]; // messages a second; 0 is the closed loop
	size_t rate_count;
	uint64_t duration, warmup, loss, interval; // ns
	bool spin;
	double deadline; // seconds; 0: none
	enum clock_choice clock;
	const char *group;
};

// measure runs all cells, prints the result and returns, or dies.
void measure(const struct client_options *o);

#endif
