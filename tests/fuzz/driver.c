/* Runs a fuzz target over files without a fuzzer: `fuzz_x FILE|DIR ...`. So every corpus is also a
 * regression test, with any compiler and sanitizer. Exit 1 when there was nothing to run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    if (fseek(f, 0, SEEK_END) != 0)
        abort();
    long size = ftell(f);
    rewind(f);
    if (size < 0)
        abort();
    size_t len = (size_t)size;
    /* Exactly as long as the input, so that a sanitizer sees a read beyond its end. */
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    if (fread(exact, 1, len, f) != len)
        abort();
    fclose(f);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 1;
}
static int run_dir(const char *path) {
    DIR *d = opendir(path);
    if (!d)
        return run_file(path);
    int ran = 0;
    char file[4096];
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' ||
            snprintf(file, sizeof file, "%s/%s", path, e->d_name) >= (int)sizeof file)
            continue;
        ran += run_file(file);
    }
    closedir(d);
    return ran;
}
int main(int argc, char **argv) {
    int ran = 0;
    for (int i = 1; i < argc; i++)
        ran += run_dir(argv[i]);
    printf("%d inputs\n", ran);
    return ran ? 0 : 1;
}
