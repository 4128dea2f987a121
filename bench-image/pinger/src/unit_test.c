// Tests of the parts that need no network. The program prints nothing and exits with 0 when all tests pass.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cell.h"
#include "clock.h"
#include "fail.h"
#include "hist.h"
#include "intervals.h"
#include "json.h"
#include "net.h"
#include "outliers.h"

static int failures;

#define CHECK(condition, ...)                                          \
	do {                                                               \
		if (!(condition)) {                                            \
			failures++;                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);                              \
			fprintf(stderr, "\n");                                     \
		}                                                              \
	} while (0)

#define LL(x) ((unsigned long long)(x))

static uint64_t state = 88172645463325252ull;

// next returns a pseudorandom number (xorshift), the same in every run.
static uint64_t next(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int ascending(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static struct hist fine;
static struct coarse coarse;

static void test_buckets(void) {
	for (int round = 0; round < 200000; round++) {
		uint64_t value = next() >> (next() % 63);
		if (value < 1 || value > HIST_HIGHEST)
			continue;
		const unsigned bits[] = {FINE_BITS, COARSE_BITS};
		for (int i = 0; i < 2; i++) {
			size_t index = hist_index(value, bits[i]);
			uint64_t low = hist_low(index, bits[i]), high = hist_high(index, bits[i]);
			CHECK(low <= value && value <= high, "%llu is in bucket %llu to %llu", LL(value), LL(low), LL(high));
			CHECK(high - low <= value >> (bits[i] - 1), "the bucket of %llu is %llu wide", LL(value), LL(high - low));
			CHECK(index < HIST_LENGTH(bits[i]), "bucket %zu", index);
		}
	}
	CHECK(hist_index(HIST_HIGHEST, FINE_BITS) < HIST_LENGTH(FINE_BITS), "no bucket for the highest");
}

// test_exact compares with the sorted samples.
static void test_exact(void) {
	enum { N = 100000 };
	static uint64_t samples[N];
	hist_reset(&fine);
	coarse_reset(&coarse);
	u128 squares = 0;
	uint64_t sum = 0;
	for (int i = 0; i < N; i++) {
		samples[i] = 2000 + (next() % 1000) * (next() % 1000) + (next() % 1000 == 0 ? next() % 10000000000ull : 0);
		hist_add(&fine, samples[i]);
		coarse_add(&coarse, samples[i]);
		sum += samples[i];
		squares += (u128)samples[i] * samples[i];
	}
	qsort(samples, N, sizeof samples[0], ascending);
	CHECK(fine.totals.count == N && fine.totals.min == samples[0] && fine.totals.max == samples[N - 1], "%llu samples, %llu to %llu",
	      LL(fine.totals.count), LL(fine.totals.min), LL(fine.totals.max));
	CHECK(fine.totals.sum == sum && fine.totals.squares == squares, "sums differ");
	const double quantiles[] = {0, 0.001, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1};
	for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
		double exact = quantiles[i] * N;
		size_t rank = (size_t)exact;
		if ((double)rank < exact || rank == 0)
			rank++;
		uint64_t want = samples[rank - 1], got = hist_quantile(&fine, quantiles[i]), rough = coarse_quantile(&coarse, quantiles[i]);
		CHECK(got >= want && got - want <= want / 1000, "quantile %g is %llu, not %llu", quantiles[i], LL(want), LL(got));
		CHECK(rough >= want && rough - want <= want / 31, "coarse quantile %g is %llu, not %llu", quantiles[i], LL(want), LL(rough));
	}
	uint64_t p999 = hist_quantile(&fine, 0.999);
	size_t beyond = 0;
	for (int i = 0; i < N; i++)
		beyond += samples[i] > hist_high(hist_index(p999, FINE_BITS), FINE_BITS);
	CHECK(hist_beyond(&fine, p999) == beyond, "%llu beyond p99.9, not %zu", LL(hist_beyond(&fine, p999)), beyond);
}

static void test_range(void) {
	hist_reset(&fine);
	CHECK(hist_quantile(&fine, 0.5) == 0, "a quantile of nothing");
	hist_add(&fine, HIST_HIGHEST);
	hist_add(&fine, HIST_HIGHEST + 1);
	hist_add(&fine, 3600000000000ull);
	CHECK(fine.totals.count == 1 && fine.totals.over_range == 2 && fine.totals.max == 3600000000000ull && fine.totals.sum == HIST_HIGHEST,
	      "%llu in range, %llu out of it", LL(fine.totals.count), LL(fine.totals.over_range));
	CHECK(hist_quantile(&fine, 1) == 3600000000000ull, "the largest is %llu", LL(hist_quantile(&fine, 1)));
	// A sample of 0 ns is out of range as well, but it is the fastest.
	hist_add(&fine, 0);
	CHECK(fine.totals.over_range == 3 && fine.totals.min == 0, "%llu out of range, from %llu", LL(fine.totals.over_range), LL(fine.totals.min));
	CHECK(hist_quantile(&fine, 0.25) == 0 && hist_quantile(&fine, 0.5) >= HIST_HIGHEST, "quantiles %llu, %llu", LL(hist_quantile(&fine, 0.25)),
	      LL(hist_quantile(&fine, 0.5)));
	CHECK(hist_beyond(&fine, 1) == 3 && hist_beyond(&fine, HIST_HIGHEST + 1) == 2, "%llu beyond 1 ns", LL(hist_beyond(&fine, 1)));
}

// test_conversion checks that an hour at 5 GHz and a year at 1 GHz do not overflow.
static void test_conversion(void) {
	const double rates[] = {1e9, 2.5e9, 5e9};
	for (int i = 0; i < 3; i++) {
		clock_now.multiplier = (uint64_t)(1e9 / rates[i] * 4294967296.0 + 0.5);
		const double durations[] = {1e-6, 1, 7.5, 3600, 86400, 31536000};
		for (int k = 0; k < 6; k++) {
			uint64_t t = (uint64_t)(durations[k] * rates[i]);
			double ns = (double)to_ns(t), want = durations[k] * 1e9;
			CHECK(ns > want * (1 - 1e-8) - 2 && ns < want * (1 + 1e-8) + 2, "%g s at %g Hz are %.0f ns", durations[k], rates[i], ns);
			double back = (double)to_ticks(to_ns(t));
			CHECK(back > (double)t * (1 - 1e-8) - 8 && back < (double)t * (1 + 1e-8) + 8, "%.0f ticks become %.0f", (double)t, back);
		}
	}
	clock_now.multiplier = 1ull << 32;
	CHECK(since(10, 5) == 0 && since(5, 10) == 5, "time runs backwards");
}

static void put(const char *root, const char *path, const char *content) {
	char name[600];
	snprintf(name, sizeof name, "%s%s", root, path);
	for (char *c = name + 1; *c; c++)
		if (*c == '/') {
			*c = 0;
			mkdir(name, 0700);
			*c = '/';
		}
	FILE *file = fopen(name, "w");
	if (!file || fputs(content, file) < 0 || fclose(file) != 0) {
		perror(name);
		exit(1);
	}
}

static void test_trust(const char *root) {
	static const char both[] = "processor : 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc avx\n";
	static const struct {
		const char *cpuinfo, *source, *available;
		bool trusted;
	} cases[] = {
	    {both, "tsc\n", "tsc hpet\n", true},
	    {both, "kvm-clock\n", "kvm-clock tsc acpi_pm \n", true},
	    {both, "kvm-clock\n", "kvm-clock acpi_pm \n", false},
	    {both, "hpet\n", "hpet acpi_pm tsc\n", false},
	    {both, "hyperv_clocksource_tsc_page\n", "hyperv_clocksource_tsc_page tsc\n", false},
	    {"flags : tsc constant_tsc\n", "tsc\n", "tsc\n", false},
	    {"flags : tsc nonstop_tsc\n", "tsc\n", "tsc\n", false},
	    {"flags : tsc\nbugs : constant_tsc nonstop_tsc\n", "tsc\n", "tsc\n", false},
	    {"", "tsc\n", "tsc\n", false},
	    {both, "arch_sys_counter\n", "arch_sys_counter\n", false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		put(root, "/proc/cpuinfo", cases[i].cpuinfo);
		put(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource", cases[i].source);
		put(root, "/sys/devices/system/clocksource/clocksource0/available_clocksource", cases[i].available);
		clock_choose(CLOCK_AUTO, root);
#if defined(__aarch64__)
		CHECK(clock_now.counter == (strncmp(cases[i].source, "arch_", 5) == 0), "case %zu: %s", i, clock_now.why_not);
#else
		CHECK(clock_now.counter == cases[i].trusted, "case %zu: %s", i, clock_now.why_not);
#endif
		CHECK(clock_now.counter == !*clock_now.why_not, "case %zu: %s", i, clock_now.why_not);
	}
	clock_choose(CLOCK_NANOSECONDS, root);
	CHECK(!clock_now.counter, "the counter is used all the same");
}

// exit_of runs a function that may die in a separate process, discards its stderr and returns the exit code.
static int exit_of(void (*something)(const char *), const char *argument) {
	pid_t child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(99);
		something(argument);
		_exit(0);
	}
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void choose_counter(const char *root) { clock_choose(CLOCK_COUNTER, root); }

// drifted verifies the clock with an earlier rate that is off by this many ppm.
static void drifted(const char *ppm) {
	clock_choose(CLOCK_COUNTER, "");
	clock_calibrate_begin();
	usleep(50000);
	clock_calibrate_end();
	clock_now.before *= 1 + atof(ppm) / 1e6;
	clock_verify();
}

static void wake(int signal) { (void)signal; }

// interrupted verifies the clock while a signal arrives each millisecond, and exits with 1 if that took less than 50 ms.
static void interrupted(const char *root) {
	clock_choose(CLOCK_COUNTER, root);
	clock_calibrate_begin();
	usleep(50000);
	clock_calibrate_end();
	struct sigaction action = {.sa_handler = wake};
	struct itimerval each = {.it_interval = {.tv_usec = 1000}, .it_value = {.tv_usec = 1000}};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	clock_verify();
	clock_gettime(CLOCK_MONOTONIC, &to);
	if ((to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec) < 50e6)
		exit(1);
}

static void test_refusals(const char *root) {
	put(root, "/proc/cpuinfo", "flags : tsc constant_tsc\n");
	put(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
	CHECK(exit_of(choose_counter, root) == EXIT_CLOCK, "exit code %d", exit_of(choose_counter, root));
	if (exit_of(choose_counter, "") != 0)
		return; // this machine's counter cannot be trusted
	CHECK(exit_of(drifted, "0") == 0, "exit code %d", exit_of(drifted, "0"));
	CHECK(exit_of(drifted, "-300") == EXIT_CLOCK && exit_of(drifted, "300") == EXIT_CLOCK, "a drift of 300 ppm is taken");
	CHECK(exit_of(interrupted, "") == 0, "exit code %d", exit_of(interrupted, ""));
}

static void test_numbers(void) {
	unsigned char message[8];
	for (size_t size = 1; size <= 8; size++) {
		uint64_t reach = size < 3 ? (1ull << (8 * size - 1)) - 1 : 100000;
		for (int i = 0; i < 20000; i++) {
			uint64_t expected = next() % 10000000 + reach, seq = expected - reach + next() % (2 * reach);
			put_seq(message, size, seq);
			uint64_t got = get_seq(message, size, expected);
			CHECK(got == seq, "%llu is read as %llu from %zu bytes when %llu is expected", LL(seq), LL(got), size, LL(expected));
		}
	}
}

// test_siphash compares numbers with those of another implementation: openssl mac -macopt c-rounds:1 -macopt d-rounds:3 SIPHASH, and the
// vectors of its authors for 2 and 4 rounds.
static void test_siphash(void) {
	const struct key key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
	const uint64_t words[] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
	CHECK(number_of(&key, words[0]) == 0x369095118d299a8e, "%llx", LL(number_of(&key, words[0])));
	CHECK(siphash(2, 4, &key, words, 1) == 0x93f5f5799a932462, "%llx", LL(siphash(2, 4, &key, words, 1)));
	CHECK(siphash(2, 4, &key, words, 2) == 0x3f2acc7f57c29bdb, "%llx", LL(siphash(2, 4, &key, words, 2)));
}

static void test_tags(void) {
	const struct tag_keys keys = {{1, 2}, {3, 4}}, foreign = {{1, 3}, {3, 4}}, early = {{1, 2}, {3, 5}};
	unsigned char message[65] = {0};
	for (size_t size = 1; size <= 64; size++) {
		memset(message, 0xaa, sizeof message);
		put_seq(message, size, 7);
		put_tag(message, size, tag_of_message(&keys, 7));
		bool tagged = size >= 16;
		CHECK(message[size] == 0xaa && (!tagged || get_seq(message, size, 7) == 7), "%zu bytes are written beyond their end, or have no number", size);
		CHECK(has_tag(message, size, tag_of_answer(&keys, 7)) != tagged, "%zu bytes: a message is its own answer", size);
		CHECK(turn_tag(message, size, number_of(&foreign.shared, 7)) != tagged && turn_tag(message, size, number_of(&keys.shared, 8)) != tagged &&
		          turn_tag(message, size, number_of(&keys.shared, 7)), "%zu bytes: the server takes another message, or not that of the client", size);
		CHECK(message[size] == 0xaa && (!tagged || get_seq(message, size, 7) == 7), "%zu bytes: the answer is written beyond its end, or has no number", size);
		CHECK(has_tag(message, size, tag_of_answer(&keys, 7)) && has_tag(message, size, tag_of_answer(&keys, 8)) != tagged &&
		          has_tag(message, size, tag_of_answer(&foreign, 7)) != tagged && has_tag(message, size, tag_of_answer(&early, 7)) != tagged,
		      "%zu bytes: the tag is missing, or that of another", size);
		for (size_t i = size - 8; tagged && i < size; i++) {
			message[i] ^= 1;
			CHECK(!has_tag(message, size, tag_of_answer(&keys, 7)), "%zu bytes: byte %zu is not compared", size, i);
			message[i] ^= 1;
		}
	}
}

// test_session: whatever differs between two sessions, or between two cells of one, they share no proof and no key.
static void test_session(void) {
	enum { KINDS = 8 };
	uint64_t seen[4 * KINDS];
	size_t count = 0;
	for (int kind = 0; kind < KINDS; kind++) {
		struct session s = {.key = {1, 2}, .client = {3, 4}, .server = {5, 6}};
		uint64_t *differs[] = {&s.key.k0, &s.key.k1, &s.client[0], &s.client[1], &s.server[0], &s.server[1], &s.cells};
		if (kind > 0)
			*differs[kind - 1] ^= 1ull << 63;
		seen[count++] = proof_of_client(&s);
		seen[count++] = proof_of_server(&s);
		struct key cell = next_cell(&s, 0, 64);
		seen[count++] = cell.k0;
		seen[count++] = cell.k1;
	}
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < i; k++)
			CHECK(seen[i] != seen[k], "number %zu is number %zu", i, k);
	struct session s = {.key = {1, 2}};
	struct transcript whole = {0}, parts = {0}, other = {0}, shorter = {0};
	add(&s, &whole, "STATS 2 0\n{}", 12);
	add(&s, &parts, "STATS 2 ", 8);
	add(&s, &parts, "0\n{}", 4);
	add(&s, &other, "STATS 3 0\n{}", 12);
	add(&s, &shorter, "STATS 2 0\n{", 11);
	uint64_t seal = seal_of_server(&s, &whole);
	CHECK(seal == seal_of_server(&s, &parts) && seal != seal_of_server(&s, &other) && seal != seal_of_server(&s, &shorter) && seal != seal_of_client(&s, &whole),
	      "the seal depends on parts, or not on what is said, or by whom");
	struct key key;
	CHECK(key_read("00000000000000010000000000000002", &key) && key.k0 == 1 && key.k1 == 2, "a key is read as %llx, %llx", LL(key.k0), LL(key.k1));
	CHECK(!key_read("0000000000000001000000000000000", &key) && !key_read("000000000000000100000000000000021", &key) &&
	          !key_read("0x000000000000010x00000000000002", &key) && !key_read("", &key), "what is no key is read");
}

static void test_reservoir(void) {
	enum { N = 5 * MOST_KEPT };
	static struct reservoir r;
	static uint64_t values[N];
	reservoir_reset(&r);
	for (int i = 0; i < N; i++) {
		values[i] = next() % 1000000;
		reservoir_add(&r, (struct entry){.value = values[i], .seq = (uint64_t)i});
		CHECK((r.floor == 0) == (i + 1 < MOST_KEPT) || r.floor == 0, "the floor is %llu after %d", LL(r.floor), i);
	}
	reservoir_sort(&r);
	CHECK(r.count == MOST_KEPT && r.dropped, "%zu are kept", r.count);
	uint64_t sum = 0, want = 0;
	for (size_t i = 0; i < r.count; i++) {
		const struct entry *e = reservoir_find(&r, r.heap[i].seq);
		CHECK(e && values[e->seq] == e->value, "entry %zu is not found", i);
		sum += r.heap[i].value;
	}
	qsort(values, N, sizeof values[0], ascending);
	for (int i = N - MOST_KEPT; i < N; i++)
		want += values[i];
	CHECK(sum == want, "the sum of the largest is %llu, not %llu", LL(sum), LL(want));
}

static void test_gaps(void) {
	static struct gaps g;
	uint64_t sums[2];
	for (uint64_t i = 0; i < 3 * GAPS_KEPT; i++)
		gaps_add(&g, i % 2 ? IN_SEND : BETWEEN_POLLS, 100 * i, 100 * i + 10);
	uint64_t last = 100 * (3 * GAPS_KEPT - 1); // odd: in send
	gaps_within(&g, last - 95, last + 1000, sums);
	CHECK(sums[BETWEEN_POLLS] == 5 && sums[IN_SEND] == 10, "%llu and %llu", LL(sums[0]), LL(sums[1]));
	gaps_within(&g, last + 3, last + 8, sums);
	CHECK(sums[BETWEEN_POLLS] == 0 && sums[IN_SEND] == 5, "%llu and %llu", LL(sums[0]), LL(sums[1]));
	gaps_within(&g, 0, last + 1000, sums);
	CHECK(sums[BETWEEN_POLLS] == 10 * GAPS_KEPT / 2, "of all that are left %llu", LL(sums[0]));
	gaps_within(&g, last + 10, last + 1000, sums);
	CHECK(sums[0] == 0 && sums[1] == 0, "behind the last");
}

static void test_attribution(void) {
	static struct reservoir client, server;
	reservoir_reset(&client);
	reservoir_reset(&server);
	const struct entry samples[] = {
	    {.seq = 1, .at = 10000, .value = 1010, .gap = 900},          // the client
	    {.seq = 2, .at = 20000, .value = 1010, .send = 600},         // the client, in send
	    {.seq = 3, .at = 30000, .value = 1010, .gap = 100},          // the server
	    {.seq = 4, .at = 40000, .value = 1010, .gap = 300},          // both together
	    {.seq = 5, .at = 50000, .value = 1010},                      // neither
	    {.seq = 6, .at = 60000, .value = 1010},                      // neither: the server's usual times explain nothing
	    {.seq = 7, .value = 100, .gap = 100},                     // no outlier
	    {.seq = 8, .value = 3000},                                // undetermined: not in the server's list, which is full
	};
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
		reservoir_add(&client, samples[i]);
	reservoir_add(&server, (struct entry){.seq = 3, .value = 2000, .gap = 1900, .send = 50});
	reservoir_add(&server, (struct entry){.seq = 4, .value = 400, .gap = 350, .send = 50});
	reservoir_add(&server, (struct entry){.seq = 6, .value = 600, .gap = 50, .send = 50});
	server.dropped = true;
	server.floor = 1600;
	reservoir_rank(&client);
	reservoir_sort(&server);
	struct attribution a = {.p50 = 10, .threshold = 100};
	attribute(&a, &client, &server, (struct typical){.server_gap = 50, .server_send = 50});
	// Number 5 is also missing at the server, where up to 1600 may be missing.
	CHECK(a.examined == 7 && a.places[AT_CLIENT] == 2 && a.places[AT_SERVER] == 1 && a.places[AT_BOTH] == 1 && a.places[AT_NEITHER] == 1 && a.places[UNDETERMINED] == 2,
	      "%llu: client %llu, server %llu, both %llu, neither %llu, undetermined %llu", LL(a.examined), LL(a.places[AT_CLIENT]), LL(a.places[AT_SERVER]), LL(a.places[AT_BOTH]),
	      LL(a.places[AT_NEITHER]), LL(a.places[UNDETERMINED]));
	CHECK(a.excess == 6 * 1000 + 2990 && a.client_excess == 900 + 600 + 100 + 300 && a.server_excess == 1000 + 300, "excess %llu, %llu, %llu", LL(a.excess),
	      LL(a.client_excess), LL(a.server_excess));
	// They are listed one by one, the slowest first, with the time that each end was kept from the message beyond the
	// usual time.
	static const struct outlier listed[] = {
	    {.value = 3000, .samples = 1, .place = UNDETERMINED},
	    {.at = 10000, .value = 1010, .samples = 1, .client = 900, .place = AT_CLIENT},
	    {.at = 20000, .value = 1010, .samples = 1, .client = 600, .place = AT_CLIENT},
	    {.at = 30000, .value = 1010, .samples = 1, .client = 100, .server = 1850, .server_known = true, .place = AT_SERVER},
	    {.at = 40000, .value = 1010, .samples = 1, .client = 300, .server = 300, .server_known = true, .place = AT_BOTH},
	    {.at = 50000, .value = 1010, .samples = 1, .place = UNDETERMINED},
	    {.at = 60000, .value = 1010, .samples = 1, .server_known = true, .place = AT_NEITHER},
	};
	CHECK(a.listed == sizeof listed / sizeof listed[0], "%zu are listed", a.listed);
	for (size_t i = 0; i < a.listed; i++) {
		const struct outlier *got = &a.slowest[i], *want = &listed[i];
		CHECK(got->at == want->at && got->value == want->value && got->samples == want->samples && got->place == want->place && got->client == want->client &&
		          got->server == want->server && got->server_known == want->server_known,
		      "number %zu is of %llu at %llu: %s, %llu and %llu", i, LL(got->value), LL(got->at), place_names[got->place], LL(got->client),
		      LL(got->server));
	}
	server.dropped = false;
	attribute(&a, &client, &server, (struct typical){.server_gap = 50, .server_send = 50});
	CHECK(a.places[AT_NEITHER] == 3 && a.places[UNDETERMINED] == 0, "neither %llu, undetermined %llu", LL(a.places[AT_NEITHER]), LL(a.places[UNDETERMINED]));
	// The client's usual times explain nothing either: 420 are left of number 1, nothing of number 2.
	attribute(&a, &client, &server,
	          (struct typical){.client_gap = 480, .client_send = 600, .server_gap = 50, .server_send = 50});
	CHECK(a.places[AT_CLIENT] == 0 && a.places[AT_NEITHER] == 6 && a.client_excess == 420, "client %llu, neither %llu, excess %llu", LL(a.places[AT_CLIENT]),
	      LL(a.places[AT_NEITHER]), LL(a.client_excess));
}

// test_listed checks that only the slowest MOST_LISTED outliers are listed, and that each represents the samples with the
// same cause that were in flight meanwhile, and no others.
static void test_listed(void) {
	enum { N = 3 * MOST_LISTED };
	static struct reservoir client, server;
	reservoir_reset(&client);
	reservoir_reset(&server);
	for (uint64_t i = 0; i < N; i++) {
		uint64_t value = 1000 + i * 7 % N, at = i * 10000;
		reservoir_add(&client, (struct entry){.seq = 10 * i, .at = at, .value = value, .gap = i % 2 ? value : 0});
		reservoir_add(&client, (struct entry){.seq = 10 * i + 1, .at = at + 500, .value = 500, .gap = i % 2 ? value : 0});
		reservoir_add(&client, (struct entry){.seq = 10 * i + 2, .at = at + 999, .value = 400, .gap = i % 2 ? 0 : value});
	}
	reservoir_rank(&client);
	struct attribution a = {.p50 = 10, .threshold = 100};
	attribute(&a, &client, &server, (struct typical){0});
	CHECK(a.examined == 3 * N && a.listed == MOST_LISTED, "%llu examined, %zu listed", LL(a.examined), a.listed);
	for (size_t i = 0; i < a.listed; i++) {
		const struct outlier *o = &a.slowest[i];
		CHECK(o->value == 1000 + N - 1 - i && o->samples == 2 && o->place == (o->at / 10000 % 2 ? AT_CLIENT : AT_NEITHER),
		      "number %zu is of %llu at %llu, stands for %llu: %s", i, LL(o->value), LL(o->at), LL(o->samples), place_names[o->place]);
	}
}

static void test_intervals(void) {
	static struct intervals log;
	static const struct {
		uint64_t length, duration, want;
		size_t used;
	} fits[] = {
	    {1000, 100 * 1000, 1000, 100},
	    {1000, 99 * 1000 + 1, 1000, 100},
	    {1000, 1000ull * MOST_INTERVALS, 1000, MOST_INTERVALS},
	    {1000, 1000ull * MOST_INTERVALS + 1, 2000, MOST_INTERVALS / 2 + 1},
	    {1000, 1000ull * MOST_INTERVALS * 5, 5000, MOST_INTERVALS},
	    {1000000000, 12 * 3600 * 1000000000ull, 338 * 1000000000ull, 128},
	    {1000, 1, 1000, 1},
	    {10000000000000000ull, 10000000000000000ull, 10000000000000000ull, 1}, // the largest value of an option
	    {1000000, 10000000000000000ull, 78125000000000ull, MOST_INTERVALS},
	};
	for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
		intervals_reset(&log, fits[i].length, fits[i].duration);
		CHECK(log.length == fits[i].want && log.used == fits[i].used, "case %zu: %zu of %llu ns", i, log.used, LL(log.length));
	}
	// A measurement with intervals longer than requested, which takes slightly longer than announced.
	intervals_reset(&log, 1000, 8000ull * MOST_INTERVALS);
	uint64_t total = 0, lost = 0;
	for (uint64_t at = 0; at < 8000ull * MOST_INTERVALS + 1000; at += 100) {
		intervals_add(&log, at, at < 96000 ? 100 : 200);
		total++;
		if (at % 7000 == 0) {
			interval_at(&log, at)->lost++;
			lost++;
		}
	}
	CHECK(log.length == 8000 && log.used == MOST_INTERVALS, "%zu of %llu", log.used, LL(log.length));
	uint64_t counted = 0, in_buckets = 0;
	for (size_t i = 0; i < log.used; i++) {
		const struct interval *in = &log.log[i];
		counted += in->count;
		lost -= in->lost;
		for (size_t k = 0; k < HIST_LENGTH(COARSE_BITS); k++)
			in_buckets += in->buckets[k];
		uint64_t want = (i + 1) * log.length <= 96000 ? 100 : 200, got = interval_quantile(in, 0.5);
		CHECK(got == want, "p50 of interval %zu is %llu", i, LL(got));
	}
	CHECK(counted == total && in_buckets == total && lost == 0, "%llu of %llu, %llu in buckets; %llu lost are missing", LL(counted),
	      LL(total), LL(in_buckets), LL(lost));
	CHECK(interval_quantile(&(struct interval){.lost = 1}, 0.5) == 0, "a quantile of nothing");
	// A sample beyond the range has no bucket but is counted.
	intervals_reset(&log, 1000, 1000);
	intervals_add(&log, 3600000000000ull, 3600000000000ull);
	CHECK(log.log[log.used - 1].count == 1 && interval_quantile(&log.log[log.used - 1], 0.5) == 3600000000000ull, "the hour is lost");
}

static void test_json(void) {
	struct json j = {0};
	json_open(&j, NULL, '{');
	json_string(&j, "a\"b", "\\ \n \x7f\xc3");
	json_open(&j, "list", '[');
	json_int(&j, NULL, -1);
	json_uint(&j, NULL, UINT64_MAX);
	json_double(&j, NULL, 0.1);
	json_double(&j, NULL, 1.0 / 0.0);
	json_close(&j, ']');
	json_bool(&j, "yes", 1);
	json_raw(&j, "raw", "{}", 2);
	json_close(&j, '}');
	static const char want[] = "{\"a\\\"b\":\"\\\\ \\u000a \\u007f\\u00c3\",\"list\":[-1,18446744073709551615,0.10000000000000001,null],\"yes\":true,\"raw\":{}}";
	CHECK(strcmp(j.text, want) == 0, "%s", j.text);
	json_free(&j);
}

int main(int argc, char **argv) {
	if (argc != 2) {
		fprintf(stderr, "usage: unit_test EMPTY-FOLDER\n");
		return 2;
	}
	test_buckets();
	test_exact();
	test_range();
	test_conversion();
	test_numbers();
	test_siphash();
	test_tags();
	test_session();
	test_reservoir();
	test_gaps();
	test_attribution();
	test_listed();
	test_intervals();
	test_json();
	test_trust(argv[1]);
	test_refusals(argv[1]);
	CHECK(window_length(0, 1000000000) == 1024 && window_length(23000, 1000000000) == 65536 && window_length(1e8, 1000000000) == 1 << 20, "window");
	return failures > 0;
}
