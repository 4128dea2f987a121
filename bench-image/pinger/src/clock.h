// Time in ticks: of the CPU's counter if it can be trusted, otherwise nanoseconds of CLOCK_MONOTONIC_RAW. The counter
// is the TSC, or on arm64 the architectural counter.
//
// The counter is used because reading the TSC costs 18 ns with its fence, and clock_gettime 20 to 40. The TSC is trusted if the CPU
// reports that it runs at one rate in all states (constant_tsc, nonstop_tsc) and the kernel agrees: the clock source is
// tsc, or it is kvm-clock and tsc is also available. (Under KVM kvm-clock is the default; it is computed from the TSC,
// and the kernel offers tsc only as long as it has not found it unstable. Other clock sources of hypervisors are not
// trusted.) The architectural counter has one rate by definition; it is trusted if it is the kernel's clock source,
// because the kernel works around the defects of known CPUs. The rate of either counter is then compared with
// CLOCK_MONOTONIC_RAW before and after the measurement.
#ifndef CLOCK_H
#define CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

__extension__ typedef unsigned __int128 u128;

enum clock_choice { CLOCK_AUTO, CLOCK_COUNTER, CLOCK_NANOSECONDS };

#if defined(__aarch64__)
#define COUNTER_NAME "cntvct"
#else
#define COUNTER_NAME "tsc"
#endif

// MAX_DRIFT_PPM is how much the rates of two calibrations may differ.
#define MAX_DRIFT_PPM 100.0

struct clock_state {
	bool counter;
	// Nanoseconds are ticks * multiplier >> 32, in 128 bits: nothing overflows.
	uint64_t multiplier;
	double hertz;
	// why_not states why the counter is not used; empty when it is.
	char why_not[160];
	// The rates in Hz: of the calibration before the measurement, of all the time since, and of the calibration after
	// it.
	double before, during, after;
	double drift_ppm;
};

extern struct clock_state clock_now;

// clock_choose chooses the clock, or dies with EXIT_CLOCK when CLOCK_COUNTER was requested and cannot be trusted. root
// is "" or, in tests, a folder that contains proc/cpuinfo and sys/devices.
void clock_choose(enum clock_choice choice, const char *root);
// clock_calibrate_begin and _end measure the rate between the two calls, which must be at least 50 ms apart.
void clock_calibrate_begin(void);
void clock_calibrate_end(void);
// clock_verify measures the rate again and dies with EXIT_CLOCK if it has drifted.
void clock_verify(void);

static inline uint64_t nanoseconds(clockid_t id) {
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ticks returns the current time. The fence lets the counter be read after all that precedes it, such as the loads by which a
// stack in user space finds an answer. What follows is a store, which no other CPU or device sees before the reading retires.
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
	if (__builtin_expect(clock_now.counter, 1)) {
		__builtin_ia32_lfence();
		return __builtin_ia32_rdtsc();
	}
#elif defined(__aarch64__)
	if (__builtin_expect(clock_now.counter, 1)) {
		uint64_t t;
		__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(t)::"memory");
		return t;
	}
#endif
	return nanoseconds(CLOCK_MONOTONIC_RAW);
}

// clock_name returns the name of the clock in use, for results.
static inline const char *clock_name(void) { return clock_now.counter ? COUNTER_NAME : "monotonic"; }

static inline uint64_t to_ns(uint64_t t) {
	return (uint64_t)(((u128)t * clock_now.multiplier) >> 32);
}

// since returns b - a for times read one after the other, and 0 if the clock of another CPU is a few ticks behind.
static inline uint64_t since(uint64_t a, uint64_t b) {
	return (int64_t)(b - a) > 0 ? b - a : 0;
}

// POLLS_A_LOOK is the number of empty polls after which an end that spins reads the clock: reading it costs some percent of a
// poll, and a substantial part of a poll of a stack in user space.
#define POLLS_A_LOOK 4

// to_ticks converts a duration in nanoseconds.
static inline uint64_t to_ticks(uint64_t ns) {
	u128 t = ((u128)ns << 32) / clock_now.multiplier;
	return t > UINT64_MAX / 2 ? UINT64_MAX / 2 : (uint64_t)t;
}

#endif
