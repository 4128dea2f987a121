// The system's counters for this process: the causes of interruptions, and their number. Reading them needs no
// privilege, and nothing is read while messages are in flight.
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

// counters_json writes the difference between before and after, as members of an object.
void counters_json(struct json *j, const struct counters *before, const struct counters *after);

// scan holds the interruptions of a CPU that only reads the clock.
struct scan {
	uint64_t duration, threshold; // ns; anything longer than the threshold is an interruption
	struct coarse interruptions;
	int cpu;
};

// SCAN_NS is the duration of a scan.
#define SCAN_NS 200000000ull

void scan_run(struct scan *s);
void scan_json(struct json *j, const char *key, const struct scan *s);

// lock_memory keeps this process's memory from being paged out, as far as that is permitted, and returns how far: "all"
// or "no". It locks only the memory in use now: later allocations must not fail because of the limit (RLIMIT_MEMLOCK).
const char *lock_memory(void);

// coarse_json and hist_json write a histogram as members of an object, with buckets as pairs of lower edge and count.
void coarse_json(struct json *j, const struct coarse *c);
void hist_json(struct json *j, const struct hist *h);

#endif
