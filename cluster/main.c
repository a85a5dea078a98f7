/* The `braid` command. */
#include "cluster/cli.h"

int main(int argc, char **argv) {
    return cli_main(argc, argv);
}
