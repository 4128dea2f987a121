#include "evidence.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "clock.h"

// number_after returns the number that follows a word at the beginning of a line of a file, or -1 without it. skip is
// the number of numbers before it.
static int64_t number_after(const char *path, const char *word, int skip) {
	FILE *file = fopen(path, "r");
	if (!file)
		return -1;
	char line[512];
	int64_t found = -1;
	size_t length = strlen(word);
	while (found < 0 && fgets(line, sizeof line, file)) {
		if (strncmp(line, word, length) != 0 || (length > 0 && line[length] != ' '))
			continue;
		char *rest = line + length, *next = rest;
		for (int i = 0; i <= skip; i++, rest = next) {
			long long value = strtoll(rest, &next, 10);
			if (next == rest)
				break;
			if (i == skip)
				found = value;
		}
	}
	fclose(file);
	return found;
}

// throttled reads cpu.stat of this process's control group (version 2). In a container it is in the root of the mount;
// outside it is at the path in /proc/self/cgroup.
static int64_t throttled(void) {
	char line[512], path[600];
	FILE *file = fopen("/proc/self/cgroup", "r");
	int64_t found = -1;
	while (file && found < 0 && fgets(line, sizeof line, file)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.stat", line + 3);
		found = number_after(path, "nr_throttled", 0);
	}
	if (file)
		fclose(file);
	return found >= 0 ? found : number_after("/sys/fs/cgroup/cpu.stat", "nr_throttled", 0);
}

void counters_read(struct counters *c) {
	struct rusage usage;
	*c = (struct counters){.voluntary = -1, .involuntary = -1, .minor_faults = -1, .major_faults = -1, .cpu = sched_getcpu()};
	if (getrusage(RUSAGE_THREAD, &usage) == 0) {
		c->voluntary = usage.ru_nvcsw;
		c->involuntary = usage.ru_nivcsw;
		c->minor_faults = usage.ru_minflt;
		c->major_faults = usage.ru_majflt;
	}
	c->run_queue_wait = number_after("/proc/thread-self/schedstat", "", 1);
	char cpu[16];
	snprintf(cpu, sizeof cpu, "cpu%d", c->cpu);
	c->steal = number_after("/proc/stat", cpu, 7);
	c->throttled = throttled();
}

static void difference(struct json *j, const char *key, int64_t before, int64_t after, int64_t unit) {
	if (before < 0 || after < 0)
		json_null(j, key);
	else
		json_int(j, key, (after - before) * unit);
}

void counters_json(struct json *j, const struct counters *before, const struct counters *after) {
	json_int(j, "cpu", after->cpu);
	json_bool(j, "moved", before->cpu != after->cpu);
	difference(j, "voluntary_switches", before->voluntary, after->voluntary, 1);
	difference(j, "involuntary_switches", before->involuntary, after->involuntary, 1);
	difference(j, "minor_faults", before->minor_faults, after->minor_faults, 1);
	difference(j, "major_faults", before->major_faults, after->major_faults, 1);
	difference(j, "run_queue_wait_ns", before->run_queue_wait, after->run_queue_wait, 1);
	// The steal times of two CPUs cannot be compared.
	difference(j, "steal_ms", before->cpu == after->cpu ? before->steal : -1, after->steal, 10);
	difference(j, "throttled_periods", before->throttled, after->throttled, 1);
}

void scan_run(struct scan *s) {
	coarse_reset(&s->interruptions);
	s->cpu = sched_getcpu();
	// Reading the clock takes less than a tenth of this threshold.
	s->threshold = 200;
	uint64_t floor = to_ticks(s->threshold), start = ticks(), last = start, until = start + to_ticks(SCAN_NS);
	while (last < until) {
		uint64_t t = ticks();
		if (since(last, t) > floor)
			coarse_add(&s->interruptions, to_ns(t - last));
		last = t > last ? t : last;
	}
	s->duration = to_ns(last - start);
}

void scan_json(struct json *j, const char *key, const struct scan *s) {
	json_open(j, key, '{');
	json_int(j, "cpu", s->cpu);
	json_uint(j, "duration_ns", s->duration);
	json_uint(j, "threshold_ns", s->threshold);
	json_open(j, "interruptions", '{');
	coarse_json(j, &s->interruptions);
	json_close(j, '}');
	json_close(j, '}');
}

const char *lock_memory(void) { return mlockall(MCL_CURRENT) == 0 ? "all" : "no"; }

static void totals_json(struct json *j, const struct totals *t) {
	uint64_t all = t->count + t->over_range;
	json_uint(j, "count", t->count);
	json_uint(j, "over_range", t->over_range);
	json_uint(j, "min_ns", all ? t->min : 0);
	json_uint(j, "max_ns", all ? t->max : 0);
	json_uint(j, "sum_ns", t->sum);
	json_double(j, "sum_squares_ns2", (double)t->squares);
}

static void buckets_json(struct json *j, const uint64_t *buckets, size_t length, unsigned bits) {
	json_open(j, "buckets", '[');
	for (size_t i = 0; i < length; i++) {
		if (buckets[i] == 0)
			continue;
		json_open(j, NULL, '[');
		json_uint(j, NULL, hist_low(i, bits));
		json_uint(j, NULL, buckets[i]);
		json_close(j, ']');
	}
	json_close(j, ']');
}

void coarse_json(struct json *j, const struct coarse *c) {
	totals_json(j, &c->totals);
	buckets_json(j, c->buckets, HIST_LENGTH(COARSE_BITS), COARSE_BITS);
}

void hist_json(struct json *j, const struct hist *h) {
	totals_json(j, &h->totals);
	buckets_json(j, h->buckets, HIST_LENGTH(FINE_BITS), FINE_BITS);
}
