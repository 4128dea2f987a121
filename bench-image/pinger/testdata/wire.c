// This program reads inputs from stdin, each preceded by its length. For each input it starts a process, in which one of
// the pinger's functions reads the input from a socket; the first byte of the input selects the function. The program
// then prints the exit code of that process (or 256 plus the number of the signal that ended it), and the output of the
// function, preceded by its length.
//
// It includes client.c and server.c because the functions that read from sockets are static.
#include "../src/client.c"

// Both files define these names.
#define cell server_cell
#define open_path server_open_path
#define run_cell server_run_cell
#include "../src/server.c"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#undef cell
#undef open_path
#undef run_cell

#define MOST_INPUT (256 << 10)
#define MOST_OUTPUT (1 << 20)

// output is shared with the child.
static struct {
	uint32_t length;
	char text[MOST_OUTPUT];
} *output;

static void expect(bool condition, const char *what) {
	if (!condition) {
		fprintf(stderr, "wire.c: %s\n", what);
		abort();
	}
}

static void tell(const struct json *j) {
	expect(j->length <= MOST_OUTPUT, "more output than input explains");
	memcpy(output->text, j->text, j->length);
	output->length = (uint32_t)j->length;
}

// newcomer sends the input of a new connection in pieces. An input cannot have the answer to a challenge: without the line that the server
// expects, the connection must be refused.
static void newcomer(int ours, int theirs, const char *input, size_t length, size_t piece, const char *wanted) {
	static const struct server_options options = {.key = {0x1122334455667788, 0x99aabbccddeeff00}};
	server.options = &options;
	struct pending p = {.fd = ours};
	fcntl(ours, F_SETFL, O_NONBLOCK);
	int verdict = 0;
	for (size_t said = 0; verdict == 0; said += piece) {
		if (said >= length)
			shutdown(theirs, SHUT_WR);
		else
			(void)!send(theirs, input + said, length - said < piece ? length - said : piece, MSG_NOSIGNAL | MSG_DONTWAIT);
		verdict = hear(&p, wanted);
	}
	bool line = wanted && length > 0 && memmem(input, length, wanted, strlen(wanted));
	expect(verdict < 0 || line, "a stranger is let in");
	char answer[256];
	ssize_t n = recv(theirs, answer, sizeof answer, MSG_DONTWAIT);
	expect(n < 64 && (n <= 0 || !memmem(answer, (size_t)n, "1122334455667788", 16)), "the answer to a stranger is long, or has the key");
}

// requests reads each line as a request.
static void requests(int ours) {
	struct link l = {.fd = ours};
	char line[256];
	while (link_line(&l, line, sizeof line, IDLE_SECONDS)) {
		struct request r;
		memset(&r, 0xff, sizeof r);
		expect(strlen(line) < sizeof line, "a line is longer than its buffer");
		if (!read_request(line, &r))
			continue;
		expect(r.protocol <= MULTICAST && r.size >= 1 && r.size <= (r.protocol == TCP ? MAX_TCP : MAX_DATAGRAM), "a message that does not fit");
		expect(r.protocol == TCP || (r.port > 0 && r.port < 65536), "a port that there is not");
		expect(memchr(r.group, 0, sizeof r.group), "a group without end");
	}
}

// reported reads a server's report, and compares it with three slow samples of the client.
static void reported(int ours) {
	static const struct client_options options = {.protocol = TCP};
	struct link l = {.fd = ours};
	struct json j = {0};
	struct typical usual = {0};
	bool spins;
	cell.path = (struct path){-1, -1};
	for (uint64_t seq = 1; seq <= 3; seq++)
		reservoir_add(&cell.slow, (struct entry){.value = seq * 1000, .seq = seq, .at = seq * 5000, .gap = seq * 100});
	json_open(&j, NULL, '{');
	finish(&j, &options, &l, &usual, &spins);
	expect(server_slow.count <= MOST_KEPT, "the server's list is too long");
	attribution_json(&j, usual, spins);
	json_close(&j, '}');
	tell(&j);
	json_free(&j);
}

static void hear_input(const char *input, size_t length) {
	int ends[2], room = 2 * MOST_INPUT;
	// This ends a child that computes forever; a child that waits has its own timeouts.
	setrlimit(RLIMIT_CPU, &(struct rlimit){20, 20});
	if (length == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		return;
	(void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	unsigned char choice = (unsigned char)input[0];
	input++;
	length--;
	if (choice % 4 < 2) {
		newcomer(ends[0], ends[1], input, length, choice / 4 + 1, choice % 4 ? "DATA 00112233" : NULL);
		return;
	}
	(void)!send(ends[1], input, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	shutdown(ends[1], SHUT_WR);
	if (choice % 4 == 2)
		requests(ends[0]);
	else
		reported(ends[0]);
}

int main(void) {
	static char input[MOST_INPUT];
	uint32_t length;
	output = mmap(NULL, sizeof *output, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(output != MAP_FAILED, "out of memory");
	while (fread(&length, sizeof length, 1, stdin) == 1) {
		expect(length <= sizeof input && fread(input, 1, length, stdin) == length, "the input is cut");
		output->length = 0;
		// The error output of the previous child has been read.
		(void)!ftruncate(STDERR_FILENO, 0);
		pid_t child = fork();
		expect(child >= 0, "no process");
		if (child == 0) {
			// The input is in a block of its own, so that a sanitizer detects reads beyond its end.
			char *own = malloc(length ? length : 1);
			memcpy(own, input, length);
			hear_input(own, length);
			_exit(0);
		}
		int status = 0;
		waitpid(child, &status, 0);
		uint32_t answer[2] = {(uint32_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status)), output->length};
		fwrite(answer, sizeof answer, 1, stdout);
		fwrite(output->text, 1, output->length, stdout);
		fflush(stdout);
	}
	return 0;
}
