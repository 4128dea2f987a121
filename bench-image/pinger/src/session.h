// What the two ends of a control connection do to know each other: each proves that it has the key, which is never sent, and both derive from
// it the keys of the cells. The numbers that each end draws make all of this new for each connection, so that a record of another is useless.
#ifndef SESSION_H
#define SESSION_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// KEY_DIGITS is the number of hexadecimal digits of a key.
#define KEY_DIGITS 32

struct key {
	uint64_t k0, k1;
};

// transcript is what one end has said on a control connection: a chain of numbers that only an end with the key can compute.
struct transcript {
	uint64_t chain, word, length;
};

struct session {
	struct key key;
	uint64_t client[2], server[2]; // the numbers that the ends drew
	uint64_t cells;                // so far
	struct transcript sent, received;
};

// key_read reads a key; it returns false unless the text is one.
bool key_read(const char *text, struct key *key);
// draw fills memory with random bytes.
void draw(void *bytes, size_t length);
// proof_of_client and proof_of_server are what only an end with the key can say in a session.
uint64_t proof_of_client(const struct session *s);
uint64_t proof_of_server(const struct session *s);
// add appends text to a transcript. seal_of_client and seal_of_server show that nobody changed it on the way.
void add(const struct session *s, struct transcript *t, const char *text, size_t length);
uint64_t seal_of_client(const struct session *s, const struct transcript *t);
uint64_t seal_of_server(const struct session *s, const struct transcript *t);
// next_cell returns the key of the session's next cell.
struct key next_cell(struct session *s, uint64_t protocol, uint64_t size);

// siphash returns SipHash of words, with these numbers of rounds.
static inline __attribute__((always_inline)) uint64_t siphash(int rounds, int last_rounds, const struct key *key, const uint64_t *words, size_t count) {
	uint64_t v0 = key->k0 ^ 0x736f6d6570736575, v1 = key->k1 ^ 0x646f72616e646f6d;
	uint64_t v2 = key->k0 ^ 0x6c7967656e657261, v3 = key->k1 ^ 0x7465646279746573;
#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))
#define ROUNDS(n)                                                   \
	for (int r = 0; r < (n); r++) {                                 \
		v0 += v1, v1 = ROTATE(v1, 13) ^ v0, v0 = ROTATE(v0, 32);    \
		v2 += v3, v3 = ROTATE(v3, 16) ^ v2;                         \
		v0 += v3, v3 = ROTATE(v3, 21) ^ v0;                         \
		v2 += v1, v1 = ROTATE(v1, 17) ^ v2, v2 = ROTATE(v2, 32);    \
	}
	for (size_t i = 0; i <= count; i++) {
		uint64_t word = i < count ? words[i] : (uint64_t)count * 8 << 56;
		v3 ^= word;
		ROUNDS(rounds)
		v0 ^= word;
	}
	v2 ^= 0xff;
	ROUNDS(last_rounds)
#undef ROUNDS
#undef ROTATE
	return v0 ^ v1 ^ v2 ^ v3;
}

// A message of at least TAGGED bytes ends with a tag of eight bytes. Its first half shows who sent the message: in a message and in its
// answer, it is one half and the other of a number that only the two ends of the session can compute. So nobody else can answer, nor let the
// server answer in advance. Its second half is a number that only the client can compute: the server cannot answer a message, to look fast,
// before it has the whole message.
#define TAGGED 16

struct tag_keys {
	struct key shared, own;
};

// number_of returns a number that depends on the message: SipHash-1-3. Others know those of all earlier messages, from which they could
// compute the key of a mixer such as splitmix64, or the state of a xorshift generator.
static inline uint64_t number_of(const struct key *key, uint64_t seq) { return siphash(1, 3, key, &seq, 1); }

static inline uint64_t tag_of_message(const struct tag_keys *keys, uint64_t seq) {
	return (uint32_t)number_of(&keys->shared, seq) | number_of(&keys->own, seq) << 32;
}

static inline uint64_t tag_of_answer(const struct tag_keys *keys, uint64_t seq) {
	return number_of(&keys->shared, seq) >> 32 | number_of(&keys->own, seq) << 32;
}

static inline void put_tag(unsigned char *message, size_t size, uint64_t tag) {
	tag = htole64(tag);
	if (size >= TAGGED)
		memcpy(message + size - sizeof tag, &tag, sizeof tag);
}

// has_tag reports whether a message has this tag, or is too short for one.
static inline bool has_tag(const unsigned char *message, size_t size, uint64_t tag) {
	tag = htole64(tag);
	return size < TAGGED || memcmp(message + size - sizeof tag, &tag, sizeof tag) == 0;
}

// turn_tag makes of a message its answer, by its number_of the shared key. It returns false, and changes nothing, if the client did not send
// the message.
static inline bool turn_tag(unsigned char *message, size_t size, uint64_t number) {
	if (size < TAGGED)
		return true;
	uint32_t is, wanted = htole32((uint32_t)number), answer = htole32((uint32_t)(number >> 32));
	unsigned char *at = message + size - 8;
	memcpy(&is, at, sizeof is);
	if (is != wanted)
		return false;
	memcpy(at, &answer, sizeof answer);
	return true;
}

#endif
