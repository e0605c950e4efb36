/* The process: mapped memory, the real functions, and each thread's access to its ring. */
#ifndef YAMABIKO_PROCESS_H
#define YAMABIKO_PROCESS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "raw.h"
#include "real.h"
#include "ring.h"

/* State that must not survive a fork. It lies in a page that the kernel clears in the child of any fork call. */
struct image_state {
    uint32_t image; /* 0: a new process without an image number */
    uint32_t pid;
};

/* A thread's access to its ring, and its unreported data. All zero in a new thread. */
struct thread {
    struct slot *slot;
    struct record *records;
    uint64_t mask;
    uint64_t head;
    uint64_t stop;     /* records before this one have space, as far as this thread knows */
    uint64_t retry_at; /* ticks; no search for a free slot or memory before */
    uint64_t polled_ticks;
    uint64_t polled_reported_at;
    uint32_t polled_calls;
    bool pushing; /* set while pushing: a signal handler that finds it set has interrupted its own thread */
};

/* A ring that needs a larger share of the program's address space limit is not mapped. */
#define ADDRESS_SPACE_SHARE 16
/* 64 KB: the growth step of a ring. */
#define GROWTH_RECORDS 1024
/* Limits of a valid ring, so that the products below cannot overflow. */
#define MAX_SLOTS (1u << 16)
#define MAX_RECORDS (1u << 24)
/* MADV_POPULATE_WRITE, missing in older headers. */
#define POPULATE_WRITE 23

/* The counting part of an image's number; the ring's index is above it. */
#define IMAGE_COUNT 0xffffffu
enum { NOT_STARTED, STARTING, STARTED };

static uint32_t started;
static bool active; /* whether there is a ring */
static struct header *header;
static struct slot *slots;
static struct record *all_records;
static uint32_t slot_count, large_count, large_records, small_records;
static uint64_t piece_ticks;
static bool use_tsc;
static pthread_key_t thread_key;
static bool thread_key_exists;
static struct image_state initial_image_state;
static struct image_state *image_state = &initial_image_state;
static uint32_t sandboxed; /* the program has set a system call filter: no system calls of this library */
static uint32_t forks;     /* made by this process */
static uint32_t space;     /* number of the PID namespace; 0: unknown */
static uint32_t image_base; /* set by the ring: images of several users have different numbers */
static uint32_t datagram_sockets, uring_setups, unfollowed;

static __thread struct thread self;

static inline uint64_t ticks(void) {
    return LIKELY(use_tsc) ? tsc() : nanoseconds();
}

static void report_inherited(void);
static void child_started(uint32_t parent_image, uint32_t parent_pid, uint32_t fork);

/* Detects that this process is the child of a fork that no hook saw. */
static inline void detect_fork(void) {
    if (UNLIKELY(!image_state->image) && active) child_started(0, 0, 0);
}

/* False in a child that shares this memory (vfork, or clone with CLONE_VM): its descriptor changes do not affect
 * the parent. */
static bool is_own_process(void) {
    detect_fork();
    return LOAD(&sandboxed) || (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) == image_state->pid || !image_state->image;
}

static void raise_to_32(uint32_t *to, uint32_t value) {
    uint32_t now = LOAD(to);
    while (now < value && !REPLACE(to, &now, value)) {
    }
}

static void raise_to(uint64_t *to, uint64_t value) {
    uint64_t now = LOAD(to);
    while (now < value && !REPLACE(to, &now, value)) {
    }
}

static bool claim(struct thread *thread) {
    uint64_t now = ticks();
    if (now < thread->retry_at) return false;
    uint32_t tid = LOAD(&sandboxed) ? 0 : (uint32_t)RAW(SYS_gettid, 0, 0, 0, 0, 0);
    uint64_t owned = (uint64_t)image_state->pid << 32 | SLOT_OWNED;
    /* Searches from the first slot, so that few are in use: the collector reads no others, and the large rings
     * come first. */
    for (uint32_t i = 0; i < slot_count; i++) {
        struct slot *slot = &slots[i];
        uint64_t free = SLOT_FREE;
        if (LOAD(&slot->state) != SLOT_FREE) continue;
        raise_to_32(&header->slots_used, i + 1);
        if (!REPLACE(&slot->state, &free, owned)) continue;
        STORE(&slot->tid, tid);
        STORE(&slot->space, LOAD(&space));
        /* Written last: until then the slot has no image, and its owner is not confused with another. */
        STORE_RELEASE(&slot->image, image_state->image);
        bool large = i < large_count;
        size_t large_before = large ? i : large_count, small_before = i - large_before;
        thread->records = all_records + large_before * large_records + small_before * small_records;
        thread->mask = (large ? large_records : small_records) - 1;
        thread->head = thread->stop = LOAD(&slot->head);
        thread->slot = slot;
        /* The key's destructor releases the slot. If the key cannot be created, the collector detects the end of the
         * thread. */
        if (thread_key_exists) {
            int saved = errno;
            pthread_setspecific(thread_key, thread);
            errno = saved;
        }
        return true;
    }
    /* The search is long when all slots are in use, so it is not repeated at every record. */
    thread->retry_at = now + piece_ticks / 8;
    return false;
}

/* Reserves more memory for the ring beyond `reserved`; returns the new size. Reserved ahead, since the kernel then
 * returns an error instead of killing (Linux 5.14). A program that may not call madvise waits for the collector. */
static uint64_t reserve_more(struct thread *thread, uint64_t reserved) {
    uint64_t now = ticks();
    if (LOAD(&sandboxed) || now < thread->retry_at) return reserved;
    uint64_t more = reserved + GROWTH_RECORDS;
    if (more > thread->mask + 1) more = thread->mask + 1;
    uint64_t bytes = (more - reserved) * sizeof(struct record);
    if (RAW(SYS_madvise, &thread->records[reserved], bytes, POPULATE_WRITE, 0, 0) < 0) {
        thread->retry_at = now + piece_ticks / 8;
        return reserved;
    }
    raise_to(&thread->slot->reserved, more);
    return more;
}

/* Finds space for the next record: reads the collector's progress and the reserved memory. */
static __attribute__((noinline)) bool find_space_for_record(struct thread *thread) {
    uint64_t head = thread->head, at = head & thread->mask;
    uint64_t stop = LOAD_ACQUIRE(&thread->slot->tail) + thread->mask + 1;
    uint64_t reserved = LOAD_ACQUIRE(&thread->slot->reserved);
    if (UNLIKELY(reserved <= thread->mask) && head < stop) {
        if (at >= reserved) reserved = reserve_more(thread, reserved);
        uint64_t end = at < reserved ? head - at + reserved : head;
        if (end < stop) stop = end;
    }
    thread->stop = stop;
    return head < stop;
}

/* Memory for the next record; NULL if the record was dropped and counted. Never waits. */
static inline struct record *next_record(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (UNLIKELY(!slot)) {
        if (!claim(thread)) {
            ADD(&header->unclaimed, 1);
            return NULL;
        }
        slot = thread->slot;
    }
    if (UNLIKELY(thread->head >= thread->stop) && !find_space_for_record(thread)) {
        STORE(&slot->dropped, LOAD(&slot->dropped) + 1);
        return NULL;
    }
    return &thread->records[thread->head & thread->mask];
}

/* Publishes the record. */
static inline void publish(struct thread *thread) {
    uint64_t head = ++thread->head;
    STORE_RELEASE(&thread->slot->head, head);
    /* The collector's core owns the next cache line: prefetched for writing while the program continues. */
    __asm__ volatile("prefetchw %0" : : "m"(thread->records[head & thread->mask]));
}

/* Opens a record, which is written in place and then published by close_record. NULL: the record is dropped. */
static inline struct record *open_record(void) {
    if (UNLIKELY(!active)) return NULL;
    struct thread *thread = &self;
    if (UNLIKELY(thread->pushing)) {
        ADD(&header->unclaimed, 1);
        return NULL;
    }
    thread->pushing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    detect_fork();
    struct record *record = next_record(thread);
    if (UNLIKELY(!record)) thread->pushing = false;
    return record;
}

static inline void close_record(void) {
    publish(&self);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self.pushing = false;
}

static void push(const struct record *record) {
    struct record *to = open_record();
    if (!to) return;
    *to = *record;
    close_record();
}

static void program_name(char name[16]) {
    if (LOAD(&sandboxed) || RAW(SYS_prctl, PR_GET_NAME, name, 0, 0, 0) < 0) name[0] = 0;
}

/* The last number of a line: that of the innermost namespace. */
static uint32_t last_number(const char *line) {
    uint32_t number = 0;
    for (; *line && *line != '\n'; line++) {
        bool digit = *line >= '0' && *line <= '9';
        if (digit && (line[-1] < '0' || line[-1] > '9')) number = 0;
        if (digit) number = number * 10 + (uint32_t)(*line - '0');
    }
    return number;
}

/* A process number is valid in its namespace only. The child of a clone may be in another one than its parent. */
static void find_space(void) {
    char text[64];
    long length = RAW(SYS_readlink, "/proc/self/ns/pid", text, sizeof text - 1, 0, 0);
    if (length <= 0) {
        /* The program's root has no /proc. */
        STORE(&space, 0);
        return;
    }
    text[length] = 0;
    STORE(&space, last_number(text));
}

/* The number of a new image: never 0. */
static uint32_t next_image(void) {
    uint32_t count;
    do count = (ADD(&header->images, 1) + 1) & IMAGE_COUNT;
    while (!count);
    return image_base | count;
}

/* Reports that a process image begins: by exec (the library is loaded again) or by fork. */
static void report_image(enum kind kind, uint32_t parent_image, uint32_t parent_pid, uint32_t fork) {
    self.slot = NULL;
    self.retry_at = 0;
    self.polled_calls = 0;
    self.polled_ticks = 0;
    bool may_call_kernel = !LOAD(&sandboxed);
    image_state->pid = may_call_kernel ? (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) : 0;
    if (may_call_kernel) find_space();
    STORE(&image_state->image, next_image());
    struct record record = {.kind = kind, .begin = ticks()};
    record.image.pid = image_state->pid;
    record.image.parent_image = parent_image;
    record.image.parent_pid = parent_pid;
    record.image.fork = fork;
    if (!parent_pid && may_call_kernel) record.image.parent_pid = (uint32_t)RAW(SYS_getppid, 0, 0, 0, 0, 0);
    program_name(record.image.program);
    bool pushing = self.pushing;
    self.pushing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    struct record *to = next_record(&self);
    if (to) {
        *to = record;
        publish(&self);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self.pushing = pushing;
}

static void report_polled(struct thread *thread, uint64_t now) {
    if (!thread->polled_calls) return;
    struct record record = {.kind = KIND_POLLED, .calls = thread->polled_calls, .begin = now};
    record.run.end = now;
    record.run.blocked = thread->polled_ticks;
    thread->polled_calls = 0;
    thread->polled_ticks = 0;
    thread->polled_reported_at = now;
    push(&record);
}

static void report_aside(void) {
    struct record record = {.kind = KIND_ASIDE, .begin = ticks()};
    record.aside.datagram_sockets = LOAD(&datagram_sockets);
    record.aside.uring_setups = LOAD(&uring_setups);
    record.aside.unfollowed = LOAD(&unfollowed);
    push(&record);
}

/* Counts an activity that the hooks do not record, and reports the first one. */
static void count_aside(uint32_t *counter) {
    if (ADD(counter, 1) == 0) report_aside();
}

/* Counts a connection that exceeds the table, also for all programs together: losses of a run must be known while
 * its programs still run. */
static void count_unfollowed(void) {
    ADD(&header->unfollowed, 1);
    count_aside(&unfollowed);
}

/* Releases the slot: it can serve another thread once the collector has read it. Later records of this thread
 * claim a slot again. */
static void release(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (!slot || !image_state->image) return;
    thread->slot = NULL;
    STORE_RELEASE(&slot->state, (uint64_t)image_state->pid << 32 | SLOT_RELEASED);
}

/* Destructors of other keys may run later. */
static void thread_ended(void *value) {
    struct thread *thread = value;
    if (!thread->slot || !image_state->image) return;
    report_polled(thread, ticks());
    release(thread);
}

/* Whether the program may map this much: an address space limit counts the whole ring, of which little is used.
 * The tap must not exhaust that limit. */
static bool fits_address_space_limit(uint64_t bytes) {
    struct rlimit limit;
    if (RAW(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit, 0) < 0) return true;
    return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / ADDRESS_SPACE_SHARE >= bytes;
}

static bool is_power_of_two(uint32_t n) {
    return n && !(n & (n - 1));
}

/* The fields read from /proc/self/status. */
struct status {
    uint32_t pid, parent_pid;
    uint32_t filters; /* number of system call filters; 1 if the kernel does not report a number (before Linux 5.9) */
    char name[16];
};

/* The value of a line that starts with `key`, or NULL. */
static const char *value_of(const char *line, const char *key) {
    while (*key)
        if (*line++ != *key++) return NULL;
    return line;
}

/* Uses only calls that the loader has just made, so that no filter forbids them. */
static bool read_status(struct status *status) {
    char text[4096];
    long fd = RAW(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0, 0);
    if (fd < 0) return false;
    long length = RAW(SYS_read, fd, text, sizeof text - 1, 0, 0);
    RAW(SYS_close, fd, 0, 0, 0, 0);
    if (length <= 0) return false;
    text[length] = 0;
    bool has_filter_line = false;
    for (const char *line = text, *value; *line; line++) {
        if ((value = value_of(line, "Name:\t")))
            for (size_t i = 0; i < sizeof status->name - 1 && value[i] && value[i] != '\n'; i++)
                status->name[i] = value[i];
        else if ((value = value_of(line, "NSpid:")))
            status->pid = last_number(value);
        else if ((value = value_of(line, "PPid:")))
            status->parent_pid = last_number(value);
        else if ((value = value_of(line, "Seccomp:"))) {
            status->filters = last_number(value) ? 1 : 0;
            has_filter_line = true;
        } else if ((value = value_of(line, "Seccomp_filters:")))
            status->filters = last_number(value);
        while (*line && *line != '\n') line++;
        if (!*line) break;
    }
    return has_filter_line;
}

/* Filters that allow what a tap needs: those of the collector, or the declared number, such as that of a
 * container. */
static uint32_t filters_allowed(void) {
    const char *declared = getenv("YAMABIKO_TAP_FILTERS");
    uint32_t number = 0;
    for (; declared && *declared >= '0' && *declared <= '9' && number < 1000; declared++)
        number = number * 10 + (uint32_t)(*declared - '0');
    return number > header->filters ? number : header->filters;
}

/* Whether this program may be under a filter that the collector is not under: a program of this run has set one,
 * and exec passes filters on. Any system call of this library could then kill it: it is not recorded, and only
 * reports that. */
static bool is_filtered(void) {
    struct status status;
    memset(&status, 0, sizeof status);
    if (read_status(&status) && status.filters <= filters_allowed()) return false;
    STORE(&sandboxed, 1);
    image_state->pid = status.pid;
    image_state->image = next_image();
    struct record record = {.kind = KIND_FILTERED, .begin = ticks()};
    record.image.pid = status.pid;
    record.image.parent_pid = status.parent_pid;
    for (size_t i = 0; i < sizeof status.name; i++) record.image.program[i] = status.name[i];
    struct record *to = next_record(&self);
    if (to) {
        *to = record;
        publish(&self);
    }
    release(&self);
    return true;
}

#include "find.h"

/* Maps this user's ring. */
static bool map_ring(void) {
    uint64_t file_bytes = 0;
    long fd = find_ring(&file_bytes);
    if (fd < 0) return false;
    struct header found;
    bool is_valid = RAW(SYS_pread64, fd, &found, sizeof found, 0, 0) == sizeof found && found.magic == RING_MAGIC &&
                found.slots && found.large <= found.slots && is_power_of_two(found.records) &&
                is_power_of_two(found.small_records);
    uint64_t records_at = 0;
    if (is_valid) {
        records_at = (RING_HEADER_BYTES + (uint64_t)found.slots * sizeof(struct slot) + 4095) & ~4095ull;
        uint64_t small_slots = found.slots - found.large;
        uint64_t all = (uint64_t)found.large * found.records + small_slots * found.small_records;
        is_valid = found.file_bytes == records_at + all * sizeof(struct record) && found.file_bytes == file_bytes &&
               found.slots <= MAX_SLOTS && found.records <= MAX_RECORDS && found.small_records <= MAX_RECORDS;
    }
    char *memory = NULL;
    if (is_valid) is_valid = fits_address_space_limit(found.file_bytes);
    if (is_valid) {
        long at = raw6(SYS_mmap, 0, (long)found.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at < 0 && at > -4096) is_valid = false;
        memory = (char *)at;
    }
    RAW(SYS_close, fd, 0, 0, 0, 0);
    if (!is_valid) return false;
    header = (struct header *)memory;
    slots = (struct slot *)(memory + RING_HEADER_BYTES);
    all_records = (struct record *)(memory + records_at);
    slot_count = found.slots;
    large_count = found.large;
    large_records = found.records;
    small_records = found.small_records;
    piece_ticks = found.piece_ticks;
    use_tsc = found.clock == CLOCK_IS_TSC;
    image_base = found.image_base & ~IMAGE_COUNT;
    if (LOAD(&header->filtered) && is_filtered()) return false;
    /* The ring is large and mostly empty: core dumps omit it. */
    RAW(SYS_madvise, memory, found.file_bytes, MADV_DONTDUMP, 0, 0);
    long page = raw6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page > 0 || page <= -4096) {
        /* Before Linux 4.14 a child detects only forks that called a hook. */
        RAW(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0);
        image_state = (struct image_state *)page;
    }
    return true;
}

/* Runs once: as constructor, or earlier if another library's constructor calls a hook. errno is preserved. */
static __attribute__((noinline)) void start(void) {
    uint32_t not_started = NOT_STARTED;
    if (!REPLACE(&started, &not_started, STARTING)) return;
    int saved = errno;
    find_real();
    if (map_ring()) {
        thread_key_exists = pthread_key_create(&thread_key, thread_ended) == 0;
        report_image(KIND_LOADED, 0, 0, 0);
        active = true;
        report_inherited();
    }
    STORE_RELEASE(&started, STARTED);
    errno = saved;
}

#define ENSURE_STARTED() \
    do { \
        if (UNLIKELY(LOAD(&started) == NOT_STARTED)) start(); \
    } while (0)

#endif
