// The measuring loops. In them the client makes no system calls except send and recv and, when it blocks in an open
// loop, ppoll. They allocate nothing. All counting is done after the answer has arrived and before the next message is
// sent.
#include "cell.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

// WINDOW_MOST is the most messages that may be in flight.
#define WINDOW_MOST (1ull << 20)
// OVERRUN_NS is how long an open loop continues to catch up after the last message was due.
#define OVERRUN_NS 10000000000ull
// SENDS_TO_LEARN is the number of messages from which the usual time in send is learnt.
#define SENDS_TO_LEARN 64
// WAKE_NS is the longest time by which a timer may wake a client that blocks after the time of a message without that this counts as
// latency: it is of the load and not of the path. Beyond it, the client was stalled.
#define WAKE_NS 100000ull
// NEVER is longer than anything takes, in ticks.
#define NEVER (UINT64_MAX / 4)

uint64_t window_length(double rate, uint64_t loss_ns) {
	double need = rate * (double)loss_ns / 1e9 * 2;
	uint64_t length = 1024;
	while ((double)length < need && length < WINDOW_MOST)
		length *= 2;
	return length;
}

static uint64_t *slot(struct cell *c, uint64_t seq) { return &c->window.sent[seq & (c->window.length - 1)]; }

// sent_time returns when a message that is under way was sent.
static uint64_t sent_time(struct cell *c, uint64_t seq) { return *slot(c, seq) & ~WOKEN; }

// begin_measuring ends the warm-up.
static void begin_measuring(struct cell *c, uint64_t now, uint64_t first) {
	c->measuring = true;
	c->start = now;
	c->first = first;
	coarse_reset(&c->sends);
}

static int ascending(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

// learn_polls measures how long this many empty polls take, before anything is sent. They take longer in one network
// stack than in another. Most of them are not interrupted, so their median is not affected.
static void learn_polls(struct cell *c, int polls) {
	enum { LOOKS = 101 };
	uint64_t looks[LOOKS];
	for (int i = 0; i < LOOKS; i++) {
		uint64_t from = ticks();
		for (int k = 0; k < polls; k++)
			(void)!recv(c->path.in, c->in, c->protocol == TCP ? c->size : sizeof c->in, MSG_DONTWAIT);
		looks[i] = since(from, ticks());
	}
	qsort(looks, LOOKS, sizeof looks[0], ascending);
	c->usual_look = looks[LOOKS / 2];
	c->floor = c->usual_look + c->usual_look / 2 + to_ticks(250);
}

// peer_lost ends the program after an error of send or recv on the data connection.
static _Noreturn void peer_lost(const struct cell *c, const char *what) {
	die(EXIT_PEER_LOST, "%s of %zu bytes: the server is gone (%s)", protocol_names[c->protocol], c->size, what);
}

static void check_errno(const struct cell *c) {
	switch (errno) {
	case EAGAIN:
	case EINTR:
	case ENOBUFS:
		return;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		peer_lost(c, strerror(errno));
	case EMSGSIZE:
		die(EXIT_SYSTEM, "messages of %zu bytes do not fit on the path", c->size);
	default:
		die(EXIT_SYSTEM, "%s of %zu bytes: %s", protocol_names[c->protocol], c->size, strerror(errno));
	}
}

// check_server checks after a loss whether the server still exists.
static void check_server(struct cell *c) {
	char byte;
	ssize_t n = recv(c->control->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		peer_lost(c, "it closed its control connection");
}

// send_some sends the rest of the message in c->out, from *done on, and reports whether it was sent completely.
static inline bool send_some(struct cell *c, size_t *done, int flags) {
	ssize_t n = send(c->path.out, c->out + *done, c->size - *done, flags | MSG_NOSIGNAL);
	if (__builtin_expect(n < 0, 0)) {
		check_errno(c);
		return false;
	}
	*done += (size_t)n;
	return *done == c->size;
}

// sent_at records the time in send in an open loop, where it delays all messages in flight.
static inline void sent_at(struct cell *c, uint64_t from, uint64_t to) {
	uint64_t took = since(from, to);
	coarse_add(&c->sends, to_ns(took));
	if (took > 2 * c->usual_send && took - c->usual_send > c->floor)
		gaps_add(&c->gaps, IN_SEND, from + c->usual_send, to);
	if (__builtin_expect(c->sends.totals.count == SENDS_TO_LEARN, 0))
		c->usual_send = to_ticks(coarse_quantile(&c->sends, 0.5));
}

// held_up records that the client did not poll for messages for a while.
static void held_up(struct cell *c, uint64_t from, uint64_t to) {
	gaps_add(&c->gaps, BETWEEN_POLLS, from, to);
	if (c->measuring)
		coarse_add(&c->held, to_ns(since(from, to)));
}

// empty_polls records that no message was there, and that the client had not polled since last.
static inline void empty_polls(struct cell *c, uint64_t last, uint64_t now) {
	if (since(last, now) > c->floor)
		held_up(c, last + c->usual_look, now);
}

// full_poll does the same for a poll that found a message, which always takes longer.
static inline void full_poll(struct cell *c, uint64_t last, uint64_t now) {
	if (since(last, now) / 2 > c->floor)
		held_up(c, last + c->usual_look, now);
}

// record counts the answer to a message with the times at which it was sent, should have been sent, and was answered.
// away is how long, in ticks, the client was busy sending it, if that time is not among the gaps.
static inline void record(struct cell *c, uint64_t seq, uint64_t sent, uint64_t should, uint64_t now, uint64_t away) {
	uint64_t ns = to_ns(since(sent, now));
	c->received++;
	hist_add(&c->rtt, ns);
	if (c->rate > 0) {
		ns = to_ns(since(should, now));
		hist_add(&c->intended, ns);
	}
	uint64_t at = to_ns(since(c->start, should));
	intervals_add(&c->intervals, at, ns);
	if (ns > c->slow.floor) {
		uint64_t sums[2];
		gaps_within(&c->gaps, should, now, sums);
		uint64_t gap = to_ns(sums[BETWEEN_POLLS]), send = to_ns(sums[IN_SEND] + away);
		reservoir_add(&c->slow, (struct entry){.value = ns, .seq = seq, .at = at, .gap = gap, .send = send});
	}
}

// impostor ends the program: without the key, nobody can make the tag of an answer, so that the latency of no answer is known.
static _Noreturn void impostor(const struct cell *c, uint64_t seq) {
	die(EXIT_IMPOSTOR, "%s of %zu bytes: something else than the server answered message %" PRIu64 ", or the server before it had the whole message",
	    protocol_names[c->protocol], c->size, seq);
}

// foreign reports whether a datagram is not an answer that is still awaited, and counts it accordingly.
static bool foreign(struct cell *c, ssize_t n, uint64_t next, uint64_t *seq) {
	if ((size_t)n != c->size) {
		c->strays++;
		return true;
	}
	*seq = get_seq(c->in, c->size, next - 1);
	if (*seq == 0)
		return true; // sent while the path was tried
	if (*seq >= next || next - *seq > c->window.length) {
		c->strays++;
		return true;
	}
	if (!has_tag(c->in, c->size, tag_of_answer(&c->keys, *seq)))
		impostor(c, *seq);
	uint64_t state = *slot(c, *seq);
	bool counts = c->measuring && *seq >= c->first;
	if (state == LOST) {
		// It was given up, and stays lost: its answer arrived after the deadline. A second answer is a duplicate.
		c->late += counts;
		*slot(c, *seq) = ANSWERED;
		return true;
	}
	if (state == ANSWERED) {
		c->duplicates += counts;
		return true;
	}
	if (*seq < c->highest)
		c->reordered += counts;
	else
		c->highest = *seq;
	return false;
}

// lose counts a message that was given up, at the time at which it should have been sent.
static void lose(struct cell *c, uint64_t should) {
	c->lost++;
	interval_at(&c->intervals, to_ns(since(c->start, should)))->lost++;
}

// in_step checks that a stream returns the answer to the message that was sent.
static void in_step(const struct cell *c, uint64_t seq) {
	if (c->in[0] != (unsigned char)seq || !has_tag(c->in, c->size, tag_of_answer(&c->keys, seq)))
		impostor(c, seq);
}

// prepare writes a message. It takes some ns, so it precedes the reading of the clock from which the message counts.
static inline void prepare(struct cell *c, uint64_t seq) {
	put_seq(c->out, c->size, seq);
	put_tag(c->out, c->size, tag_of_message(&c->keys, seq));
}

void closed_loop(struct cell *c) {
	const int flags = c->spin ? MSG_DONTWAIT : 0;
	const bool stream = c->protocol == TCP;
	// turn is the end of the warm-up, then the end of the measurement.
	uint64_t begin = ticks(), turn = begin + c->warmup, previous = begin;
	// A blocking recv times out after the same period, but measured by a coarser clock.
	const uint64_t patience = c->spin ? c->loss : c->loss - c->loss / 16;
	if (c->spin)
		learn_polls(c, POLLS_A_LOOK);
	for (uint64_t seq = 1;; seq++) {
		prepare(c, seq);
		size_t done = 0, have = 0;
		uint64_t got = seq;
		*slot(c, seq) = begin; // in flight; the time is in start
		// From here to the answer nothing is done that could wait. Between send and the first poll the clock is not
		// even read, except by an end that sleeps, which has the time.
		uint64_t start = ticks();
		if (__builtin_expect(start >= turn, 0)) {
			if (c->measuring) {
				c->finish = start;
				coarse_add(&c->idle, to_ns(since(previous, start)) + 1);
				return;
			}
			begin_measuring(c, start, seq);
			turn = start + c->duration;
			previous = start;
		}
		while (!send_some(c, &done, flags))
			;
		// gone is when the client finished sending, as far as it knows; last is when it last read the clock.
		uint64_t gone = c->spin ? 0 : ticks(), last = gone, now;
		bool answered = true;
		for (unsigned polls = 0;;) {
			ssize_t n = recv(c->path.in, c->in + have, stream ? c->size - have : sizeof c->in, flags);
			if (n < 0 && c->spin && ++polls % POLLS_A_LOOK != 0 && errno == EAGAIN)
				continue;
			now = ticks();
			if (__builtin_expect(n > 0, 1)) {
				have += (size_t)n;
				if (stream ? have == c->size : !foreign(c, n, seq + 1, &got))
					break;
				if (!stream)
					have = 0;
			} else if (n == 0) {
				if (stream)
					peer_lost(c, "it closed the connection");
				c->strays++;
			} else {
				if (__builtin_expect(errno != EAGAIN, 0))
					check_errno(c);
				if (gone == 0)
					gone = now;
				else if (c->spin)
					empty_polls(c, last, now);
				last = now;
			}
			if (!stream && __builtin_expect(since(start, now) > patience, 0)) {
				answered = false;
				break;
			}
		}
		if (c->measuring) {
			c->sent++;
			coarse_add(&c->idle, to_ns(since(previous, start)) + 1);
		}
		if (__builtin_expect(!answered, 0)) {
			*slot(c, seq) = LOST;
			if (c->measuring)
				lose(c, start);
			check_server(c);
			previous = ticks();
			continue;
		}
		// An answer to the first polls leaves no reading of the clock between. The poll that found it may itself have
		// been late.
		if (gone == 0)
			gone = now;
		else if (c->spin)
			full_poll(c, last, now);
		if (stream)
			in_step(c, seq);
		*slot(c, seq) = ANSWERED;
		if (c->measuring) {
			coarse_add(&c->sends, to_ns(since(start, gone)));
			record(c, seq, start, start, now, since(start, gone));
		}
		previous = now;
	}
}

// schedule holds the times at which messages should be sent: one period apart, from a begin that never changes.
struct schedule {
	uint64_t begin;
	u128 period; // ticks << 32
};

static inline uint64_t due(const struct schedule *s, uint64_t seq) {
	return s->begin + (uint64_t)((s->period * (seq - 1)) >> 32);
}

// wait_for blocks until it can read or send, or until a time, and reports whether it slept beyond it.
static bool wait_for(struct cell *c, bool wants_to_send, uint64_t now, uint64_t until) {
	uint64_t ns = to_ns(since(now, until));
	struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	struct pollfd p[2] = {{.fd = c->path.in, .events = POLLIN}, {.fd = c->path.out, .events = POLLOUT}};
	(void)!ppoll(p, wants_to_send ? 2 : 1, &timeout, NULL);
	// Whatever caused this end to wake: if the time has passed, it woke too late.
	now = ticks();
	if (since(until, now) == 0)
		return false;
	held_up(c, until, now);
	return true;
}

static _Noreturn void overloaded(const struct cell *c, uint64_t total, uint64_t sent, uint64_t under_way) {
	die(EXIT_OVERLOADED,
	    "%s of %zu bytes at %.15g a second: long after the last was due, %" PRIu64 " of %" PRIu64 " messages are sent and "
	    "%" PRIu64 " of them under way; the path does not carry so many, use a lower rate",
	    protocol_names[c->protocol], c->size, c->rate, sent, total, under_way);
}

void open_loop(struct cell *c) {
	const bool stream = c->protocol == TCP;
	if (c->spin)
		learn_polls(c, 1);
	c->usual_send = NEVER;
	const uint64_t warm_count = (uint64_t)(c->rate * (double)c->warmup / clock_now.hertz);
	const uint64_t total = warm_count + (uint64_t)(c->rate * (double)c->duration / clock_now.hertz + 0.5);
	struct schedule plan = {.begin = ticks() + to_ticks(1000), .period = (u128)(clock_now.hertz / c->rate * 4294967296.0)};
	const uint64_t limit = due(&plan, total) + to_ticks(OVERRUN_NS) + c->loss;
	// next is the number of the next message to send, oldest the number of the first without an answer.
	// woken is the number of the message for whose time a timer woke this end last.
	uint64_t next = 1, oldest = 1, last = ticks(), send_began = 0, woken = 0;
	size_t done = 0, have = 0;
	prepare(c, next);
	while (next <= total || oldest < next) {
		uint64_t now = ticks();
		bool waiting_for_room = false;
		if (__builtin_expect(since(limit, now) > 0, 0))
			overloaded(c, total, next - 1, next - oldest);
		if (!c->measuring && next > warm_count)
			begin_measuring(c, due(&plan, warm_count + 1), warm_count + 1);
		if (next <= total && (now >= due(&plan, next) || done > 0) && next - oldest < c->window.length) {
			if (done == 0) {
				now = send_began = ticks();
				// A message that was due while the client did not poll is late by that gap.
				if (c->spin) {
					empty_polls(c, last, now);
					last = now;
				}
			}
			waiting_for_room = !send_some(c, &done, MSG_DONTWAIT);
			if (!waiting_for_room) {
				uint64_t gone = ticks();
				*slot(c, next) = send_began | (woken == next ? WOKEN : 0);
				if (next > warm_count) {
					c->sent++;
					coarse_add(&c->idle, to_ns(since(due(&plan, next), send_began)) + 1);
				}
				sent_at(c, now, gone);
				last = gone > last ? gone : last;
				done = 0;
				prepare(c, ++next);
			}
		}
		if (oldest == next && (c->spin || (next <= total && now >= due(&plan, next)))) {
			// Nothing is in flight: only the clock is read.
			if (c->spin)
				empty_polls(c, last, now);
			last = now;
			continue;
		}
		ssize_t n = recv(c->path.in, c->in + have, stream ? c->size - have : sizeof c->in, MSG_DONTWAIT);
		now = ticks();
		if (c->spin && n < 0)
			empty_polls(c, last, now);
		else if (c->spin)
			full_poll(c, last, now);
		last = now;
		if (n > 0) {
			uint64_t seq = oldest;
			have += (size_t)n;
			if (stream ? have < c->size : foreign(c, n, next, &seq)) {
				if (!stream)
					have = 0;
				continue;
			}
			have = 0;
			if (stream)
				in_step(c, seq);
			uint64_t sent = sent_time(c, seq), should = due(&plan, seq);
			if (sent != *slot(c, seq))
				should += since(should, sent) < to_ticks(WAKE_NS) ? since(should, sent) : to_ticks(WAKE_NS);
			*slot(c, seq) = ANSWERED;
			if (seq > warm_count)
				record(c, seq, sent, should, now, 0);
			while (oldest < next && *slot(c, oldest) <= LOST)
				oldest++;
			continue;
		}
		if (n == 0 && stream)
			peer_lost(c, "it closed the connection");
		if (n < 0 && errno != EAGAIN)
			check_errno(c);
		if (!stream && oldest < next && since(sent_time(c, oldest), now) > c->loss) {
			while (oldest < next && (*slot(c, oldest) <= LOST || since(sent_time(c, oldest), now) > c->loss)) {
				if (*slot(c, oldest) > LOST) {
					*slot(c, oldest) = LOST;
					if (oldest > warm_count)
						lose(c, due(&plan, oldest));
				}
				oldest++;
			}
			check_server(c);
		}
		if (!c->spin) {
			uint64_t until = next <= total ? due(&plan, next) : now + c->loss;
			if (next - oldest >= c->window.length || (!stream && next > total))
				until = now + to_ticks(10000000);
			if (until > now || waiting_for_room) {
				bool slept = wait_for(c, waiting_for_room, now, until > now ? until : now + to_ticks(10000000));
				if (slept && next <= total && until == due(&plan, next))
					woken = next;
			}
		}
	}
	c->finish = ticks();
}
