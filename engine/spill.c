/* The file behind the state: see spill.h. */
#include "engine/spill.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Addresses are reserved once and mapped a step at a time: one kernel mapping each GiB. */
enum { SIZES = 64 /* runs of 1..SIZES chunks are reused as such */, WINDOW_MIN = 16 };
#define SPILL_STEP ((size_t)1 << 30)
#define SPILL_MAX  ((size_t)256 << 30)

struct spill {
    int fd;
    char *base;
    size_t budget;
    _Atomic size_t held;      /* ordinary memory that is counted */
    _Atomic size_t used;      /* bytes of the file */
    _Atomic uint32_t windows; /* open ones share the last quarter */
    _Atomic bool full;
    pthread_mutex_t lock;
    size_t mapped, end;       /* of base: mapped; given out at least once */
    uint32_t *next;           /* by chunk: the next free run of its size */
    uint16_t *run;            /* by chunk: length of the run that begins there */
    uint32_t free[SIZES + 1]; /* by length: first chunk + 1; 0: none */
};
struct frame {
    uint32_t page; /* of the file, + 1; 0: none */
    uint32_t used; /* w->clock when it was last asked for */
    uint64_t sum;  /* of its bytes in the file */
};
struct spill_window {
    struct spill *sp;
    /* pages */
    char *memory;        /* of the frames */
    struct frame *frame; /* [cap_frames] */
    uint32_t *frame_of;  /* by page: frame + 1; 0: none */
    uint64_t *written;   /* a bit each page: it has bytes in the file */
    uint32_t cap_frames, frames, hand;
    uint32_t clock, last; /* counts how often another page than the last was asked for */
    /* mapped chunks */
    uint64_t *resident; /* a bit each chunk */
    uint32_t *ring;     /* those whose bit is set, oldest first */
    uint32_t cap, head, n;
};

static void *reserve(size_t size) {
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
}

static int file_open(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/spill-XXXXXX", dir) >= (int)sizeof path)
        return errno = ENAMETOOLONG, -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

int spill_open(struct spill **out, const char *dir, size_t budget, struct err *e) {
    int fd = file_open(dir);
    if (fd < 0)
        return err_errno(e, errno, "cannot make a file for state in %.200s", dir);
    /* Read ahead would also make large folios, in which a write costs 10 us (Linux 6.18, ext4). */
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    struct spill *sp = calloc(1, sizeof *sp);
    size_t chunks = SPILL_MAX / SPILL_CHUNK;
    if (!sp)
        abort();
    sp->fd = fd;
    sp->budget = budget;
    pthread_mutex_init(&sp->lock, NULL);
    sp->base = mmap(NULL, SPILL_MAX, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    sp->next = reserve(chunks * sizeof *sp->next);
    sp->run = reserve(chunks * sizeof *sp->run);
    if (sp->base == MAP_FAILED || sp->next == MAP_FAILED || sp->run == MAP_FAILED) {
        int no = errno;
        spill_close(sp);
        return err_errno(e, no, "cannot reserve addresses for state in a file");
    }
    *out = sp;
    return 0;
}

void spill_close(struct spill *sp) {
    if (!sp)
        return;
    size_t chunks = SPILL_MAX / SPILL_CHUNK;
    if (sp->base != MAP_FAILED)
        munmap(sp->base, SPILL_MAX);
    if (sp->next != MAP_FAILED)
        munmap(sp->next, chunks * sizeof *sp->next);
    if (sp->run != MAP_FAILED)
        munmap(sp->run, chunks * sizeof *sp->run);
    close(sp->fd);
    pthread_mutex_destroy(&sp->lock);
    free(sp);
}

static uint32_t window_chunks(const struct spill *sp) {
    size_t n = sp->budget / 4 / SPILL_CHUNK;
    return n < WINDOW_MIN ? WINDOW_MIN : n > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n;
}

struct spill_window *spill_window_new(struct spill *sp) {
    struct spill_window *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->sp = sp;
    w->cap = window_chunks(sp);
    w->cap_frames = w->cap * (SPILL_CHUNK / SPILL_PAGE);
    w->memory = reserve((size_t)w->cap_frames * SPILL_PAGE);
    w->frame = calloc(w->cap_frames, sizeof *w->frame);
    w->frame_of = reserve(SPILL_MAX / SPILL_PAGE * sizeof *w->frame_of);
    w->written = reserve(SPILL_MAX / SPILL_PAGE / 8);
    w->resident = reserve(SPILL_MAX / SPILL_CHUNK / 8);
    w->ring = malloc(w->cap * sizeof *w->ring);
    if (w->memory == MAP_FAILED || w->frame_of == MAP_FAILED || w->written == MAP_FAILED ||
        w->resident == MAP_FAILED || !w->ring || !w->frame)
        abort();
    atomic_fetch_add(&sp->windows, 1);
    return w;
}

void spill_window_free(struct spill_window *w) {
    if (!w)
        return;
    atomic_fetch_sub(&w->sp->windows, 1);
    munmap(w->memory, (size_t)w->cap_frames * SPILL_PAGE);
    munmap(w->frame_of, SPILL_MAX / SPILL_PAGE * sizeof *w->frame_of);
    munmap(w->written, SPILL_MAX / SPILL_PAGE / 8);
    munmap(w->resident, SPILL_MAX / SPILL_CHUNK / 8);
    free(w->frame);
    free(w->ring);
    free(w);
}

bool spill_reserve(struct spill_window *w, size_t bytes) {
    struct spill *sp = w->sp;
    if (atomic_fetch_add(&sp->held, bytes) + bytes <= sp->budget / 4 * 3)
        return true;
    atomic_fetch_sub(&sp->held, bytes);
    return false;
}

void spill_unreserve(struct spill_window *w, size_t bytes) {
    atomic_fetch_sub(&w->sp->held, bytes);
}

/* ---- the file ---- */

static char *chunk_at(const struct spill *sp, uint32_t no) {
    return sp->base + (size_t)no * SPILL_CHUNK;
}
static uint32_t chunk_of(const struct spill *sp, const char *p) {
    return (uint32_t)((size_t)(p - sp->base) / SPILL_CHUNK);
}

/* A run never crosses a step, so that the mapping behind it is one. */
static int run_new(struct spill *sp, size_t bytes, uint32_t *no) {
    size_t at = sp->end;
    if (at / SPILL_STEP != (at + bytes - 1) / SPILL_STEP)
        at = (at / SPILL_STEP + 1) * SPILL_STEP;
    if (bytes > SPILL_STEP || at + bytes > SPILL_MAX)
        return -1;
    if (at + bytes > sp->mapped) {
        size_t to = sp->mapped + SPILL_STEP;
        if (ftruncate(sp->fd, (off_t)to) < 0 ||
            mmap(sp->base + sp->mapped, SPILL_STEP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 sp->fd, (off_t)sp->mapped) == MAP_FAILED)
            return -1;
        madvise(sp->base + sp->mapped, SPILL_STEP, MADV_RANDOM);
        sp->mapped = to;
    }
    sp->end = at + bytes;
    *no = (uint32_t)(at / SPILL_CHUNK);
    return 0;
}

static void run_put_back(struct spill *sp, uint32_t no, size_t n) {
    if (n > SIZES) { /* rare: so long that nobody else is likely to ask for as much */
        for (size_t i = 0; i < n; i++)
            run_put_back(sp, no + (uint32_t)i, 1);
        return;
    }
    sp->next[no] = sp->free[n];
    sp->free[n] = no + 1;
}

char *spill_alloc(struct spill_window *w, size_t bytes) {
    struct spill *sp = w->sp;
    size_t n = (bytes + SPILL_CHUNK - 1) / SPILL_CHUNK;
    uint32_t no = 0;
    bytes = n * SPILL_CHUNK;
    pthread_mutex_lock(&sp->lock);
    bool reused = n <= SIZES && sp->free[n], ok = reused;
    if (reused) {
        no = sp->free[n] - 1;
        sp->free[n] = sp->next[no];
    } else if (n <= UINT16_MAX) {
        ok = run_new(sp, bytes, &no) == 0;
    }
    /* Else a store into the mapping would end the process once the disk is full. */
    if (ok && fallocate(sp->fd, 0, (off_t)((size_t)no * SPILL_CHUNK), (off_t)bytes) < 0) {
        run_put_back(sp, no, n);
        ok = false;
    }
    if (ok)
        sp->run[no] = (uint16_t)n;
    pthread_mutex_unlock(&sp->lock);
    atomic_store(&sp->full, !ok);
    if (!ok)
        return NULL;
    atomic_fetch_add(&sp->used, bytes);
    return chunk_at(sp, no);
}

/* Frames of what is freed are free, unwritten. */
static void forget_pages(struct spill_window *w, size_t at, size_t bytes) {
    for (size_t page = at / SPILL_PAGE; page < (at + bytes) / SPILL_PAGE; page++) {
        w->written[page / 64] &= ~((uint64_t)1 << page % 64);
        if (w->frame_of[page])
            w->frame[w->frame_of[page] - 1] = (struct frame){ 0, 0, 0 };
        w->frame_of[page] = 0;
    }
}

void spill_free(struct spill_window *w, char *p, size_t bytes) {
    struct spill *sp = w->sp;
    size_t n = (bytes + SPILL_CHUNK - 1) / SPILL_CHUNK;
    forget_pages(w, (size_t)(p - sp->base), n * SPILL_CHUNK);
    uint32_t no = chunk_of(sp, p);
    bytes = n * SPILL_CHUNK;
    if (fallocate(sp->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(p - sp->base),
                  (off_t)bytes) < 0)
        madvise(p, bytes, MADV_DONTNEED); /* its blocks stay ours: only memory is given back */
    pthread_mutex_lock(&sp->lock);
    run_put_back(sp, no, n);
    pthread_mutex_unlock(&sp->lock);
    atomic_fetch_sub(&sp->used, bytes);
}

/* ---- pages ---- */

static _Noreturn void die(const char *what) {
    fprintf(stderr, "braid: cannot %s state in its file: %s; a restart brings it back\n", what,
            strerror(errno));
    abort();
}

static void page_read(const struct spill *sp, char *to, uint32_t page) {
    for (size_t n = 0; n < SPILL_PAGE;) {
        ssize_t k = pread(sp->fd, to + n, SPILL_PAGE - n, (off_t)((size_t)page * SPILL_PAGE + n));
        if (k == 0 || (k < 0 && errno != EINTR))
            die("read");
        n += k > 0 ? (size_t)k : 0;
    }
}

static void page_write(struct spill_window *w, const char *from, uint32_t page) {
    w->written[page / 64] |= (uint64_t)1 << page % 64;
    for (size_t n = 0; n < SPILL_PAGE;) {
        ssize_t k =
            pwrite(w->sp->fd, from + n, SPILL_PAGE - n, (off_t)((size_t)page * SPILL_PAGE + n));
        if (k < 0 && errno != EINTR)
            die("write");
        n += k > 0 ? (size_t)k : 0;
    }
}

static uint32_t windows_of(const struct spill_window *w) {
    return atomic_load_explicit(&w->sp->windows, memory_order_relaxed);
}

/* A frame for another page: the next one on the clock whose page was not asked for lately. There is
 * one: at most `safe` frames, half of all, were asked for within as many ticks. */
static uint32_t frame_take(struct spill_window *w) {
    uint32_t limit = w->cap_frames / windows_of(w);
    if (limit < 2 * SPILL_SAFE)
        limit = w->cap_frames < 2 * SPILL_SAFE ? w->cap_frames : 2 * SPILL_SAFE;
    if (w->frames < limit)
        return w->frames++;
    uint32_t safe = w->frames / 2 < SPILL_SAFE ? w->frames / 2 : SPILL_SAFE;
    for (;;) {
        uint32_t i = w->hand;
        struct frame *f = &w->frame[i];
        char *at = w->memory + (size_t)i * SPILL_PAGE;
        w->hand = i + 1 == w->frames ? 0 : i + 1;
        if (!f->page)
            return i;
        if (w->clock - f->used < safe)
            continue;
        if (XXH3_64bits(at, SPILL_PAGE) != f->sum)
            page_write(w, at, f->page - 1);
        w->frame_of[f->page - 1] = 0;
        return i;
    }
}

char *spill_page(struct spill_window *w, const char *p) {
    size_t off = (size_t)(p - w->sp->base);
    uint32_t page = (uint32_t)(off / SPILL_PAGE), i = w->frame_of[page];
    if (page != w->last) {
        w->last = page;
        w->clock++;
    }
    if (i-- == 0) {
        i = frame_take(w);
        char *at = w->memory + (size_t)i * SPILL_PAGE;
        uint64_t sum = 0; /* of a page that is not in the file: it will be */
        if (w->written[page / 64] >> page % 64 & 1) {
            page_read(w->sp, at, page);
            sum = XXH3_64bits(at, SPILL_PAGE);
        } else {
            memset(at, 0, SPILL_PAGE);
        }
        w->frame[i] = (struct frame){ .page = page + 1, .sum = sum };
        w->frame_of[page] = i + 1;
    }
    w->frame[i].used = w->clock;
    return w->memory + (size_t)i * SPILL_PAGE + off % SPILL_PAGE;
}

/* ---- mapped chunks ---- */

static void window_drop_oldest(struct spill_window *w) {
    uint32_t no = w->ring[w->head];
    w->head = w->head + 1 == w->cap ? 0 : w->head + 1;
    w->n--;
    w->resident[no / 64] &= ~((uint64_t)1 << no % 64);
    madvise(chunk_at(w->sp, no), (size_t)w->sp->run[no] * SPILL_CHUNK, MADV_DONTNEED);
}

void spill_touch(struct spill_window *w, const char *p) {
    uint32_t no = chunk_of(w->sp, p);
    uint64_t bit = (uint64_t)1 << no % 64;
    if (w->resident[no / 64] & bit)
        return;
    uint32_t limit = w->cap / windows_of(w);
    if (limit < WINDOW_MIN)
        limit = WINDOW_MIN;
    while (w->n >= limit)
        window_drop_oldest(w);
    w->resident[no / 64] |= bit;
    uint32_t at = w->head + w->n++;
    w->ring[at < w->cap ? at : at - w->cap] = no;
}

size_t spill_bytes(const struct spill *sp) {
    return atomic_load(&((struct spill *)(uintptr_t)sp)->used);
}
bool spill_full(const struct spill *sp) {
    return atomic_load(&((struct spill *)(uintptr_t)sp)->full);
}
