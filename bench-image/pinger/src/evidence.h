// What the system says about this process: who interrupted it, and how often. None of it needs a privilege, and none
// of it is read while messages are under way.
#ifndef EVIDENCE_H
#define EVIDENCE_H

#include <stdint.h>

#include "hist.h"
#include "json.h"

// counters are read before and after a cell. Those that cannot be read are -1.
struct counters {
	int64_t voluntary, involuntary; // context switches of this thread
	int64_t minor_faults, major_faults;
	int64_t run_queue_wait; // ns for which this thread was ready and did not run
	int64_t steal;          // ticks of 1/100 s that the hypervisor took from the CPU
	int64_t throttled;      // periods in which the control group was throttled
	int cpu;
};

void counters_read(struct counters *c);

// counters_json writes what happened from before to after, as members of an object.
void counters_json(struct json *j, const struct counters *before, const struct counters *after);

// scan is a look at what interrupts a CPU that does nothing but read the clock.
struct scan {
	uint64_t duration, threshold; // ns; what is longer than the threshold is an interruption
	struct coarse interruptions;
	int cpu;
};

// SCAN_NS is how long it takes.
#define SCAN_NS 200000000ull

void scan_run(struct scan *s);
void scan_json(struct json *j, const char *key, const struct scan *s);

// lock_memory keeps this process's memory from being paged out, as far as that is permitted, and says how far:
// "all" or "no". Only of what is in use now: what comes later must not fail for the limit (RLIMIT_MEMLOCK).
const char *lock_memory(void);

// coarse_json and totals_json write a histogram as an object, buckets as pairs of lower edge and count.
void coarse_json(struct json *j, const struct coarse *c);
void hist_json(struct json *j, const struct hist *h);

#endif
