// How the program ends. Every failure has its own exit code and prints one line on stderr; stdout then stays empty.
#ifndef FAIL_H
#define FAIL_H

enum exit_code {
	EXIT_OK = 0,          // the complete result is on stdout
	EXIT_USAGE = 2,       // wrong arguments
	EXIT_UNREACHABLE = 3, // no server, or one that is busy with another client
	EXIT_IMPOSTOR = 4,    // the other end does not have the key, or somebody else answered a message
	EXIT_PEER_LOST = 5,   // the other end went away during a measurement
	EXIT_CLOCK = 6,       // the clock cannot be trusted
	EXIT_DEADLINE = 7,    // --deadline passed
	EXIT_UNANSWERED = 8,  // no message was answered, so there is nothing to report
	EXIT_SYSTEM = 9,      // the system refused something: a port in use, no memory, no such address
	EXIT_VERSION = 10,    // the two ends are not of one version
	EXIT_OUTPUT = 11,     // the result could not be written
	EXIT_OVERLOADED = 12, // messages could not be sent, or were not answered, at the requested rate
};

// die prints "tailgate-pinger: " and the message to stderr, in one line, and ends the program.
_Noreturn void die(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// set_hard_deadline ends the program with EXIT_DEADLINE after this many seconds, whatever it is doing; 0: never.
void set_hard_deadline(double seconds);

#endif
