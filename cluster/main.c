/* The `braid` command. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "version") == 0) {
        puts("braid 0.1.0");
        return 0;
    }
    fputs("usage: braid version\n", stderr);
    return 2;
}
