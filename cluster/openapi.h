/* cluster/openapi.json, the description of the HTTP API, as part of the program. */
#ifndef BRAID_OPENAPI_H
#define BRAID_OPENAPI_H

extern const char openapi_json[], openapi_json_end[]; /* no NUL */
#endif
