/* Small helpers for JSON bodies written into an sbuf. */
#ifndef BRAID_TEXT_H
#define BRAID_TEXT_H
#include "engine/err.h"
#include "engine/json.h"

/* A string literal, always valid: bytes that are no UTF-8 become U+FFFD. NULL: null. */
void text_json(struct sbuf *out, const char *s);
/* Bytes under `key`: a string when they are UTF-8, else base64 under KEY_b64; p NULL: null. */
void text_bytes(struct sbuf *out, const char *key, const char *p, size_t len);
/* The error body: {"error":{"code","text","retriable","errors":[…]}} of one or several errors. */
void text_errors(struct sbuf *out, const struct err *v, int n, int total);
/* 400, 404, 409, 503 (retriable) or 500. */
int text_status(const struct err *v, int n);
#endif
