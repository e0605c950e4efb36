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

/* State that must not survive a fork: in a page that the kernel clears in the child of any fork call. */
struct life {
    uint32_t image; /* 0: a new process without an image number */
    uint32_t pid;
};

/* A thread's end of its ring, and unreported data. Zero in a new thread. */
struct thread {
    struct slot *slot;
    struct record *records;
    uint64_t mask;
    uint64_t head;
    uint64_t stop;     /* records before this one have space, as far as this thread knows */
    uint64_t again_at; /* ticks; no search for a free slot or memory before */
    uint64_t polled_ticks;
    uint64_t polled_told_at;
    uint32_t polled_calls;
    bool pushing; /* set while pushing: a signal handler that finds it set has interrupted its own thread */
};

/* A ring that needs a larger share of the program's address space limit is not mapped. */
#define ROOM_SHARE 16
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
static bool thread_key_made;
static struct life no_life;
static struct life *life = &no_life;
static uint32_t sandboxed; /* the program has set a system call filter: no system calls of this library */
static uint32_t forks;     /* made by this process */
static uint32_t space;     /* number of the PID namespace; 0: unknown */
static uint32_t image_base; /* set by the ring: images of several users have different numbers */
static uint32_t datagram_sockets, uring_setups, unfollowed;

static __thread struct thread self;

static inline uint64_t ticks(void) {
    return LIKELY(use_tsc) ? tsc() : nanoseconds();
}

static void look_at_inherited(void);
static void newborn(uint32_t parent_image, uint32_t parent_pid, uint32_t fork);

/* Detects here that it is the child of a fork without a hook. */
static inline void know_yourself(void) {
    if (UNLIKELY(!life->image) && active) newborn(0, 0, 0);
}

/* False in a child that shares this memory (vfork, or clone with CLONE_VM): its descriptor changes do not affect
 * the parent. */
static bool own_process(void) {
    know_yourself();
    return LOAD(&sandboxed) || (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) == life->pid || !life->image;
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
    if (now < thread->again_at) return false;
    uint32_t tid = LOAD(&sandboxed) ? 0 : (uint32_t)RAW(SYS_gettid, 0, 0, 0, 0, 0);
    uint64_t owned = (uint64_t)life->pid << 32 | SLOT_OWNED;
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
        STORE_RELEASE(&slot->image, life->image);
        bool large = i < large_count;
        size_t large_before = large ? i : large_count, small_before = i - large_before;
        thread->records = all_records + large_before * large_records + small_before * small_records;
        thread->mask = (large ? large_records : small_records) - 1;
        thread->head = thread->stop = LOAD(&slot->head);
        thread->slot = slot;
        /* Its destructor releases the slot. If the key cannot be created, the collector detects the end of the
         * thread. */
        if (thread_key_made) {
            int saved = errno;
            pthread_setspecific(thread_key, thread);
            errno = saved;
        }
        return true;
    }
    /* The search is long when all slots are taken: not repeated at every record. */
    thread->again_at = now + piece_ticks / 8;
    return false;
}

/* Reserves more memory for the ring beyond `room`; returns the new size. Reserved ahead, since the kernel then
 * returns an error instead of killing (Linux 5.14). A program that may not call madvise waits for the collector. */
static uint64_t more_room(struct thread *thread, uint64_t room) {
    uint64_t now = ticks();
    if (LOAD(&sandboxed) || now < thread->again_at) return room;
    uint64_t more = room + GROWTH_RECORDS;
    if (more > thread->mask + 1) more = thread->mask + 1;
    if (RAW(SYS_madvise, &thread->records[room], (more - room) * sizeof(struct record), POPULATE_WRITE, 0, 0) < 0) {
        thread->again_at = now + piece_ticks / 8;
        return room;
    }
    raise_to(&thread->slot->room, more);
    return more;
}

/* The next record has no known space: reads the collector's progress and the reserved memory. */
static __attribute__((noinline)) bool find_place(struct thread *thread) {
    uint64_t head = thread->head, at = head & thread->mask;
    uint64_t stop = LOAD_ACQUIRE(&thread->slot->tail) + thread->mask + 1;
    uint64_t room = LOAD_ACQUIRE(&thread->slot->room);
    if (UNLIKELY(room <= thread->mask) && head < stop) {
        if (at >= room) room = more_room(thread, room);
        uint64_t end = at < room ? head - at + room : head;
        if (end < stop) stop = end;
    }
    thread->stop = stop;
    return head < stop;
}

/* The place of the next record; NULL if it was counted as dropped. Never waits. */
static inline struct record *place(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (UNLIKELY(!slot)) {
        if (!claim(thread)) {
            ADD(&header->unclaimed, 1);
            return NULL;
        }
        slot = thread->slot;
    }
    if (UNLIKELY(thread->head >= thread->stop) && !find_place(thread)) {
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

/* A record is written in place between these two calls. NULL: nothing to write or to publish. */
static inline struct record *open_record(void) {
    if (UNLIKELY(!active)) return NULL;
    struct thread *thread = &self;
    if (UNLIKELY(thread->pushing)) {
        ADD(&header->unclaimed, 1);
        return NULL;
    }
    thread->pushing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    know_yourself();
    struct record *record = place(thread);
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
        /* No /proc here. */
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

/* A process image begins: by exec (the library is loaded again) or by fork. */
static void introduce(enum kind kind, uint32_t parent_image, uint32_t parent_pid, uint32_t fork) {
    self.slot = NULL;
    self.again_at = 0;
    self.polled_calls = 0;
    self.polled_ticks = 0;
    bool may_ask = !LOAD(&sandboxed);
    life->pid = may_ask ? (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) : 0;
    if (may_ask) find_space();
    STORE(&life->image, next_image());
    struct record record = {.kind = kind, .begin = ticks()};
    record.image.pid = life->pid;
    record.image.parent_image = parent_image;
    record.image.parent_pid = parent_pid;
    record.image.fork = fork;
    if (!parent_pid && may_ask) record.image.parent_pid = (uint32_t)RAW(SYS_getppid, 0, 0, 0, 0, 0);
    program_name(record.image.program);
    bool pushing = self.pushing;
    self.pushing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    struct record *to = place(&self);
    if (to) {
        *to = record;
        publish(&self);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self.pushing = pushing;
}

static void tell_polled(struct thread *thread, uint64_t now) {
    if (!thread->polled_calls) return;
    struct record record = {.kind = KIND_POLLED, .calls = thread->polled_calls, .begin = now};
    record.run.end = now;
    record.run.blocked = thread->polled_ticks;
    thread->polled_calls = 0;
    thread->polled_ticks = 0;
    thread->polled_told_at = now;
    push(&record);
}

static void tell_aside(void) {
    struct record record = {.kind = KIND_ASIDE, .begin = ticks()};
    record.aside.datagram_sockets = LOAD(&datagram_sockets);
    record.aside.uring_setups = LOAD(&uring_setups);
    record.aside.unfollowed = LOAD(&unfollowed);
    push(&record);
}

/* Counts, and reports the first one. */
static void aside(uint32_t *counter) {
    if (ADD(counter, 1) == 0) tell_aside();
}

/* A connection exceeds the table. Also counted for all programs together: losses of a run must be known while its
 * programs still run. */
static void no_room(void) {
    ADD(&header->unfollowed, 1);
    aside(&unfollowed);
}

/* Releases the slot: it can serve another thread once the collector has read it. Later records of this thread
 * claim a slot again. */
static void release(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (!slot || !life->image) return;
    thread->slot = NULL;
    STORE_RELEASE(&slot->state, (uint64_t)life->pid << 32 | SLOT_RELEASED);
}

/* Destructors of other keys may run later. */
static void thread_ends(void *value) {
    struct thread *thread = value;
    if (!thread->slot || !life->image) return;
    tell_polled(thread, ticks());
    release(thread);
}

/* Whether the program may map this much: an address space limit counts the whole ring, of which little is used.
 * The tap must not exhaust that limit. */
static bool has_room_for(uint64_t bytes) {
    struct rlimit limit;
    if (RAW(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit, 0) < 0) return true;
    return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / ROOM_SHARE >= bytes;
}

static bool is_power_of_two(uint32_t n) {
    return n && !(n & (n - 1));
}

/* Read from /proc/self/status. */
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
    bool told = false;
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
            told = true;
        } else if ((value = value_of(line, "Seccomp_filters:")))
            status->filters = last_number(value);
        while (*line && *line != '\n') line++;
        if (!*line) break;
    }
    return told;
}

/* Filters that allow what a tap needs: those of the collector, or the declared number, such as that of a
 * container. */
static uint32_t filters_allowed(void) {
    const char *told = getenv("YAMABIKO_TAP_FILTERS");
    uint32_t number = 0;
    for (; told && *told >= '0' && *told <= '9' && number < 1000; told++) number = number * 10 + (uint32_t)(*told - '0');
    return number > header->filters ? number : header->filters;
}

/* Whether this program may be under a filter that the collector is not under: a program of this run has set one,
 * and exec passes filters on. Any system call of this library could then kill it: it is not recorded, and only
 * reports that. */
static bool stay_out(void) {
    struct status status;
    memset(&status, 0, sizeof status);
    if (read_status(&status) && status.filters <= filters_allowed()) return false;
    STORE(&sandboxed, 1);
    life->pid = status.pid;
    life->image = next_image();
    struct record record = {.kind = KIND_FILTERED, .begin = ticks()};
    record.image.pid = status.pid;
    record.image.parent_pid = status.parent_pid;
    for (size_t i = 0; i < sizeof status.name; i++) record.image.program[i] = status.name[i];
    struct record *to = place(&self);
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
    struct header seen;
    bool good = RAW(SYS_pread64, fd, &seen, sizeof seen, 0, 0) == sizeof seen && seen.magic == RING_MAGIC &&
                seen.slots && seen.large <= seen.slots && is_power_of_two(seen.records) &&
                is_power_of_two(seen.small_records);
    uint64_t records_at = 0;
    if (good) {
        records_at = (RING_HEADER_BYTES + (uint64_t)seen.slots * sizeof(struct slot) + 4095) & ~4095ull;
        uint64_t all = (uint64_t)seen.large * seen.records + (uint64_t)(seen.slots - seen.large) * seen.small_records;
        good = seen.file_bytes == records_at + all * sizeof(struct record) && seen.file_bytes == file_bytes &&
               seen.slots <= MAX_SLOTS && seen.records <= MAX_RECORDS && seen.small_records <= MAX_RECORDS;
    }
    char *memory = NULL;
    if (good) good = has_room_for(seen.file_bytes);
    if (good) {
        long at = raw6(SYS_mmap, 0, (long)seen.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at < 0 && at > -4096) good = false;
        memory = (char *)at;
    }
    RAW(SYS_close, fd, 0, 0, 0, 0);
    if (!good) return false;
    header = (struct header *)memory;
    slots = (struct slot *)(memory + RING_HEADER_BYTES);
    all_records = (struct record *)(memory + records_at);
    slot_count = seen.slots;
    large_count = seen.large;
    large_records = seen.records;
    small_records = seen.small_records;
    piece_ticks = seen.piece_ticks;
    use_tsc = seen.clock == CLOCK_IS_TSC;
    image_base = seen.image_base & ~IMAGE_COUNT;
    if (LOAD(&header->filtered) && stay_out()) return false;
    /* Not in core dumps: it is large and mostly empty. */
    RAW(SYS_madvise, memory, seen.file_bytes, MADV_DONTDUMP, 0, 0);
    long page = raw6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page > 0 || page <= -4096) {
        /* Before Linux 4.14 a child detects only hooked forks. */
        RAW(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0);
        life = (struct life *)page;
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
        thread_key_made = pthread_key_create(&thread_key, thread_ends) == 0;
        introduce(KIND_LOADED, 0, 0, 0);
        active = true;
        look_at_inherited();
    }
    STORE_RELEASE(&started, STARTED);
    errno = saved;
}

#define ENSURE_STARTED() \
    do { \
        if (UNLIKELY(LOAD(&started) == NOT_STARTED)) start(); \
    } while (0)

#endif
