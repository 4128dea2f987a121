#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

struct clock_state clock_now = {.multiplier = 1ull << 32, .hertz = 1e9};

// pair holds the two clocks, read at the same moment.
struct pair {
	uint64_t ticks, raw;
};

static struct pair begin, end;

// read_pair reads both clocks repeatedly and returns the pair with the least time between them, which is free of
// interruptions.
static struct pair read_pair(void) {
	struct pair best = {0, 0};
	uint64_t narrowest = UINT64_MAX;
	for (int i = 0; i < 64; i++) {
		uint64_t before = ticks();
		uint64_t raw = nanoseconds(CLOCK_MONOTONIC_RAW);
		uint64_t width = ticks() - before;
		if (width < narrowest) {
			narrowest = width;
			best = (struct pair){before + width / 2, raw};
		}
	}
	return best;
}

static double rate(struct pair a, struct pair b) {
	return b.raw > a.raw ? (double)(b.ticks - a.ticks) * 1e9 / (double)(b.raw - a.raw) : 0;
}

// has_word reports whether a file has a line that begins with key and contains the word.
static bool has_word(const char *root, const char *path, const char *key, const char *word) {
	char name[512];
	snprintf(name, sizeof name, "%s%s", root, path);
	FILE *file = fopen(name, "r");
	if (!file)
		return false;
	char *line = NULL;
	size_t size = 0;
	bool found = false;
	while (!found && getline(&line, &size, file) > 0) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		char *rest = line + strlen(key);
		for (char *w = strtok(rest, " \t\n:"); w && !found; w = strtok(NULL, " \t\n:"))
			found = strcmp(w, word) == 0;
	}
	free(line);
	fclose(file);
	return found;
}

// distrust returns why the counter cannot be trusted, or NULL.
static const char *distrust(const char *root) {
	static const char source[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
#if defined(__aarch64__)
	return has_word(root, source, "", "arch_sys_counter") ? NULL : "the kernel's clock source is not arch_sys_counter";
#else
	static const char available[] = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
	if (!has_word(root, "/proc/cpuinfo", "flags", "constant_tsc"))
		return "/proc/cpuinfo does not list constant_tsc";
	if (!has_word(root, "/proc/cpuinfo", "flags", "nonstop_tsc"))
		return "/proc/cpuinfo does not list nonstop_tsc";
	if (has_word(root, source, "", "tsc"))
		return NULL;
	if (!has_word(root, source, "", "kvm-clock"))
		return "the kernel's clock source is neither tsc nor kvm-clock";
	if (!has_word(root, available, "", "tsc"))
		return "the kernel's clock source is kvm-clock, and tsc is not available beside it";
	return NULL;
#endif
}

void clock_choose(enum clock_choice choice, const char *root) {
	const char *why = choice == CLOCK_NANOSECONDS ? "clock_gettime was asked for" : distrust(root);
	if (why && choice == CLOCK_COUNTER)
		die(EXIT_CLOCK, "the CPU's counter cannot be trusted: %s; use --clock auto or monotonic", why);
	clock_now.counter = !why;
	snprintf(clock_now.why_not, sizeof clock_now.why_not, "%s", why ? why : "");
}

void clock_calibrate_begin(void) { begin = read_pair(); }

void clock_calibrate_end(void) {
	if (!clock_now.counter)
		return;
	end = read_pair();
	clock_now.before = rate(begin, end);
	if (clock_now.before < 1e7)
		die(EXIT_CLOCK, "the CPU's counter does not advance; use --clock monotonic");
	clock_now.hertz = clock_now.before;
	clock_now.multiplier = (uint64_t)(1e9 / clock_now.hertz * 4294967296.0 + 0.5);
}

void clock_verify(void) {
	if (!clock_now.counter)
		return;
	struct pair first = read_pair();
	struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
	// A signal ends a sleep, and so short a time says little of the rate: Onload sends SIGIO whenever it wakes a connection.
	while (nanosleep(&pause, &pause) != 0)
		;
	struct pair last = read_pair();
	clock_now.during = rate(end, last);
	clock_now.after = rate(first, last);
	double during = fabs(clock_now.during - clock_now.before), after = fabs(clock_now.after - clock_now.before);
	clock_now.drift_ppm = (during > after ? during : after) / clock_now.before * 1e6;
	if (!(clock_now.drift_ppm <= MAX_DRIFT_PPM))
		die(EXIT_CLOCK, "the CPU's counter drifted by %.0f ppm against CLOCK_MONOTONIC_RAW, more than %.0f: the times are worth nothing; use --clock monotonic",
		    clock_now.drift_ppm, MAX_DRIFT_PPM);
}
