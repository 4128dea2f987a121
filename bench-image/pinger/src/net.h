// Sockets. They are created and used only through the C library functions that Onload's preload library replaces.
#ifndef NET_H
#define NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "session.h"

#define VERSION "3"
// GREETING, after PROGRAM a version, begins the first line of a control connection; the client's numbers follow.
#define PROGRAM "TAILGATE-PINGER "
#define GREETING PROGRAM VERSION " "

#define MAX_TCP 65536
#define MAX_DATAGRAM 65507

enum protocol { TCP, UDP, MULTICAST };
extern const char *const protocol_names[3];

struct address {
	struct sockaddr_storage sockaddr;
	socklen_t length;
};

// resolve parses an IP address without a lookup; it dies with EXIT_USAGE when the text is not an address.
struct address resolve(const char *ip, int port);
struct address local_address(int fd);
struct address peer_address(int fd);
void set_port(struct address *a, int port);
int port_of(const struct address *a);
// format_ip writes the address without its port.
void format_ip(const struct address *a, char *text, size_t size);
bool same_ip(const struct address *a, const struct address *b);

// path holds the sockets that carry the messages of a cell: both are the same, except for multicast.
struct path {
	int in, out;
};

// The following return -1 and set errno on failure.
//
// udp_bind creates a UDP socket; udp_connect restricts it to one peer.
int udp_bind(struct address local);
int udp_connect(int fd, struct address peer);
// multicast_bind creates a socket that, after multicast_join, receives what one source sends to a group.
int multicast_bind(const char *group, int port);
int multicast_join(int fd, const char *group, const struct address *local, const struct address *source);
// multicast_out creates a socket that sends to the group by the interface of local. loop is for two ends on one host.
int multicast_out(const char *group, int port, const struct address *local, bool loop);
// is_group reports whether text is an IPv4 multicast address.
bool is_group(const char *group);
void path_close(struct path *p);

// prepare_tcp sets the options of a TCP connection.
void prepare_tcp(int fd);
// set_receive_timeout makes recv return after this many ns; 0: never.
void set_receive_timeout(int fd, uint64_t ns);
// retransmits returns the number of retransmissions of a TCP connection so far; -1 if unknown.
int64_t retransmits(int fd);
// path_accelerated returns what Onload reports for the sockets of a path: "yes" when all of them are accelerated, "no",
// "unknown" when it does not report it, or "absent" when it is not loaded into this process.
const char *path_accelerated(const struct path *p);

// link is a control connection: lines of text, each answered in turn, and blocks of announced length.
struct link {
	int fd;
	struct session session;
	char buffer[4096];
	size_t from, to;
};

// link_line reads a line without its end. It returns false when the other end is gone or sends nothing for too long.
bool link_line(struct link *l, char *line, size_t size, double seconds);
// link_block reads length bytes.
bool link_block(struct link *l, char *block, size_t length, double seconds);
// link_unseal reads a seal, and reports whether it is what the seal of all that was received before is.
bool link_unseal(struct link *l, uint64_t seal, double seconds);
// link_send sends text; it returns false when the other end is gone.
bool link_send(struct link *l, const char *text, size_t length);
bool link_sendf(struct link *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Messages carry their number in their first eight bytes, or in all of them if there are fewer, least significant byte
// first.
static inline void put_seq(unsigned char *message, size_t size, uint64_t seq) {
	for (size_t i = 0; i < 8 && i < size; i++)
		message[i] = (unsigned char)(seq >> (8 * i));
}

// get_seq returns the number nearest to expected that a message may have.
static inline uint64_t get_seq(const unsigned char *message, size_t size, uint64_t expected) {
	uint64_t low = 0;
	if (size >= 8) {
		memcpy(&low, message, 8);
		return le64toh(low);
	}
	for (size_t i = 0; i < size; i++)
		low |= (uint64_t)message[i] << (8 * i);
	uint64_t span = 1ull << (8 * size);
	uint64_t seq = (expected & ~(span - 1)) | low;
	if (seq > expected && seq - expected > span / 2 && seq >= span)
		return seq - span;
	if (seq < expected && expected - seq > span / 2)
		return seq + span;
	return seq;
}

#endif
