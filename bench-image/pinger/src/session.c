#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "fail.h"

bool key_read(const char *text, struct key *key) {
	return strlen(text) == KEY_DIGITS && strspn(text, "0123456789abcdef") == KEY_DIGITS &&
	       sscanf(text, "%16" SCNx64 "%16" SCNx64, &key->k0, &key->k1) == 2;
}

void draw(void *bytes, size_t length) {
	if (getrandom(bytes, length, 0) != (ssize_t)length)
		die(EXIT_SYSTEM, "there are no random numbers");
}

// derive returns a number that only an end with the key can compute. No two purposes in a session share one.
static uint64_t derive(const struct session *s, uint64_t purpose, uint64_t protocol, uint64_t size) {
	const uint64_t words[] = {purpose, s->client[0], s->client[1], s->server[0], s->server[1], s->cells, protocol, size};
	return siphash(2, 4, &s->key, words, sizeof words / sizeof words[0]);
}

enum purpose { CLIENT, SERVER, CELL, CELL_TOO, CLIENT_SAID, SERVER_SAID };

uint64_t proof_of_client(const struct session *s) { return derive(s, CLIENT, 0, 0); }
uint64_t proof_of_server(const struct session *s) { return derive(s, SERVER, 0, 0); }

// chained returns the chain with the bytes that make no whole word yet. Two words go into it, and eight into derive, so that no number of
// one is a number of the other.
static uint64_t chained(const struct session *s, const struct transcript *t) {
	return siphash(2, 4, &s->key, (const uint64_t[]){t->chain, t->word}, 2);
}

void add(const struct session *s, struct transcript *t, const char *text, size_t length) {
	for (size_t i = 0; i < length; i++) {
		t->word |= (uint64_t)(unsigned char)text[i] << (t->length % 8 * 8);
		if (++t->length % 8 == 0) {
			t->chain = chained(s, t);
			t->word = 0;
		}
	}
}

uint64_t seal_of_client(const struct session *s, const struct transcript *t) { return derive(s, CLIENT_SAID, chained(s, t), t->length); }
uint64_t seal_of_server(const struct session *s, const struct transcript *t) { return derive(s, SERVER_SAID, chained(s, t), t->length); }

struct key next_cell(struct session *s, uint64_t protocol, uint64_t size) {
	s->cells++;
	return (struct key){derive(s, CELL, protocol, size), derive(s, CELL_TOO, protocol, size)};
}
