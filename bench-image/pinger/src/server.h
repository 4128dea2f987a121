#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>

#include "clock.h"
#include "session.h"

struct server_options {
	const char *bind;
	struct key key;
	int port;
	bool spin;
	double deadline; // seconds; 0: none
	enum clock_choice clock;
};

// serve serves one client after the other, until the deadline or a signal ends the process.
_Noreturn void serve(const struct server_options *o);

#endif
