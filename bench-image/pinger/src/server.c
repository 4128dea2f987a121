// The server sends every message back with the tag of its answer. It measures the time between two messages with the clock, and reports
// it to the client when the cell has ended.
//
// While a cell is measured the server makes no system calls except recv and send. New connections wait meanwhile in the
// kernel's queue, which satisfies a probe, and are handled afterwards. The end of a cell is signalled by the data
// connection itself (its end, or an empty datagram), and by SIGIO from the control connection, which also signals that
// the client has died.
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "evidence.h"
#include "fail.h"
#include "json.h"
#include "net.h"
#include "outliers.h"

#define MOST_PENDING 32
// HELLO_SECONDS is how long a connection may take to identify itself.
#define HELLO_SECONDS 2
// IDLE_SECONDS is how long a client may take between two requests.
#define IDLE_SECONDS 30

// pending is a connection that has not identified itself yet.
struct pending {
	int fd;
	uint64_t since; // ns
	struct session session;
	bool challenged; // it has greeted, and has to prove that it has the key
	size_t length;
	char line[256];
};

static struct {
	const struct server_options *options;
	int listener;
	const char *memory;
	struct pending pending[MOST_PENDING];
	size_t count;
} server;

// The memory of a cell. It is here, not on the stack, so that it can be touched before.
static struct {
	struct reservoir slow;
	struct coarse gaps, sends;
	struct key key;
	uint64_t served, strays;
	unsigned char buffer[MAX_TCP + 64] __attribute__((aligned(64)));
} cell;

// stop ends the running cell; data is the socket of the cell that on_control shuts down, or -1. watched is the control
// connection.
static volatile sig_atomic_t stop;
static volatile int data = -1, watched = -1;

// on_control ends the cell when the control connection has data to read, or is gone. The signal alone does not mean
// that: Onload sends SIGIO whenever it wakes the socket.
static void on_control(int signal_number) {
	(void)signal_number;
	int why = errno;
	char next;
	if (recv(watched, &next, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR)) {
		stop = 1;
		if (data >= 0)
			shutdown(data, SHUT_RDWR);
	}
	errno = why;
}

static void dismiss(size_t i, bool keep) {
	if (!keep)
		close(server.pending[i].fd);
	server.pending[i] = server.pending[--server.count];
}

static void take_newcomers(void) {
	for (;;) {
		int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (server.count == MOST_PENDING) {
			size_t oldest = 0;
			for (size_t i = 1; i < server.count; i++)
				if (server.pending[i].since < server.pending[oldest].since)
					oldest = i;
			dismiss(oldest, false);
		}
		server.pending[server.count++] = (struct pending){.fd = fd, .since = nanoseconds(CLOCK_MONOTONIC)};
	}
}

// equal compares two texts without revealing by its duration how far they agree.
static bool equal(const char *a, const char *b) {
	size_t n = strlen(a), m = strlen(b);
	unsigned char difference = n != m;
	for (size_t i = 0; i < n; i++)
		difference |= (unsigned char)(a[i] ^ b[m ? i % m : 0]);
	return difference == 0;
}

// hear reads what a new connection has sent so far. It returns 1 if that is the wanted line, -1 if the connection must
// be closed, and 0 if more may follow. If wanted is NULL, it waits for a client that proves that it has the key.
static int hear(struct pending *p, const char *wanted) {
	ssize_t n = recv(p->fd, p->line + p->length, sizeof p->line - 1 - p->length, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	p->length += (size_t)n;
	p->line[p->length] = 0;
	char *end = memchr(p->line, '\n', p->length);
	if (!end)
		return p->length == sizeof p->line - 1 ? -1 : 0;
	if (end != p->line + p->length - 1)
		return -1;
	*end = 0;
	p->length = 0;
	if (wanted && equal(p->line, wanted))
		return 1;
	struct session *s = &p->session;
	uint64_t proof;
	char answer[128];
	int verdict = -1;
	if (p->challenged) {
		if (sscanf(p->line, "PROOF %16" SCNx64, &proof) != 1 || proof != proof_of_client(s))
			return -1;
		if (!wanted)
			return 1;
		snprintf(answer, sizeof answer, "BUSY\n");
	} else if (sscanf(p->line, GREETING "%16" SCNx64 "%16" SCNx64, &s->client[0], &s->client[1]) == 2) {
		s->key = server.options->key;
		draw(s->server, sizeof s->server);
		snprintf(answer, sizeof answer, "PROOF %016" PRIx64 "%016" PRIx64 " %016" PRIx64 "\n", s->server[0], s->server[1], proof_of_server(s));
		p->challenged = true;
		verdict = 0;
	} else if (strncmp(p->line, PROGRAM, strlen(PROGRAM)) == 0 && strncmp(p->line, GREETING, strlen(GREETING)) != 0) {
		snprintf(answer, sizeof answer, "VERSION " VERSION "\n");
	} else {
		return -1;
	}
	(void)!send(p->fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
	return verdict;
}

// admit waits for a connection that sends the wanted line or, without one, is a client's, and closes all others. It sets the session of a
// client, and returns -1 when control, if there is one, receives data or is gone first.
static int admit(const char *wanted, int control, struct session *session) {
	for (;;) {
		struct pollfd polled[MOST_PENDING + 2];
		size_t count = server.count;
		for (size_t i = 0; i < count; i++)
			polled[i] = (struct pollfd){.fd = server.pending[i].fd, .events = POLLIN};
		polled[count] = (struct pollfd){.fd = server.listener, .events = POLLIN};
		polled[count + 1] = (struct pollfd){.fd = control, .events = POLLIN};
		if (poll(polled, (nfds_t)count + 2, count ? 200 : -1) < 0)
			continue;
		uint64_t now = nanoseconds(CLOCK_MONOTONIC);
		for (size_t i = count; i-- > 0;) {
			int verdict = polled[i].revents ? hear(&server.pending[i], wanted) : 0;
			if (verdict > 0) {
				int fd = server.pending[i].fd;
				if (session)
					*session = server.pending[i].session;
				dismiss(i, true);
				fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
				return fd;
			}
			if (verdict < 0 || now - server.pending[i].since > HELLO_SECONDS * 1000000000ull)
				dismiss(i, false);
		}
		if (control >= 0 && polled[count + 1].revents)
			return -1;
		if (polled[count].revents)
			take_newcomers();
	}
}

// request is a client's request to measure a cell.
struct request {
	enum protocol protocol;
	size_t size;
	int port;
	char group[64];
	int loop;
};

static bool read_request(const char *line, struct request *r) {
	char protocol[16];
	int size;
	if (sscanf(line, "CELL %15s %d %d %63s %d", protocol, &size, &r->port, r->group, &r->loop) != 5)
		return false;
	for (r->protocol = TCP; r->protocol <= MULTICAST; r->protocol++)
		if (strcmp(protocol, protocol_names[r->protocol]) == 0)
			break;
	if (r->protocol > MULTICAST || size < 1 || size > (r->protocol == TCP ? MAX_TCP : MAX_DATAGRAM))
		return false;
	r->size = (size_t)size;
	return r->protocol == TCP || (r->port > 0 && r->port < 65536);
}

// times holds the server's state between two messages, in ticks: when it last read the clock, when it read it before
// that, and when it had answered. polls counts the empty polls since then.
struct times {
	uint64_t looked, empty, answered;
	unsigned polls;
};

static struct times times_now(void) {
	uint64_t now = ticks();
	return (struct times){.looked = now, .empty = now, .answered = now};
}

// polled_in_vain records that no message was there.
static inline void polled_in_vain(struct times *t) {
	if (++t->polls % POLLS_A_LOOK == 0) {
		t->empty = t->looked;
		t->looked = ticks();
	}
}

// log_message records how the server spent the time around a message that it has just answered. A server that polls
// records the time since its last empty poll; it may have polled and then been stopped before it could read the clock,
// so the time counts from the reading before that. It does not read the clock between recv and send, because that would
// be part of every round trip. A server that blocks does not see how long a message waited for it, and records the time
// in send, which began at received.
static inline void log_message(struct times *t, bool spin, uint64_t seq, uint64_t received) {
	uint64_t sent = ticks();
	if (t->polls > 0 && since(t->empty, t->answered) > 0)
		t->empty = t->answered;
	struct entry e = {.seq = seq};
	if (spin)
		coarse_add(&cell.gaps, e.gap = to_ns(since(t->empty, sent)));
	else
		coarse_add(&cell.sends, e.send = to_ns(since(received, sent)));
	e.value = e.gap + e.send;
	cell.served++;
	if (e.value > cell.slow.floor)
		reservoir_add(&cell.slow, e);
	t->looked = t->answered = sent;
	t->polls = 0;
}

// impostor ends the program: what came is not from the client. A server that answered on would tell who sent it the tags of its answers.
static _Noreturn void impostor(const char *protocol, size_t size, uint64_t seq) {
	die(EXIT_IMPOSTOR, "%s of %zu bytes: something else than the client sent message %" PRIu64, protocol, size, seq);
}

// echo_stream serves a TCP connection until its end.
static void echo_stream(int fd, size_t size, bool spin) {
	int flags = spin ? MSG_DONTWAIT : 0;
	unsigned char *buffer = cell.buffer;
	struct times t = times_now();
	for (uint64_t seq = 1;; seq++) {
		// The number is computed before the message is there, so that this takes none of its time.
		uint64_t number = number_of(&cell.key, seq);
		size_t have = 0;
		while (have < size) {
			ssize_t n = recv(fd, buffer + have, size - have, flags);
			if (__builtin_expect(n <= 0, 0)) {
				if (n < 0 && (errno == EAGAIN || errno == EINTR) && !stop) {
					polled_in_vain(&t);
					continue;
				}
				return;
			}
			have += (size_t)n;
		}
		uint64_t received = spin ? 0 : ticks();
		if (__builtin_expect(!turn_tag(buffer, size, number), 0))
			impostor(protocol_names[TCP], size, seq);
		for (size_t done = 0; done < size;) {
			ssize_t n = send(fd, buffer + done, size - done, flags | MSG_NOSIGNAL);
			if (__builtin_expect(n < 0, 0)) {
				if ((errno == EAGAIN || errno == EINTR) && !stop)
					continue;
				return;
			}
			done += (size_t)n;
		}
		log_message(&t, spin, seq, received);
	}
}

// echo_datagrams serves until the client ends the cell, by an empty datagram or otherwise.
static void echo_datagrams(struct path p, size_t size, bool spin) {
	int flags = spin ? MSG_DONTWAIT : 0;
	unsigned char *buffer = cell.buffer;
	// The number of the next message is computed before it is there, so that this takes none of its time.
	uint64_t seq = 0, next = 1, number = number_of(&cell.key, next);
	bool begun = false;
	struct times t = times_now();
	while (!stop) {
		ssize_t n = recv(p.in, buffer, sizeof cell.buffer, flags);
		if (__builtin_expect(n < 0, 0)) {
			polled_in_vain(&t);
			// The next recv reports a refused answer; the control connection shows whether the client is gone.
			continue;
		}
		uint64_t received = spin ? 0 : ticks();
		if ((size_t)n != size) {
			if (n == 0)
				return;
			cell.strays++;
			continue;
		}
		seq = get_seq(buffer, size, seq);
		if (__builtin_expect(seq != next, 0)) {
			// Number 0 only tries the path, before the first message: it has no tag, and anybody can send it.
			if (seq == 0 && begun) {
				cell.strays++;
				continue;
			}
			number = number_of(&cell.key, seq);
		}
		if (__builtin_expect(seq != 0 && !turn_tag(buffer, size, number), 0))
			impostor("datagrams", size, seq);
		while (send(p.out, buffer, size, flags | MSG_NOSIGNAL) < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) && !stop)
			;
		log_message(&t, spin, seq, received);
		begun = seq != 0;
		number = number_of(&cell.key, next = seq + 1);
	}
}

// watch enables or disables the interruption of a cell by the control connection.
static void watch(int control, int fd, bool on) {
	int flags = fcntl(control, F_GETFL);
	if (on) {
		stop = 0;
		data = fd;
		watched = control;
		fcntl(control, F_SETOWN, getpid());
		fcntl(control, F_SETFL, flags | O_ASYNC);
		// Data that arrived before the signal was requested has not sent one.
		struct pollfd p = {.fd = control, .events = POLLIN};
		if (poll(&p, 1, 0) > 0)
			on_control(0);
	} else {
		fcntl(control, F_SETFL, flags & ~O_ASYNC);
		data = -1;
	}
}

// report sends the client the results of the cell at this end: a JSON object that becomes part of its result, and the
// slowest messages, which it compares with its own.
static bool report(struct link *l, const struct counters *before, const struct counters *after, const char *fast, int64_t resent) {
	struct json j = {0}, list = {0};
	json_open(&j, NULL, '{');
	json_bool(&j, "spin", server.options->spin);
	json_string(&j, "clock", clock_name());
	json_string(&j, "memory_locked", server.memory);
	json_string(&j, "accelerated", fast);
	json_uint(&j, "served", cell.served);
	json_uint(&j, "strays", cell.strays);
	counters_json(&j, before, after);
	if (resent < 0)
		json_null(&j, "tcp_retransmits");
	else
		json_int(&j, "tcp_retransmits", resent);
	json_open(&j, server.options->spin ? "gaps" : "send", '{');
	coarse_json(&j, server.options->spin ? &cell.gaps : &cell.sends);
	json_close(&j, '}');
	json_close(&j, '}');
	for (size_t i = 0; i < cell.slow.count; i++) {
		const struct entry *e = &cell.slow.heap[i];
		json_printf(&list, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", e->seq, e->gap, e->send);
	}
	bool ok = link_sendf(l, "STATS %zu %zu %zu %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n", j.length, list.length, cell.slow.count, cell.served > cell.slow.count,
	                     cell.slow.floor, coarse_quantile(&cell.gaps, 0.5), coarse_quantile(&cell.sends, 0.5), server.options->spin) &&
	          link_send(l, j.text, j.length) && link_send(l, list.text ? list.text : "", list.length);
	json_free(&j);
	json_free(&list);
	return ok;
}

// open_path creates the sockets of a cell and tells the client how to reach them. It returns false when that failed;
// *alive states whether the client is still there.
static bool open_path(struct link *l, const struct request *r, struct path *p, bool *alive) {
	struct address here = local_address(l->fd), there = peer_address(l->fd);
	*alive = there.length > 0;
	if (!*alive)
		return false;
	if (r->protocol == TCP) {
		unsigned char random[16];
		char line[64] = "DATA ";
		draw(random, sizeof random);
		for (size_t i = 0; i < sizeof random; i++)
			snprintf(line + 5 + 2 * i, 3, "%02x", random[i]);
		*alive = link_sendf(l, "CONNECT %s\n", line + 5);
		p->in = p->out = *alive ? admit(line, l->fd, NULL) : -1;
		*alive = *alive && p->in >= 0;
		if (*alive)
			prepare_tcp(p->in);
		return *alive;
	}
	set_port(&there, r->port);
	if (r->protocol == UDP) {
		p->in = p->out = udp_bind(here);
		if (p->in >= 0 && udp_connect(p->in, there) == 0)
			return true;
	} else {
		p->in = multicast_bind(r->group, server.options->port);
		if (p->in >= 0 && multicast_join(p->in, r->group, &here, &there) == 0)
			p->out = multicast_out(r->group, r->port, &here, r->loop);
		if (p->out >= 0)
			return true;
	}
	*alive = link_sendf(l, "ERROR making its %s socket: %s\n", protocol_names[r->protocol], strerror(errno));
	return false;
}

// kept holds the sockets of the last cell. They stay open until the next cell or the end of the server, so that Onload's counters of
// them can still be read.
static struct path kept = {-1, -1};

// run_cell serves one cell. It returns false when the client is gone.
static bool run_cell(struct link *l, const struct request *r) {
	path_close(&kept);
	struct path p = {-1, -1};
	bool alive, spin = server.options->spin;
	if (!open_path(l, r, &p, &alive)) {
		path_close(&p);
		return alive;
	}
	const char *fast = path_accelerated(&p);
	reservoir_reset(&cell.slow);
	coarse_reset(&cell.gaps);
	coarse_reset(&cell.sends);
	cell.served = cell.strays = 0;
	cell.key = next_cell(&l->session, r->protocol, r->size);
	memset(cell.buffer, 0, sizeof cell.buffer);
	struct counters before, after;
	counters_read(&before);
	if (link_sendf(l, "READY\n")) {
		watch(l->fd, p.in, true);
		if (r->protocol == TCP)
			echo_stream(p.in, r->size, spin);
		else
			echo_datagrams(p, r->size, spin);
		watch(l->fd, p.in, false);
	}
	counters_read(&after);
	int64_t resent = r->protocol == TCP ? retransmits(p.in) : -1;
	kept = p;
	char line[64];
	return link_line(l, line, sizeof line, IDLE_SECONDS) && strcmp(line, "END") == 0 && report(l, &before, &after, fast, resent);
}

// session serves one client until it leaves.
static void session(struct link *l) {
	struct timeval patience = {.tv_sec = IDLE_SECONDS};
	(void)setsockopt(l->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	prepare_tcp(l->fd);
	char line[256];
	static struct scan scan;
	if (!link_sendf(l, "WELCOME\n"))
		return;
	struct session *s = &l->session;
	s->sent = s->received = (struct transcript){0};
	while (link_line(l, line, sizeof line, IDLE_SECONDS)) {
		struct request request;
		if (strcmp(line, "SCAN") == 0) {
			if (!link_sendf(l, "SCANNING\n"))
				return;
			scan_run(&scan);
			struct json j = {0};
			scan_json(&j, NULL, &scan);
			bool ok = link_sendf(l, "SCANNED %zu\n", j.length) && link_send(l, j.text, j.length);
			json_free(&j);
			if (!ok)
				return;
		} else if (read_request(line, &request)) {
			if (!run_cell(l, &request))
				return;
		} else if (strcmp(line, "VERIFY") == 0) {
			if (!link_unseal(l, seal_of_client(s, &s->received), IDLE_SECONDS))
				die(EXIT_IMPOSTOR, "what the client asked was changed on the way");
			// This dies when the clock has drifted: the client then loses its server instead of getting a result.
			clock_verify();
			if (!link_sendf(l, "VERIFIED\n") || !link_sendf(l, "SEAL %016" PRIx64 "\n", seal_of_server(s, &s->sent)))
				return;
		} else {
			return;
		}
	}
}

_Noreturn void serve(const struct server_options *o) {
	server.options = o;
	set_hard_deadline(o->deadline);
	clock_choose(o->clock, "");
	clock_calibrate_begin();
	struct address address = resolve(o->bind, o->port);
	server.listener = socket(address.sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;
	if (server.listener < 0 || setsockopt(server.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
	    bind(server.listener, (struct sockaddr *)&address.sockaddr, address.length) != 0)
		die(EXIT_SYSTEM, "binding %s port %d: %s", o->bind, o->port, strerror(errno));
	// The memory is touched now, not during the first cell.
	memset(&cell, 1, sizeof cell);
	server.memory = lock_memory();
	struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
	nanosleep(&pause, NULL);
	clock_calibrate_end();
	struct sigaction action = {.sa_handler = on_control};
	sigaction(SIGIO, &action, NULL);
	if (listen(server.listener, 128) != 0)
		die(EXIT_SYSTEM, "listening on port %d: %s", o->port, strerror(errno));
	for (;;) {
		struct link l = {0};
		l.fd = admit(NULL, -1, &l.session);
		session(&l);
		close(l.fd);
	}
}
