/* The shared file of a user's programs and the collector. src/rings/layout.rs defines the same in Rust: change
 * both. Only that user (and root) can open, change or truncate the file.
 *
 *   0      struct header, one page
 *   4096   struct slot, one per recording thread
 *   then   each slot's records, a power of two of them, in the order of the slots; the region begins on a page
 *
  * The first slots have large rings, for busy threads; the others have small ones, so that many threads find a
  * slot. Every ring has some memory from the start, and gets more in its first round: reserved by the writer or,
  * if that is not allowed, by the collector. A page without memory would kill the writing program, so no writer
  * exceeds a slot's `reserved`.
 *
  * A slot is a ring with one writer, the thread that claimed it, and one reader, the collector. `head` and `tail`
  * count records since the file was created and never go back. A writer without space drops the record and counts
  * it.
 *
  * FREE -> OWNED by compare and swap of a writer; OWNED -> RELEASED by that writer when its thread ends; both ->
  * FREE by the collector only, when everything is read and the thread has ended. A collector may store what it has
  * read before it moves `tail`: the next one, after a kill in between, resumes at the further of both. So no claim
  * resets `head`, `tail` or `dropped`.
 */
#ifndef YAMABIKO_RING_H
#define YAMABIKO_RING_H

#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x3430706174797961ull /* "ayytap04", little-endian */
#define RING_HEADER_BYTES 4096

enum { CLOCK_IS_NANOSECONDS = 0, CLOCK_IS_TSC = 1 };
enum { SLOT_FREE = 0, SLOT_OWNED = 1, SLOT_RELEASED = 2 };

struct header {
    uint64_t magic;
    uint32_t slots;
    uint32_t large;         /* number of slots with `records` records; the others have `small_records`; powers of two */
    uint32_t records;
    uint32_t small_records;
    uint32_t clock;       /* CLOCK_IS_.. */
    uint32_t images;      /* process images so far: the last assigned number */
    uint64_t piece_ticks; /* a run of this duration is reported before its end */
    uint64_t unclaimed;   /* records dropped because no slot was free */
    uint64_t file_bytes;
    uint32_t filters;     /* system call filters of the process that created this, inherited by its children */
    uint32_t filtered;    /* not 0: a program of this run has set another filter, or may have inherited one */
    uint32_t slots_used;  /* above the highest slot ever claimed */
    uint32_t unfollowed;  /* connections beyond the tables of the programs of this run */
    uint64_t ring;        /* random number of this file */
    uint64_t boot[2];     /* for a tap daemon: the boot of the machine */
    uint64_t unclaimed_reported; /* written by the collector, as `tail` is */
    uint32_t image_base;     /* for this user's ring: upper byte of every image number */
    uint32_t reserved;
};

struct slot {
    uint64_t state; /* SLOT_.., and the owner's process number in the upper half */
    uint32_t image; /* 0: claimed by an owner not written yet */
    uint32_t tid;
    uint64_t dropped;
    uint64_t reserved; /* records from the start of the ring with memory; it only grows */
    uint32_t space; /* PID namespace of the owner; 0: unknown */
    uint8_t pad0[28];
    uint64_t head; /* written by the thread */
    uint8_t pad1[56];
    uint64_t tail; /* written by the collector */
    uint64_t dropped_reported; /* reported part of `dropped`; written by the collector */
    uint8_t pad2[112];
};

enum kind {
    KIND_LOADED = 1,
    KIND_FORKED,
    KIND_EXECUTING,
    KIND_RESOLVED,
    KIND_OPENED,
    KIND_CONNECTED,
    KIND_CONNECT_FAILED,
    KIND_SENT,
    KIND_RECEIVED,
    KIND_SHUT,
    KIND_CLOSED,
    KIND_LEAVING,
    KIND_POLLED,
    KIND_ASIDE,
    KIND_FILTERED,
};

/* Flags of KIND_SENT, KIND_RECEIVED. */
#define FLAG_ENDED 1u
/* Of KIND_OPENED: role in the low two bits. */
#define FLAG_ROLE_CONNECTED 0u
#define FLAG_ROLE_ACCEPTED 1u
#define FLAG_ROLE_FOUND 2u
#define FLAG_NONBLOCKING 4u
#define FLAG_INHERITED 8u /* open when the program began, and not used yet */
/* Of KIND_CONNECTED: the local address is set, which the record of the attempt lacked. */
#define FLAG_LOCAL_ADDRESS 1u
/* Of KIND_CONNECT_FAILED: the kernel rejected the call, so there was no attempt. */
#define FLAG_WITHDRAWN 2u
/* Of KIND_EXECUTING. */
#define FLAG_PRELOADED 1u
#define FLAG_LAST_PART 2u
/* Of KIND_SHUT. */
#define FLAG_SHUT_RECEIVE 1u
#define FLAG_SHUT_SEND 2u
/* Of KIND_CLOSED, KIND_LEAVING. */
#define FLAG_COUNTERS 1u /* sent and received are set */
#define FLAG_STDIO 2u
#define FLAG_KERNEL_TLS 4u
#define FLAG_LOST_SIGHT 8u
#define FLAG_SANDBOXED 16u
#define FLAG_OFF_BY_ONE 32u
#define FLAG_SHARED 64u

#define PATH_PART_BYTES 40
#define PATH_PARTS 6
#define NAME_BYTES 32

struct record {
    uint8_t kind;
    uint8_t flags;
    uint16_t error;      /* errno */
    uint32_t calls;      /* of a run; otherwise depends on the kind */
    uint64_t connection; /* number; 0: none */
    uint64_t begin;      /* ticks */
    union {
        struct {
            uint64_t first, end, bytes, blocked, waited;
        } run; /* SENT, RECEIVED; POLLED end and blocked */
        struct {
            uint8_t local_first[8]; /* start of an IPv6-form address; its port is in `calls` */
            uint64_t end;
            uint8_t local_rest[8];
            uint64_t blocked, waited;
        } attempt; /* CONNECTED, CONNECT_FAILED */
        struct {
            uint8_t local[16], peer[16]; /* IPv4 in its mapped form */
            uint16_t local_port, peer_port;
            uint32_t reserved;
        } opened;
        struct {
            uint64_t reserved, sent, received;
            uint32_t retransmits, rtt_us;
            uint32_t forks_opened, forks_closed; /* of this process: when the connection became known, and now */
        } closed;
        struct {
            uint32_t pid, parent_pid, parent_image, fork; /* FORKED: `fork` counts the parent's forks */
            char program[16];
            uint64_t reserved2;
        } image; /* LOADED, FORKED, FILTERED */
        struct {
            uint32_t datagram_sockets, uring_setups, unfollowed, reserved;
            uint64_t reserved2[3];
        } aside;
        struct {
            uint64_t end;
            char name[NAME_BYTES];
        } resolved; /* calls: the EAI_ value */
        char path[PATH_PART_BYTES]; /* EXECUTING; connection: process number, calls: index of the part */
    };
};

_Static_assert(sizeof(struct record) == 64, "a record is one cache line");
_Static_assert(offsetof(struct record, run.waited) == 56, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, attempt.end) == 32, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, attempt.waited) == 56, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, opened.local_port) == 56, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, closed.retransmits) == 48, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, closed.forks_opened) == 56, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, image.fork) == 36, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct record, image.program) == 40, "as src/rings/layout.rs reads it");
_Static_assert(sizeof(struct slot) == 256, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, dropped) == 16, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, reserved) == 24, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, space) == 32, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, head) == 64 && offsetof(struct slot, tail) == 128, "own cache lines");
_Static_assert(offsetof(struct slot, dropped_reported) == 136, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct header, ring) == 72, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct header, boot) == 80, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct header, image_base) == 104, "as src/rings/layout.rs reads it");
_Static_assert(sizeof(struct header) == 112, "as src/rings/layout.rs reads it");

#endif
