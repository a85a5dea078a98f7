#include "cluster/openapi.h"

/* The file as it is; the assembler finds it from the top of the repository. */
__asm__(".section .rodata\n"
        ".global openapi_json\n"
        "openapi_json:\n"
        ".incbin \"cluster/openapi.json\"\n"
        ".global openapi_json_end\n"
        "openapi_json_end:\n"
        ".previous\n");
