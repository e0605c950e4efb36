/* The process: what is mapped, the functions that come next in line, and a thread's way to its ring. */
#ifndef YAMABIKO_PROCESS_H
#define YAMABIKO_PROCESS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raw.h"
#include "real.h"
#include "ring.h"

/* What must not outlive a fork: it lies in a page that the kernel empties in the child, whatever call made it. */
struct life {
    uint32_t image; /* 0: a new process that does not know it yet */
    uint32_t pid;
};

/* A thread's end of its ring, and what it has not told yet. Zero in a new thread. */
struct thread {
    struct slot *slot;
    struct record *records;
    uint64_t head;
    uint64_t tail_seen;
    uint64_t claim_again_at; /* ticks; no search for a free slot before */
    uint64_t polled_ticks;
    uint64_t polled_told_at;
    uint32_t polled_calls;
    bool pushing; /* a signal handler that finds this set has interrupted a push of its own thread */
};

/* A ring of a larger share of what a program may map is left alone. */
#define ROOM_SHARE 16

enum { NOT_STARTED, STARTING, STARTED };

static uint32_t started;
static bool active; /* there is a ring */
static struct header *header;
static struct slot *slots;
static struct record *all_records;
static uint32_t mask;
static uint64_t piece_ticks;
static bool use_tsc;
static pthread_key_t thread_key;
static bool thread_key_made;
static struct life no_life;
static struct life *life = &no_life;
static uint32_t sandboxed; /* the program has put a filter on its system calls: make none of our own */
static uint32_t forks;     /* made by this process */
static uint32_t datagram_sockets, uring_setups, unfollowed;

static __thread struct thread self;

static inline uint64_t ticks(void) {
    return LIKELY(use_tsc) ? tsc() : nanoseconds();
}

static void newborn(uint32_t parent_image, uint32_t parent_pid, uint32_t fork);

/* A child of a fork that no hook saw finds itself out here. */
static inline void know_yourself(void) {
    if (UNLIKELY(!life->image) && active) newborn(0, 0, 0);
}

/* False in a child that shares this memory (vfork, or clone with CLONE_VM): what it does to its descriptors is not
 * done to ours. */
static bool own_process(void) {
    know_yourself();
    return LOAD(&sandboxed) || (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) == life->pid || !life->image;
}

static bool claim(struct thread *thread) {
    uint64_t now = ticks();
    if (now < thread->claim_again_at) return false;
    uint32_t tid = LOAD(&sandboxed) ? 0 : (uint32_t)RAW(SYS_gettid, 0, 0, 0, 0, 0);
    uint64_t owned = (uint64_t)life->pid << 32 | SLOT_OWNED;
    for (uint32_t i = 0; i < header->slots; i++) {
        struct slot *slot = &slots[(tid + i) % header->slots];
        uint64_t free = SLOT_FREE;
        if (LOAD(&slot->state) != SLOT_FREE || !REPLACE(&slot->state, &free, owned)) continue;
        STORE(&slot->image, life->image);
        STORE(&slot->tid, tid);
        thread->head = LOAD(&slot->head);
        thread->tail_seen = LOAD_ACQUIRE(&slot->tail);
        thread->records = all_records + (size_t)(slot - slots) * header->records;
        thread->slot = slot;
        /* Whose destructor gives the slot back. If it cannot be, the collector finds that the thread is gone. */
        if (thread_key_made) pthread_setspecific(thread_key, thread);
        return true;
    }
    /* Searching is long when all are taken: not at every record. */
    thread->claim_again_at = now + piece_ticks / 8;
    return false;
}

/* Where the next record goes; NULL when it was counted as dropped. Never waits. */
static inline struct record *place(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (UNLIKELY(!slot)) {
        if (!claim(thread)) {
            ADD(&header->unclaimed, 1);
            return NULL;
        }
        slot = thread->slot;
    }
    uint64_t head = thread->head;
    if (UNLIKELY(head - thread->tail_seen > mask)) {
        thread->tail_seen = LOAD_ACQUIRE(&slot->tail);
        if (head - thread->tail_seen > mask) {
            STORE(&slot->dropped, LOAD(&slot->dropped) + 1);
            return NULL;
        }
    }
    return &thread->records[head & mask];
}

/* What was written to the place can be read. */
static inline void publish(struct thread *thread) {
    uint64_t head = ++thread->head;
    STORE_RELEASE(&thread->slot->head, head);
    /* The collector's processor has had the line of the next one: fetch it for writing while the program goes on. */
    __asm__ volatile("prefetchw %0" : : "m"(thread->records[head & mask]));
}

/* Between these two a record is written where it belongs. NULL: nothing to write, nothing to close. */
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

/* A process image begins: by exec (after which this library is loaded anew) or by fork. */
static void introduce(enum kind kind, uint32_t parent_image, uint32_t parent_pid, uint32_t fork) {
    self.slot = NULL;
    self.polled_calls = 0;
    self.polled_ticks = 0;
    bool may_ask = !LOAD(&sandboxed);
    life->pid = may_ask ? (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0) : 0;
    STORE(&life->image, ADD(&header->images, 1) + 1);
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

/* Counts, and tells the first. */
static void aside(uint32_t *counter) {
    if (ADD(counter, 1) == 0) tell_aside();
}

/* Gives the slot back: it can serve another thread once the collector has read it. Whatever this one has to tell later
 * finds a slot again. */
static void release(struct thread *thread) {
    struct slot *slot = thread->slot;
    if (!slot || !life->image) return;
    thread->slot = NULL;
    STORE_RELEASE(&slot->state, (uint64_t)life->pid << 32 | SLOT_RELEASED);
}

/* Destructors of other keys may come after this one. */
static void thread_ends(void *value) {
    struct thread *thread = value;
    if (!thread->slot || !life->image) return;
    tell_polled(thread, ticks());
    release(thread);
}

/* Whether the program may map so much more: a limit on its memory counts the whole ring, of which it will use little.
 * What the limit was made for is not to be short of it. */
static bool has_room_for(uint64_t bytes) {
    struct rlimit limit;
    if (RAW(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit, 0) < 0) return true;
    return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / ROOM_SHARE >= bytes;
}

/* Maps the ring that YAMABIKO_TAP names. Whatever does not fit, the program runs on without us. */
static bool map_ring(void) {
    const char *folder = getenv("YAMABIKO_TAP");
    if (!folder) return false;
    char path[4096];
    size_t length = 0;
    while (folder[length] && length < sizeof path - 8) {
        path[length] = folder[length];
        length++;
    }
    if (folder[length]) return false;
    const char *name = "/ring";
    for (size_t i = 0; i < 6; i++) path[length + i] = name[i];
    long fd = RAW(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0, 0);
    if (fd < 0) return false;
    struct header seen;
    bool good = RAW(SYS_pread64, fd, &seen, sizeof seen, 0, 0) == sizeof seen && seen.magic == RING_MAGIC &&
                seen.slots && seen.records && !(seen.records & (seen.records - 1));
    uint64_t records_at = 0;
    if (good) {
        records_at = (RING_HEADER_BYTES + (uint64_t)seen.slots * sizeof(struct slot) + 4095) & ~4095ull;
        good = seen.file_bytes == records_at + (uint64_t)seen.slots * seen.records * sizeof(struct record);
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
    /* Not in core dumps: it is large, mostly empty, and not the program's. */
    RAW(SYS_madvise, memory, seen.file_bytes, MADV_DONTDUMP, 0, 0);
    header = (struct header *)memory;
    slots = (struct slot *)(memory + RING_HEADER_BYTES);
    all_records = (struct record *)(memory + records_at);
    mask = seen.records - 1;
    piece_ticks = seen.piece_ticks;
    use_tsc = seen.clock == CLOCK_IS_TSC;
    long page = raw6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page > 0 || page <= -4096) {
        /* Before Linux 4.14 only the hook of fork tells a child that it is one. */
        RAW(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0);
        life = (struct life *)page;
    }
    return true;
}

/* Runs once: as constructor, or earlier, when the constructor of another library calls a hook. errno is kept. */
static __attribute__((noinline)) void start(void) {
    uint32_t not_started = NOT_STARTED;
    if (!REPLACE(&started, &not_started, STARTING)) return;
    int saved = errno;
    find_real();
    if (map_ring()) {
        thread_key_made = pthread_key_create(&thread_key, thread_ends) == 0;
        introduce(KIND_LOADED, 0, 0, 0);
        active = true;
    }
    STORE_RELEASE(&started, STARTED);
    errno = saved;
}

#define ENSURE_STARTED() \
    do { \
        if (UNLIKELY(LOAD(&started) == NOT_STARTED)) start(); \
    } while (0)

#endif
