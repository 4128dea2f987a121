// The client runs the cells one after the other over one control connection, and prints all results at the end.
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cell.h"
#include "evidence.h"
#include "fail.h"
#include "json.h"

// CONNECT_SECONDS is how long the server may take to answer a greeting, REACH_SECONDS how long no datagram may come
// back before the path counts as blocked.
#define CONNECT_SECONDS 10
#define REACH_SECONDS 5
// CONTROL_SECONDS is how long any other answer may take.
#define CONTROL_SECONDS 30

static struct cell cell;
static struct reservoir server_slow;

static struct address connect_to(const struct client_options *o, struct link *l) {
	struct address a = resolve(o->server, o->port);
	*l = (struct link){.fd = socket(a.sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	if (l->fd < 0)
		die(EXIT_SYSTEM, "making a socket: %s", strerror(errno));
	if (o->local) {
		struct address local = resolve(o->local, 0);
		if (bind(l->fd, (struct sockaddr *)&local.sockaddr, local.length) != 0)
			die(EXIT_SYSTEM, "binding %s: %s", o->local, strerror(errno));
	}
	if (connect(l->fd, (struct sockaddr *)&a.sockaddr, a.length) != 0)
		die(EXIT_UNREACHABLE, "connecting to %s port %d: %s", o->server, o->port, strerror(errno));
	prepare_tcp(l->fd);
	return a;
}

static _Noreturn void control_lost(const char *doing) {
	die(EXIT_PEER_LOST, "the control connection ended, or the server did not answer, %s", doing);
}

static void greet(const struct client_options *o, struct link *l) {
	char line[128];
	connect_to(o, l);
	static const char closed[] = "the server closed the connection: it has another key, or it is no pinger";
	struct session *s = &l->session;
	s->key = o->key;
	draw(s->client, sizeof s->client);
	if (!link_sendf(l, GREETING "%016" PRIx64 "%016" PRIx64 "\n", s->client[0], s->client[1]))
		die(EXIT_IMPOSTOR, "%s", closed);
	uint64_t asked = nanoseconds(CLOCK_MONOTONIC);
	if (!link_line(l, line, sizeof line, CONNECT_SECONDS)) {
		if (nanoseconds(CLOCK_MONOTONIC) - asked >= CONNECT_SECONDS * 1000000000ull)
			die(EXIT_UNREACHABLE, "the server does not answer within %d s: it is busy with another client, or frozen", CONNECT_SECONDS);
		die(EXIT_IMPOSTOR, "%s", closed);
	}
	if (strcmp(line, "BUSY") == 0)
		die(EXIT_UNREACHABLE, "the server is busy with another client");
	if (strncmp(line, "VERSION", 7) == 0)
		die(EXIT_VERSION, "the server is of another version (%s), this is " VERSION, line);
	uint64_t proof;
	if (sscanf(line, "PROOF %16" SCNx64 "%16" SCNx64 " %16" SCNx64, &s->server[0], &s->server[1], &proof) != 3)
		die(EXIT_IMPOSTOR, "who answers is no pinger");
	if (proof != proof_of_server(s))
		die(EXIT_IMPOSTOR, "who answers does not have the key");
	if (!link_sendf(l, "PROOF %016" PRIx64 "\n", proof_of_client(s)) || !link_line(l, line, sizeof line, CONNECT_SECONDS) || strcmp(line, "WELCOME") != 0)
		die(EXIT_IMPOSTOR, "%s", closed);
	s->sent = s->received = (struct transcript){0};
}

// verify lets the server check its clock, and checks that neither its reports nor what it was asked were changed on the way.
static void verify(struct link *l) {
	char line[64];
	struct session *s = &l->session;
	if (!link_sendf(l, "VERIFY\n") || !link_sendf(l, "SEAL %016" PRIx64 "\n", seal_of_client(s, &s->sent)) ||
	    !link_line(l, line, sizeof line, CONTROL_SECONDS) || strcmp(line, "VERIFIED") != 0)
		control_lost("verifying its clock");
	if (!link_unseal(l, seal_of_server(s, &s->received), CONTROL_SECONDS))
		die(EXIT_IMPOSTOR, "the reports of the server were changed on the way");
}

// one_object reports whether a text, if it is valid JSON, is exactly one object: this keeps a server from closing the
// member that the text is put into and adding others. The reader of the result rejects invalid JSON.
static bool one_object(const char *text, size_t length) {
	int depth = 0;
	bool string = false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];
		if (c == '"')
			string = !string;
		else if (string)
			i += c == '\\';
		else if (c == '{' || c == '[')
			depth++;
		else if (c == '}' || c == ']')
			depth--;
		if (depth <= 0)
			return c == '}' && i + 1 == length;
	}
	return false;
}

// fetch_json reads a block from the server and appends it as a member.
static void fetch_json(struct json *j, const char *key, struct link *l, size_t length) {
	if (length == 0 || length > 16 << 20)
		control_lost("reading its report");
	char *block = malloc(length);
	if (!block)
		die(EXIT_SYSTEM, "out of memory for the server's report");
	if (!link_block(l, block, length, CONTROL_SECONDS) || !one_object(block, length))
		control_lost("reading its report");
	json_raw(j, key, block, length);
	free(block);
}

// scan_both looks for interruptions at both ends at the same time. The clock is calibrated meanwhile.
static void scan_both(struct json *j, struct link *l) {
	static struct scan scan;
	char line[64];
	size_t length;
	if (!link_sendf(l, "SCAN\n") || !link_line(l, line, sizeof line, CONTROL_SECONDS) || strcmp(line, "SCANNING") != 0)
		control_lost("before the scan");
	scan_run(&scan);
	if (!link_line(l, line, sizeof line, CONTROL_SECONDS) || sscanf(line, "SCANNED %zu", &length) != 1)
		control_lost("after the scan");
	scan_json(j, "client", &scan);
	fetch_json(j, "server", l, length);
}

static void must(int fd, const char *what) {
	if (fd < 0)
		die(EXIT_SYSTEM, "%s: %s", what, strerror(errno));
}

// open_path agrees with the server on the sockets of a cell.
static void open_path(const struct client_options *o, struct link *l, size_t size) {
	struct address here = local_address(l->fd), there = peer_address(l->fd);
	if (there.length == 0)
		control_lost("before a cell");
	bool loop = same_ip(&here, &there);
	char line[512], nonce[64];
	int port = 0;
	cell.path = (struct path){-1, -1};
	set_port(&here, 0);
	if (o->protocol == UDP) {
		must(cell.path.in = udp_bind(here), "making a UDP socket");
		cell.path.out = cell.path.in;
		must(udp_connect(cell.path.in, there), "connecting a UDP socket");
	} else if (o->protocol == MULTICAST) {
		must(cell.path.in = multicast_bind(o->group, 0), "making a multicast socket");
		must(multicast_join(cell.path.in, o->group, &here, &there), "joining the group");
		must(cell.path.out = multicast_out(o->group, o->port, &here, loop), "making a multicast socket");
	}
	if (cell.path.in >= 0) {
		struct address mine = local_address(cell.path.in);
		port = port_of(&mine);
	}
	if (!link_sendf(l, "CELL %s %zu %d %s %d\n", protocol_names[o->protocol], size, port, o->group, loop) ||
	    !link_line(l, line, sizeof line, CONTROL_SECONDS))
		control_lost("before a cell");
	if (sscanf(line, "CONNECT %63s", nonce) == 1) {
		struct link d;
		connect_to(o, &d);
		cell.path.in = cell.path.out = d.fd;
		if (!link_sendf(&d, "DATA %s\n", nonce) || !link_line(l, line, sizeof line, CONTROL_SECONDS))
			control_lost("connecting for a cell");
	}
	if (strncmp(line, "ERROR ", 6) == 0)
		die(EXIT_SYSTEM, "the server failed %s", line + 6);
	if (strcmp(line, "READY") != 0)
		control_lost("before a cell");
}

// reach tries a datagram path until a datagram has come back: neighbours must be resolved and groups joined.
static void reach(struct link *l, size_t size) {
	static unsigned char message[MAX_TCP];
	memset(message, 0, sizeof message);
	uint64_t until = nanoseconds(CLOCK_MONOTONIC) + REACH_SECONDS * 1000000000ull;
	bool reached = false;
	set_receive_timeout(cell.path.in, 100000000);
	for (int tries = 0; !reached; tries++) {
		if (nanoseconds(CLOCK_MONOTONIC) > until)
			die(EXIT_UNANSWERED, "no datagram of %zu bytes came back within %d s: is UDP blocked on the way, or the group?", size, REACH_SECONDS);
		if (send(cell.path.out, message, size, MSG_NOSIGNAL) < 0 && errno == EMSGSIZE)
			die(EXIT_SYSTEM, "messages of %zu bytes do not fit on the path", size);
		reached = recv(cell.path.in, message, sizeof message, 0) == (ssize_t)size;
		char byte;
		if (!reached && recv(l->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
			control_lost("trying the path");
		memset(message, 0, size);
	}
}

// finish ends a cell at the server and reads its report; it leaves the server's slow messages sorted.
static void finish(struct json *j, const struct client_options *o, struct link *l, struct typical *usual, bool *server_spins) {
	if (!link_sendf(l, "END\n"))
		control_lost("after a cell");
	if (o->protocol == TCP)
		path_close(&cell.path);
	else
		(void)!send(cell.path.out, "", 0, MSG_NOSIGNAL);
	char line[256];
	size_t json_length, list_length, count;
	int dropped, spins;
	uint64_t floor;
	if (!link_line(l, line, sizeof line, CONTROL_SECONDS) ||
	    sscanf(line, "STATS %zu %zu %zu %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %d", &json_length, &list_length, &count, &dropped, &floor,
	           &usual->server_gap, &usual->server_send, &spins) != 8 ||
	    count > MOST_KEPT)
		control_lost("after a cell");
	fetch_json(j, "server", l, json_length);
	reservoir_reset(&server_slow);
	for (size_t i = 0; i < count; i++) {
		struct entry e = {0};
		if (!link_line(l, line, sizeof line, CONTROL_SECONDS) || sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &e.seq, &e.gap, &e.send) != 3)
			control_lost("reading its report");
		server_slow.heap[server_slow.count++] = e;
	}
	server_slow.dropped = dropped;
	server_slow.floor = floor;
	*server_spins = spins;
	reservoir_sort(&server_slow);
}

static void intervals_json(struct json *j, const struct intervals *log) {
	json_open(j, "intervals", '{');
	json_uint(j, "length_ns", log->length);
	// Each entry is count, p50, p99, p99.9 and max in ns, and the number of lost messages.
	json_open(j, "log", '[');
	for (size_t i = 0; i < log->used; i++) {
		const struct interval *in = &log->log[i];
		json_open(j, NULL, '[');
		json_uint(j, NULL, in->count);
		json_uint(j, NULL, interval_quantile(in, 0.5));
		json_uint(j, NULL, interval_quantile(in, 0.99));
		json_uint(j, NULL, interval_quantile(in, 0.999));
		json_uint(j, NULL, in->max);
		json_uint(j, NULL, in->lost);
		json_close(j, ']');
	}
	json_close(j, ']');
	json_close(j, '}');
}

// attribution_json writes where the time of the slowest samples went. usual is the time that is no interruption of
// either end: in a closed loop the time in send; in an open loop, where long sends are already gaps, how late an end
// that sleeps is woken. It leaves the client's list ranked.
static void attribution_json(struct json *j, struct typical usual, bool server_spins) {
	const struct hist *h = cell.rate > 0 ? &cell.intended : &cell.rtt;
	struct attribution a = {.p50 = hist_quantile(h, 0.5), .threshold = hist_quantile(h, 0.999)};
	a.beyond = hist_beyond(h, a.threshold);
	reservoir_rank(&cell.slow);
	attribute(&a, &cell.slow, &server_slow, usual);
	json_open(j, "attribution", '{');
	json_uint(j, "p50Ns", a.p50);
	json_uint(j, "thresholdNs", a.threshold);
	json_uint(j, "beyond", a.beyond);
	json_uint(j, "examined", a.examined);
	for (int place = 0; place < PLACES; place++)
		json_uint(j, place_names[place], a.places[place]);
	json_uint(j, "excessNs", a.excess);
	json_uint(j, "clientExcessNs", a.client_excess);
	json_uint(j, "serverExcessNs", a.server_excess);
	// An end that blocks sees how long send took, but not how late it was woken for a message.
	json_bool(j, "clientSeesGaps", cell.spin);
	json_bool(j, "serverSeesGaps", server_spins);
	json_open(j, "slowest", '[');
	for (size_t i = 0; i < a.listed; i++) {
		const struct outlier *o = &a.slowest[i];
		json_open(j, NULL, '{');
		json_uint(j, "atNs", o->at);
		json_uint(j, "rttNs", o->value);
		json_uint(j, "samples", o->samples);
		json_string(j, "where", place_names[o->place]);
		json_uint(j, "clientGapNs", o->client);
		if (o->server_known)
			json_uint(j, "serverGapNs", o->server);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

static void object(struct json *j, const char *key, const struct coarse *c) {
	json_open(j, key, '{');
	coarse_json(j, c);
	json_close(j, '}');
}

static void client_json(struct json *j, const struct counters *before, const struct counters *after, const char *memory, const char *fast, int64_t resent) {
	json_open(j, "client", '{');
	json_bool(j, "spin", cell.spin);
	json_string(j, "clock", clock_name());
	json_string(j, "memory_locked", memory);
	json_string(j, "accelerated", fast);
	counters_json(j, before, after);
	if (resent < 0)
		json_null(j, "tcp_retransmits");
	else
		json_int(j, "tcp_retransmits", resent);
	object(j, cell.spin && cell.rate == 0 ? "first_look" : "send", &cell.sends);
	if (cell.spin) {
		json_uint(j, "gap_floor_ns", to_ns(cell.floor));
		object(j, "gaps", &cell.held);
	}
	json_close(j, '}');
}

static void reset_cell(const struct client_options *o, size_t size, double rate, struct link *l) {
	struct window window = cell.window;
	memset(window.sent, 0, window.length * sizeof window.sent[0]);
	memset(&cell, 0, sizeof cell);
	cell.window = window;
	cell.control = l;
	cell.protocol = o->protocol;
	cell.size = size;
	cell.keys.shared = next_cell(&l->session, o->protocol, size);
	draw(&cell.keys.own, sizeof cell.keys.own);
	cell.rate = rate;
	cell.spin = o->spin;
	cell.duration = to_ticks(o->duration);
	cell.warmup = to_ticks(o->warmup);
	cell.loss = to_ticks(o->loss);
	hist_reset(&cell.rtt);
	hist_reset(&cell.intended);
	coarse_reset(&cell.sends);
	coarse_reset(&cell.idle);
	coarse_reset(&cell.held);
	intervals_reset(&cell.intervals, o->interval, o->duration);
	reservoir_reset(&cell.slow);
}

static void run_cell(struct json *j, const struct client_options *o, struct link *l, size_t size, double rate, const char *memory) {
	reset_cell(o, size, rate, l);
	open_path(o, l, size);
	if (o->protocol == TCP)
		prepare_tcp(cell.path.in);
	else
		reach(l, size);
	// Only datagrams can be lost, so only for them recv needs a timeout.
	set_receive_timeout(cell.path.in, o->protocol != TCP && !o->spin ? o->loss : 0);
	const char *fast = path_accelerated(&cell.path);
	struct counters before, after;
	counters_read(&before);
	if (rate > 0)
		open_loop(&cell);
	else
		closed_loop(&cell);
	counters_read(&after);
	int64_t resent = o->protocol == TCP ? retransmits(cell.path.in) : -1;
	if (cell.received == 0)
		die(EXIT_UNANSWERED, "%s of %zu bytes: none of %" PRIu64 " messages was answered", protocol_names[o->protocol], size, cell.sent);

	json_open(j, NULL, '{');
	json_string(j, "protocol", protocol_names[o->protocol]);
	json_uint(j, "size", size);
	json_string(j, "loop", rate > 0 ? "open" : "closed");
	json_double(j, "rate_per_s", rate);
	json_bool(j, "spin", o->spin);
	json_uint(j, "duration_ns", o->duration);
	json_uint(j, "warmup_ns", o->warmup);
	json_uint(j, "elapsed_ns", to_ns(since(cell.start, cell.finish)));
	json_uint(j, "sent", cell.sent);
	json_uint(j, "received", cell.received);
	json_uint(j, "lost", cell.lost);
	json_uint(j, "late", cell.late);
	json_uint(j, "duplicates", cell.duplicates);
	json_uint(j, "reordered", cell.reordered);
	json_uint(j, "strays", cell.strays);
	json_open(j, "rtt", '{');
	hist_json(j, &cell.rtt);
	json_close(j, '}');
	if (rate > 0) {
		json_open(j, "rtt_from_intended", '{');
		hist_json(j, &cell.intended);
		json_close(j, '}');
	}
	object(j, rate > 0 ? "lateness" : "idle", &cell.idle);
	intervals_json(j, &cell.intervals);
	client_json(j, &before, &after, memory, fast, resent);
	struct typical usual = {0};
	if (rate == 0)
		usual.client_send = coarse_quantile(&cell.sends, 0.5);
	else if (!o->spin)
		usual.client_gap = coarse_quantile(&cell.idle, 0.5);
	bool server_spins;
	finish(j, o, l, &usual, &server_spins);
	path_close(&cell.path);
	attribution_json(j, usual, server_spins);
	json_close(j, '}');
}

static void clock_json(struct json *j) {
	json_open(j, "clock", '{');
	json_string(j, "source", clock_name());
	if (clock_now.counter) {
		json_double(j, "hz", clock_now.hertz);
		json_double(j, "hz_before", clock_now.before);
		json_double(j, "hz_during", clock_now.during);
		json_double(j, "hz_after", clock_now.after);
		json_double(j, "drift_ppm", clock_now.drift_ppm);
	} else {
		json_string(j, "why_not_counter", clock_now.why_not);
	}
	json_close(j, '}');
}

void measure(const struct client_options *o) {
	set_hard_deadline(o->deadline);
	clock_choose(o->clock, "");
	// Sleeps end on time, not up to 50 us later.
	prctl(PR_SET_TIMERSLACK, 1);
	double highest = 0;
	for (size_t i = 0; i < o->rate_count; i++)
		highest = o->rates[i] > highest ? o->rates[i] : highest;
	memset(&cell, 1, sizeof cell);
	memset(&server_slow, 1, sizeof server_slow);
	cell.window.length = window_length(highest, o->loss);
	cell.window.sent = malloc(cell.window.length * sizeof cell.window.sent[0]);
	if (!cell.window.sent)
		die(EXIT_SYSTEM, "out of memory");
	memset(cell.window.sent, 1, cell.window.length * sizeof cell.window.sent[0]);
	const char *memory = lock_memory();

	struct link control;
	struct json j = {0};
	greet(o, &control);
	json_open(&j, NULL, '{');
	json_string(&j, "tool", "tailgate-pinger");
	json_string(&j, "version", VERSION);
	json_string(&j, "server", o->server);
	json_open(&j, "scan", '{');
	// The rate is not known before; the scan needs it only approximately.
	clock_calibrate_begin();
	struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
	nanosleep(&pause, NULL);
	clock_calibrate_end();
	scan_both(&j, &control);
	clock_calibrate_end();
	json_close(&j, '}');
	json_open(&j, "cells", '[');
	for (size_t i = 0; i < o->size_count; i++)
		for (size_t k = 0; k < o->rate_count; k++)
			run_cell(&j, o, &control, o->sizes[i], o->rates[k], memory);
	json_close(&j, ']');
	clock_verify();
	verify(&control);
	clock_json(&j);
	json_close(&j, '}');
	json_printf(&j, "\n");
	for (size_t done = 0; done < j.length;) {
		ssize_t n = write(STDOUT_FILENO, j.text + done, j.length - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die(EXIT_OUTPUT, "writing the result: %s", strerror(errno));
		done += (size_t)n;
	}
	json_free(&j);
	free(cell.window.sent);
	close(control.fd);
}
