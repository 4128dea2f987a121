#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

static void need(struct json *j, size_t more) {
	if (j->length + more + 1 <= j->room)
		return;
	size_t room = j->room ? j->room : 4096;
	while (room < j->length + more + 1)
		room *= 2;
	char *text = realloc(j->text, room);
	if (!text)
		die(EXIT_SYSTEM, "out of memory for the result");
	j->text = text;
	j->room = room;
}

static void append(struct json *j, const char *text, size_t length) {
	need(j, length);
	if (length)
		memcpy(j->text + j->length, text, length);
	j->length += length;
	j->text[j->length] = 0;
}

void json_printf(struct json *j, const char *format, ...) {
	va_list args;
	va_start(args, format);
	va_list again;
	va_copy(again, args);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	need(j, (size_t)length);
	vsnprintf(j->text + j->length, (size_t)length + 1, format, again);
	va_end(again);
	j->length += (size_t)length;
}

static void quoted(struct json *j, const char *value) {
	append(j, "\"", 1);
	for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
		if (*c == '"' || *c == '\\')
			json_printf(j, "\\%c", *c);
		else if (*c < 0x20 || *c > 0x7e)
			json_printf(j, "\\u%04x", *c);
		else
			append(j, (const char *)c, 1);
	}
	append(j, "\"", 1);
}

static void begin(struct json *j, const char *key) {
	if (j->comma)
		append(j, ",", 1);
	j->comma = 1;
	if (key) {
		quoted(j, key);
		append(j, ":", 1);
	}
}

void json_open(struct json *j, const char *key, char bracket) {
	begin(j, key);
	append(j, &bracket, 1);
	j->comma = 0;
}

void json_close(struct json *j, char bracket) {
	append(j, &bracket, 1);
	j->comma = 1;
}

void json_int(struct json *j, const char *key, int64_t value) {
	begin(j, key);
	json_printf(j, "%" PRId64, value);
}

void json_uint(struct json *j, const char *key, uint64_t value) {
	begin(j, key);
	json_printf(j, "%" PRIu64, value);
}

void json_double(struct json *j, const char *key, double value) {
	if (!isfinite(value)) {
		json_null(j, key);
		return;
	}
	begin(j, key);
	json_printf(j, "%.17g", value);
}

void json_bool(struct json *j, const char *key, int value) {
	begin(j, key);
	json_printf(j, "%s", value ? "true" : "false");
}

void json_null(struct json *j, const char *key) {
	begin(j, key);
	append(j, "null", 4);
}

void json_string(struct json *j, const char *key, const char *value) {
	begin(j, key);
	quoted(j, value);
}

void json_raw(struct json *j, const char *key, const char *text, size_t length) {
	begin(j, key);
	append(j, text, length);
}

void json_free(struct json *j) {
	free(j->text);
	*j = (struct json){0};
}
