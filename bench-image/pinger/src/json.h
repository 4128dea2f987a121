// A growing text buffer, and functions that write JSON to it.
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <stdint.h>

struct json {
	char *text;
	size_t length, room;
	int comma; // the next value needs a comma before it
};

// Each function writes a value; key is NULL within an array. Running out of memory is fatal.
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, int value);
void json_null(struct json *j, const char *key);
void json_string(struct json *j, const char *key, const char *value);
// json_raw appends text that is already a JSON value.
void json_raw(struct json *j, const char *key, const char *text, size_t length);
void json_free(struct json *j);

// json_printf appends formatted text without quoting it.
void json_printf(struct json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
