#include "fail.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

void die(enum exit_code code, const char *format, ...) {
	char line[512];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	for (char *c = line; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	fprintf(stderr, "tailgate-pinger: %s\n", line);
	// No part of a result may reach stdout from here on, so its buffers are not flushed.
	_exit(code);
}

static void on_deadline(int signal_number) {
	(void)signal_number;
	static const char line[] = "tailgate-pinger: the hard deadline has passed (--deadline): the other end hangs, or it is too short\n";
	ssize_t ignored = write(STDERR_FILENO, line, sizeof line - 1);
	(void)ignored;
	_exit(EXIT_DEADLINE);
}

void set_hard_deadline(double seconds) {
	if (seconds <= 0)
		return;
	struct sigaction action = {.sa_handler = on_deadline};
	sigaction(SIGALRM, &action, NULL);
	long whole = (long)seconds;
	struct itimerval timer = {.it_value = {.tv_sec = whole, .tv_usec = (long)((seconds - (double)whole) * 1e6)}};
	if (whole == 0 && timer.it_value.tv_usec == 0)
		timer.it_value.tv_usec = 1;
	if (setitimer(ITIMER_REAL, &timer, NULL) != 0)
		die(EXIT_SYSTEM, "setting the deadline failed");
}
