#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"

const char *const protocol_names[3] = {"tcp", "udp", "multicast"};

// Part of Onload's extensions API. The symbol exists only when the real library is loaded.
struct onload_stat {
	int32_t stack_id;
	char *stack_name;
	int32_t endpoint_id;
	int32_t endpoint_state;
};
extern int onload_fd_stat(int fd, struct onload_stat *stat) __attribute__((weak));

// accelerated returns 1 or 0 as Onload reports for a socket, less than 0 when it does not report it.
static int accelerated(int fd) {
	struct onload_stat stat = {0};
	int found = onload_fd_stat(fd, &stat);
	if (found > 0)
		free(stat.stack_name);
	return found;
}

const char *path_accelerated(const struct path *p) {
	if (!onload_fd_stat)
		return "absent";
	int in = accelerated(p->in), out = p->out == p->in ? in : accelerated(p->out);
	return in == 0 || out == 0 ? "no" : in < 0 || out < 0 ? "unknown" : "yes";
}

struct address resolve(const char *ip, int port) {
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found;
	char service[16];
	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(ip, service, &hints, &found) != 0)
		die(EXIT_USAGE, "%s is not an IP address", ip);
	struct address a = {.length = found->ai_addrlen};
	memcpy(&a.sockaddr, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return a;
}

struct address local_address(int fd) {
	struct address a = {.length = sizeof a.sockaddr};
	if (getsockname(fd, (struct sockaddr *)&a.sockaddr, &a.length) != 0)
		die(EXIT_SYSTEM, "reading a socket's address: %s", strerror(errno));
	return a;
}

struct address peer_address(int fd) {
	struct address a = {.length = sizeof a.sockaddr};
	// The peer may be gone already; sending to it then fails.
	if (getpeername(fd, (struct sockaddr *)&a.sockaddr, &a.length) != 0)
		a.length = 0;
	return a;
}

void set_port(struct address *a, int port) {
	if (a->sockaddr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&a->sockaddr)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)&a->sockaddr)->sin_port = htons((uint16_t)port);
}

int port_of(const struct address *a) {
	if (a->sockaddr.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)&a->sockaddr)->sin6_port);
	return ntohs(((const struct sockaddr_in *)&a->sockaddr)->sin_port);
}

void format_ip(const struct address *a, char *text, size_t size) {
	if (getnameinfo((const struct sockaddr *)&a->sockaddr, a->length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(text, size, "?");
}

bool same_ip(const struct address *a, const struct address *b) {
	char x[128], y[128];
	format_ip(a, x, sizeof x);
	format_ip(b, y, sizeof y);
	return strcmp(x, y) == 0;
}

// failed closes the socket and keeps errno.
static int failed(int fd) {
	int why = errno;
	if (fd >= 0)
		close(fd);
	errno = why;
	return -1;
}

static void set_option(int fd, int level, int option, int value) {
	// Options that the system does not grant, such as larger buffers, are not fatal.
	(void)setsockopt(fd, level, option, &value, sizeof value);
}

// udp_buffers asks for room for bursts, so that a stall shows as latency and not as loss.
static void udp_buffers(int fd) {
	set_option(fd, SOL_SOCKET, SO_RCVBUF, 4 << 20);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, 1 << 20);
}

int udp_bind(struct address local) {
	int fd = socket(local.sockaddr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	udp_buffers(fd);
	if (bind(fd, (struct sockaddr *)&local.sockaddr, local.length) != 0)
		return failed(fd);
	return fd;
}

// drain discards datagrams from strangers that arrived before the socket was connected.
static void drain(int fd) {
	char byte;
	while (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0)
		;
}

int udp_connect(int fd, struct address peer) {
	if (connect(fd, (struct sockaddr *)&peer.sockaddr, peer.length) != 0)
		return -1;
	drain(fd);
	return 0;
}

bool is_group(const char *group) {
	struct in_addr a;
	return inet_pton(AF_INET, group, &a) == 1 && IN_MULTICAST(ntohl(a.s_addr));
}

static struct sockaddr_in group_address(const char *group, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	(void)inet_pton(AF_INET, group, &a.sin_addr);
	return a;
}

int multicast_bind(const char *group, int port) {
	struct sockaddr_in to = group_address(group, port);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	udp_buffers(fd);
	set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	if (bind(fd, (struct sockaddr *)&to, sizeof to) != 0)
		return failed(fd);
	return fd;
}

int multicast_join(int fd, const char *group, const struct address *local, const struct address *source) {
	if (local->sockaddr.ss_family != AF_INET || source->sockaddr.ss_family != AF_INET) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	// Only datagrams of the peer are received: the socket cannot be connected, because answers do not come from the
	// group's address.
	struct ip_mreq_source request = {
	    .imr_multiaddr = group_address(group, 0).sin_addr,
	    .imr_interface = ((const struct sockaddr_in *)&local->sockaddr)->sin_addr,
	    .imr_sourceaddr = ((const struct sockaddr_in *)&source->sockaddr)->sin_addr,
	};
	if (setsockopt(fd, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &request, sizeof request) != 0)
		return -1;
	drain(fd);
	return 0;
}

int multicast_out(const char *group, int port, const struct address *local, bool loop) {
	struct sockaddr_in to = group_address(group, port);
	struct address from = *local;
	set_port(&from, 0);
	int fd = udp_bind(from);
	if (fd < 0)
		return -1;
	struct in_addr interface = ((const struct sockaddr_in *)&local->sockaddr)->sin_addr;
	if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) != 0)
		return failed(fd);
	set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, loop);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		return failed(fd);
	return fd;
}

void path_close(struct path *p) {
	if (p->in >= 0)
		close(p->in);
	if (p->out >= 0 && p->out != p->in)
		close(p->out);
	p->in = p->out = -1;
}

void prepare_tcp(int fd) {
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	// When an end closes, the other has read all data: a reset leaves no TIME_WAIT, for which Onload would keep the
	// stack, and with it a virtual interface of the NIC, beyond the end of the process.
	struct linger none = {.l_onoff = 1};
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void set_receive_timeout(int fd, uint64_t ns) {
	struct timeval t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_usec = (suseconds_t)(ns % 1000000000u / 1000)};
	if (ns > 0 && t.tv_sec == 0 && t.tv_usec == 0)
		t.tv_usec = 1;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}

int64_t retransmits(int fd) {
	struct tcp_info info = {0};
	socklen_t length = sizeof info;
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? (int64_t)info.tcpi_total_retrans : -1;
}

// fill waits for more data; it returns false when none arrives in time.
static bool fill(struct link *l, double seconds) {
	uint64_t until = nanoseconds(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
	l->from = l->to = 0;
	for (;;) {
		uint64_t now = nanoseconds(CLOCK_MONOTONIC);
		int wait = now >= until ? 0 : (int)((until - now) / 1000000 + 1);
		struct pollfd p = {.fd = l->fd, .events = POLLIN};
		int ready = poll(&p, 1, wait);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return false;
		ssize_t n = recv(l->fd, l->buffer, sizeof l->buffer, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		l->to = (size_t)n;
		return true;
	}
}

bool link_line(struct link *l, char *line, size_t size, double seconds) {
	size_t length = 0;
	for (;;) {
		if (l->from == l->to && !fill(l, seconds))
			return false;
		char c = l->buffer[l->from++];
		add(&l->session, &l->session.received, &c, 1);
		if (c == '\n') {
			line[length] = 0;
			return true;
		}
		if (length + 1 >= size)
			return false;
		line[length++] = c;
	}
}

bool link_block(struct link *l, char *block, size_t length, double seconds) {
	while (length > 0) {
		if (l->from == l->to && !fill(l, seconds))
			return false;
		size_t n = l->to - l->from < length ? l->to - l->from : length;
		memcpy(block, l->buffer + l->from, n);
		add(&l->session, &l->session.received, block, n);
		l->from += n;
		block += n;
		length -= n;
	}
	return true;
}

bool link_unseal(struct link *l, uint64_t seal, double seconds) {
	char line[64];
	uint64_t is;
	return link_line(l, line, sizeof line, seconds) && sscanf(line, "SEAL %16" SCNx64, &is) == 1 && is == seal;
}

bool link_send(struct link *l, const char *text, size_t length) {
	add(&l->session, &l->session.sent, text, length);
	while (length > 0) {
		ssize_t n = send(l->fd, text, length, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		length -= (size_t)n;
	}
	return true;
}

bool link_sendf(struct link *l, const char *format, ...) {
	char line[1024];
	va_list args;
	va_start(args, format);
	int length = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	return length > 0 && (size_t)length < sizeof line && link_send(l, line, (size_t)length);
}
