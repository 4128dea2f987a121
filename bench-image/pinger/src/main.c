// tailgate-pinger measures round trips and accounts for every one of them. See usage for its arguments; the result is
// one JSON document on stdout, the exit codes are in fail.h.
//
//   main.c       arguments                        hist.c       histograms
//   client.c     cells, reports, the result       outliers.c   the slowest samples and their causes
//   cell.c       the measuring loops              intervals.c  the intervals of long measurements
//   server.c     the other end                    evidence.c   interruptions, as the system counts them
//   clock.c      counter or clock_gettime         net.c        sockets, control connections
//   fail.c       how it ends                      json.c       the result's text
//   session.c    how the ends know each other
//
// It uses only the C library and is linked dynamically, so that a preloaded network stack such as Onload sees its
// sockets. The server needs one port only, TCP and UDP: messages over TCP use a second connection to it.
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "fail.h"
#include "server.h"

static const char usage[] =
    "Usage: tailgate-pinger server --bind ADDR --port P [--spin] [--clock C] [--deadline SECONDS]\n"
    "       tailgate-pinger client --server ADDR --port P --protocol tcp|udp|multicast --sizes N,N,...\n"
    "                              --duration T [--warmup T] [--rates N,N,...] [--spin|--block] [--loss-after T]\n"
    "                              [--interval T] [--local ADDR] [--group ADDR] [--clock C] [--deadline SECONDS]\n"
    "\n"
    "  --bind ADDR         address to serve at; --server ADDR is the same at the other end\n"
    "  --port P            TCP port for control and messages, and UDP port for datagrams\n"
    "  --key K             32 hexadecimal digits by which client and server know each other; better in the environment,\n"
    "                      as TAILGATE_PINGER_KEY\n"
    "  --sizes N,...       bytes of each message: 1 to 65536, datagrams to 65507; every size with every rate is a cell\n"
    "  --rates N,...       messages a second, on a schedule that is never put off; 0 (default): each message follows\n"
    "                      the answer to the last\n"
    "  --duration T        measuring time of each cell after its warm-up, as 90s, 1m30s, 500ms\n"
    "  --warmup T          time for which a cell runs before it counts; default 500ms\n"
    "  --spin, --block     poll for messages, or sleep until they come (default); each end has its own choice\n"
    "  --loss-after T      a datagram without an answer for so long is lost; default 1s\n"
    "  --interval T        length of an interval of the log, or the multiple of which 128 are enough; default 1s\n"
    "  --local ADDR        the client's own address, and so the interface; default as the system routes\n"
    "  --group ADDR        multicast group; default 239.255.77.71. Answers go to the group as well, to another port\n"
    "  --clock C           auto (default), counter (TSC, or cntvct on arm64) or monotonic\n"
    "  --deadline SECONDS  the program ends by then, whatever happens; default none\n"
    "\n"
    "A client that succeeds prints its result, one JSON document, and exits with 0. Otherwise stdout is empty, stderr\n"
    "has one line, and the exit code is\n"
    "   2  wrong arguments                      7  the deadline has passed\n"
    "   3  no server, or a busy one             8  no message was answered\n"
    "   4  the other end lacks the key          9  the system refused something\n"
    "   5  the other end went away             10  the two ends are of different versions\n"
    "   6  the clock cannot be trusted         11  the result could not be written\n"
    "                                          12  the path does not carry so many messages a second\n";

// number parses a whole text as a number within bounds.
static double number(const char *option, const char *text, double least, double most) {
	char *end;
	double value = strtod(text, &end);
	if (end == text || *end || !(value >= least && value <= most))
		die(EXIT_USAGE, "--%s takes a number from %.15g to %.15g, not %s", option, least, most, text);
	return value;
}

// duration parses a text such as 1m30s or 0.5s and returns ns.
static uint64_t duration(const char *option, const char *text, double least) {
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
	double total = 0;
	const char *rest = text;
	bool good = *text != 0;
	while (good && *rest) {
		char *end = NULL;
		double value = isdigit((unsigned char)*rest) ? strtod(rest, &end) : -1;
		size_t length = value >= 0 ? strspn(end, "abcdefghijklmnopqrstuvwxyz") : 0, i = 0;
		while (i < sizeof units / sizeof units[0] && (strlen(units[i].name) != length || strncmp(units[i].name, end, length) != 0))
			i++;
		good = length > 0 && i < sizeof units / sizeof units[0];
		if (good) {
			total += value * units[i].ns;
			rest = end + length;
		}
	}
	if (!good || !(total >= least && total <= 1e16))
		die(EXIT_USAGE, "--%s takes a duration such as 500ms or 1m30s, not %s", option, text);
	return (uint64_t)total;
}

// list parses numbers separated by commas.
static size_t list(const char *option, const char *text, double *values, size_t room, double least, double most) {
	char *copy = strdup(text), *state = NULL;
	size_t count = 0;
	if (!copy)
		die(EXIT_SYSTEM, "out of memory");
	size_t commas = 0;
	for (const char *c = text; *c; c++)
		commas += *c == ',';
	for (char *word = strtok_r(copy, ",", &state); word; word = strtok_r(NULL, ",", &state)) {
		if (count == room)
			die(EXIT_USAGE, "--%s takes at most %zu numbers", option, room);
		values[count++] = number(option, word, least, most);
	}
	free(copy);
	if (count != commas + 1)
		die(EXIT_USAGE, "--%s takes numbers with commas between, not %s", option, text);
	return count;
}

static enum clock_choice clock_of(const char *text) {
	if (strcmp(text, "auto") == 0)
		return CLOCK_AUTO;
	if (strcmp(text, "counter") == 0)
		return CLOCK_COUNTER;
	if (strcmp(text, "monotonic") == 0)
		return CLOCK_NANOSECONDS;
	die(EXIT_USAGE, "--clock takes auto, counter or monotonic, not %s", text);
}

static enum protocol protocol_of(const char *text) {
	for (int p = TCP; p <= MULTICAST; p++)
		if (strcmp(text, protocol_names[p]) == 0)
			return (enum protocol)p;
	die(EXIT_USAGE, "--protocol takes tcp, udp or multicast, not %s", text);
}

// check_sizes dies if a size cannot be measured.
static void check_sizes(const struct client_options *o) {
	for (size_t i = 0; i < o->size_count; i++) {
		size_t size = o->sizes[i];
		if (o->protocol == TCP)
			continue;
		if (size > MAX_DATAGRAM)
			die(EXIT_USAGE, "a datagram carries at most %d bytes, not %zu", MAX_DATAGRAM, size);
		for (size_t k = 0; k < o->rate_count; k++)
			// The sequence number must fit into the datagram, and the order of any two datagrams must be clear.
			if (size < 8 && o->rates[k] * (double)o->loss / 1e9 >= ldexp(1, 8 * (int)size - 1))
				die(EXIT_USAGE, "datagrams of %zu bytes cannot be told apart at %.15g a second; use larger ones, or a lower rate", size, o->rates[k]);
	}
}

enum flag { BIND = 1, SERVER, PORT, KEY, PROTOCOL, SIZES, RATES, DURATION, WARMUP, SPIN, BLOCK, LOSS, INTERVAL, LOCAL, GROUP, CLOCK, DEADLINE, HELP };

static const struct option options[] = {
    {"bind", 1, 0, BIND},         {"server", 1, 0, SERVER},     {"port", 1, 0, PORT},         {"key", 1, 0, KEY},
    {"protocol", 1, 0, PROTOCOL}, {"sizes", 1, 0, SIZES},       {"rates", 1, 0, RATES},       {"duration", 1, 0, DURATION},
    {"warmup", 1, 0, WARMUP},     {"spin", 0, 0, SPIN},         {"block", 0, 0, BLOCK},       {"loss-after", 1, 0, LOSS},
    {"interval", 1, 0, INTERVAL}, {"local", 1, 0, LOCAL},       {"group", 1, 0, GROUP},       {"clock", 1, 0, CLOCK},
    {"deadline", 1, 0, DEADLINE}, {"help", 0, 0, HELP},         {0, 0, 0, 0},
};

int main(int argc, char **argv) {
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
		fputs(usage, stdout);
		return EXIT_OK;
	}
	bool server = argc > 1 && strcmp(argv[1], "server") == 0;
	if (!server && (argc < 2 || strcmp(argv[1], "client") != 0))
		die(EXIT_USAGE, "the first argument is server or client; --help says more");

	struct server_options s = {0};
	static struct client_options c = {.warmup = 500000000, .loss = 1000000000, .interval = 1000000000, .rate_count = 1, .group = "239.255.77.71"};
	const char *key = getenv("TAILGATE_PINGER_KEY");
	bool has_protocol = false;
	opterr = 0;
	optind = 2;
	for (int found; (found = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		double sizes[MOST_SIZES];
		bool for_client = false, for_server = false;
		switch (found) {
		case BIND: for_server = true; s.bind = optarg; break;
		case SERVER: for_client = true; c.server = optarg; break;
		case PORT: s.port = c.port = (int)number("port", optarg, 1, 65535); break;
		case KEY: key = optarg; break;
		case PROTOCOL: for_client = has_protocol = true; c.protocol = protocol_of(optarg); break;
		case SIZES:
			for_client = true;
			c.size_count = list("sizes", optarg, sizes, MOST_SIZES, 1, MAX_TCP);
			for (size_t i = 0; i < c.size_count; i++)
				c.sizes[i] = (size_t)sizes[i];
			break;
		case RATES: for_client = true; c.rate_count = list("rates", optarg, c.rates, MOST_RATES, 0, 1e8); break;
		case DURATION: for_client = true; c.duration = duration("duration", optarg, 1e6); break;
		case WARMUP: for_client = true; c.warmup = duration("warmup", optarg, 0); break;
		case LOSS: for_client = true; c.loss = duration("loss-after", optarg, 1e6); break;
		case INTERVAL: for_client = true; c.interval = duration("interval", optarg, 1e6); break;
		case LOCAL: for_client = true; c.local = optarg; break;
		case GROUP: for_client = true; c.group = optarg; break;
		case SPIN: s.spin = c.spin = true; break;
		case BLOCK: s.spin = c.spin = false; break;
		case CLOCK: s.clock = c.clock = clock_of(optarg); break;
		case DEADLINE: s.deadline = c.deadline = number("deadline", optarg, 0.001, 1e8); break;
		case HELP: fputs(usage, stdout); return EXIT_OK;
		default: die(EXIT_USAGE, "%s is no option, or lacks its value; --help lists them", argv[optind - 1]);
		}
		if ((server && for_client) || (!server && for_server))
			die(EXIT_USAGE, "the %s takes no %s", argv[1], argv[optind - (optarg && argv[optind - 1] == optarg ? 2 : 1)]);
	}
	if (optind < argc)
		die(EXIT_USAGE, "%s is one argument too many", argv[optind]);
	if (!key || !key_read(key, &s.key))
		die(EXIT_USAGE, "--key, or TAILGATE_PINGER_KEY, has to be %d hexadecimal digits", KEY_DIGITS);
	if (s.port == 0)
		die(EXIT_USAGE, "--port is needed");
	c.key = s.key;
	if (server) {
		if (!s.bind)
			die(EXIT_USAGE, "the server needs --bind");
		serve(&s);
	}
	if (!c.server || !has_protocol || c.size_count == 0 || c.duration == 0)
		die(EXIT_USAGE, "the client needs --server, --protocol, --sizes and --duration");
	if (!is_group(c.group))
		die(EXIT_USAGE, "--group takes an IPv4 multicast address, not %s", c.group);
	check_sizes(&c);
	measure(&c);
	return EXIT_OK;
}
