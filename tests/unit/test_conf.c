#include "cluster/conf.h"
#include "engine/json.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct conf conf;
static struct err e;
static char path[64];

static int setup(void **state) {
    (void)state;
    conf_init(&conf);
    e = (struct err)ERR_INIT;
    snprintf(path, sizeof path, "/tmp/braid-conf-%d", (int)getpid());
    return 0;
}

static int teardown(void **state) {
    (void)state;
    conf_free(&conf);
    unlink(path);
    return 0;
}

static void write_file(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int flag(const char *a, const char *b) {
    char *argv[] = { (char *)"up", (char *)a, (char *)b, NULL };
    return conf_flag(&conf, CONF_SERVER, b ? 3 : 2, argv, 1, &e);
}

static void test_defaults(void **state) {
    (void)state;
    char *env[] = { (char *)"HOME=/x", (char *)"BRAID_TEST_SCALE=20", (char *)"BRAID_SEED=1",
                    NULL };
    assert_int_equal(conf_finish(&conf, CONF_SERVER, env, &e), 0);
    assert_string_equal(conf.v[CONF_DIR].text, "./braid-data");
    assert_string_equal(conf.v[CONF_LISTEN].text, "127.0.0.1:7070");
    assert_int_equal(conf.v[CONF_DURABILITY].number, 0);
    assert_int_equal(conf.v[CONF_SEGMENT_BYTES].number, 256 << 20);
    assert_null(conf.v[CONF_URL].text);
    assert_null(conf.v[CONF_DIR].from);
}

/* Each place wins over the next; every spelling reaches the same setting. */
static void test_precedence(void **state) {
    (void)state;
    char config[96];
    write_file(
        "# shared\n\n dir = /file\r\nlisten=127.0.0.1:1\n\tdurability = power\nurl = http://a");
    snprintf(config, sizeof config, "BRAID_CONFIG=%s", path);
    char *env[] = { config, (char *)"BRAID_DIR=/env", (char *)"BRAID_LISTEN=127.0.0.1:2",
                    (char *)"BRAID_SEGMENT_BYTES=1MiB", NULL };
    assert_int_equal(flag("--dir=/flag", NULL), 1);
    assert_int_equal(flag("--producers", "12"), 2);
    assert_int_equal(conf_finish(&conf, CONF_SERVER, env, &e), 0);
    assert_string_equal(conf.v[CONF_DIR].text, "/flag");
    assert_string_equal(conf.v[CONF_DIR].from, "--dir");
    assert_string_equal(conf.v[CONF_LISTEN].text, "127.0.0.1:2");
    assert_string_equal(conf.v[CONF_LISTEN].from, "BRAID_LISTEN");
    assert_int_equal(conf.v[CONF_DURABILITY].number, 1);
    assert_int_equal(conf.v[CONF_SEGMENT_BYTES].number, 1 << 20);
    assert_int_equal(conf.v[CONF_PRODUCERS].number, 12);
    assert_string_equal(conf.v[CONF_URL].text, "http://a");
}

static void test_flags(void **state) {
    (void)state;
    char buf[40];
    assert_int_equal(flag("--dirr", "x"), 0);
    assert_string_equal(conf_nearest("--dirr=x", CONF_SERVER, buf, sizeof buf), "--dir");
    assert_null(conf_nearest("--frobnicate", CONF_SERVER, buf, sizeof buf));
    assert_int_equal(flag("--url", "x"), 0); /* the client's */
    assert_int_equal(flag("plain", NULL), 0);
    assert_int_equal(flag("--dir", NULL), ERR_INPUT);
    assert_int_equal(flag("--dir=", NULL), ERR_INPUT);
    assert_int_equal(flag("--durability", "paper"), ERR_INPUT);
    assert_non_null(strstr(e.text, "process|power"));
    assert_int_equal(flag("--segment-bytes", "1"), ERR_INPUT);
    assert_int_equal(flag("--segment-bytes", "lots"), ERR_INPUT);
    assert_int_equal(flag("--producers", "1.5"), ERR_INPUT);
}

static void test_unknown(void **state) {
    (void)state;
    char *env[] = { (char *)"BRAID_LISTTEN=1", NULL };
    assert_int_equal(conf_finish(&conf, CONF_SERVER, env, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "BRAID_LISTEN?"));
    static const char *const bad[][2] = { { "dir = x\ndurabilty = power\n", ":2: there is no" },
                                          { "dir\n", ":1: a line" },
                                          { "config = x\n", ":1: there is no" },
                                          { "durability = \n", ":1: 'durability' is empty" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i][0]);
        conf_free(&conf);
        conf_init(&conf);
        assert_int_equal(flag("--config", path), 2);
        assert_int_equal(conf_finish(&conf, CONF_SERVER, NULL, &e), ERR_INPUT);
        assert_non_null(strstr(e.text, bad[i][1]));
    }
    unlink(path);
    conf_free(&conf);
    conf_init(&conf);
    flag("--config", path);
    assert_int_equal(conf_finish(&conf, CONF_SERVER, NULL, &e), ERR_INPUT);
}

static void test_table(void **state) {
    (void)state;
    struct sbuf help = { 0 };
    conf_describe(&help, &conf_settings[CONF_SEGMENT_BYTES]);
    assert_string_equal(sbuf_str(&help), "Size of a segment file, the grain of retention. Default "
                                         "256MiB. [BRAID_SEGMENT_BYTES]");
    for (int k = 0; k < CONF_KEYS; k++) {
        assert_non_null(conf_settings[k].help);
        assert_true(k == 0 || strcmp(conf_settings[k - 1].name, conf_settings[k].name) < 0);
    }
    sbuf_free(&help);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flags, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_table, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
