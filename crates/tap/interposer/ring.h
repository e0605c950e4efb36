/* The file that the programs of one user and the collector share. src/rings/layout.rs says the same in Rust: change both.
 * Only that user (and root) can open the file, so no other user can change, cut or read it.
 *
 *   0      struct header, one page
 *   4096   struct slot, one a thread that has something to tell
 *   then   each slot's records, a power of two of them, in the order of the slots; the region begins on a page
 *
 * The first slots have large rings, for threads that have much to tell; the others have small ones, so that many threads
 * find one. Every ring has some memory from the start, and gets more while its records go round for the first time: by
 * the writer itself, or where it may not, by the collector. A page that cannot be had would kill the program that writes
 * to it, so nobody writes beyond a slot's `room`.
 *
 * A slot is a ring with one writer, the thread that claimed it, and one reader, the collector. `head` and `tail` count
 * records since the file was made and never go back. A writer that finds no room drops the record and counts it.
 *
 * FREE -> OWNED by compare and swap of a writer; OWNED -> RELEASED by that writer when its thread ends; both -> FREE by
 * the collector only, when all is read and the thread is gone. What a collector has read it may write down before it
 * moves `tail`: whoever comes after it, if it is killed in between, goes on from the further of both. That is why no
 * claim sets `head`, `tail` or `dropped` back.
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
    uint32_t large;         /* so many of them have `records` records, the others `small_records`; powers of two */
    uint32_t records;
    uint32_t small_records;
    uint32_t clock;       /* CLOCK_IS_.. */
    uint32_t images;      /* process images so far: the next one's number, less one */
    uint64_t piece_ticks; /* a run of this length is told without waiting for its end */
    uint64_t unclaimed;   /* records dropped because no slot was free */
    uint64_t file_bytes;
    uint32_t filters;     /* on the system calls of the process that made this, and so on all it starts (seccomp) */
    uint32_t filtered;    /* not 0: a program of this run has put on another one, or may have been started with one */
    uint32_t slots_used;  /* above the highest slot ever claimed */
    uint32_t unfollowed;  /* connections that found no room in the tables of a program of this run */
    uint64_t ring;        /* a number for this file, drawn */
    uint64_t boot[2];     /* of a standing ring: the machine's boot */
    uint64_t unclaimed_told; /* written by the collector, as `tail` is */
    uint32_t image_base;     /* of this user's ring: in the upper byte of every image's number */
    uint32_t reserved;
};

struct slot {
    uint64_t state; /* SLOT_.., and the owner's process number in the upper half */
    uint32_t image; /* 0: claimed, and not said yet by whom */
    uint32_t tid;
    uint64_t dropped;
    uint64_t room; /* records from the ring's begin that have memory; it only grows */
    uint32_t space; /* PID namespace of the owner; 0: not known */
    uint8_t pad0[28];
    uint64_t head; /* written by the thread */
    uint8_t pad1[56];
    uint64_t tail; /* written by the collector */
    uint64_t dropped_told; /* of `dropped`; written by the collector */
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
    KIND_LEFT,
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
#define FLAG_INHERITED 8u /* found when the program began: it has not used it yet, and may never */
/* Of KIND_CONNECTED: the own address is there. It was not when the attempt was told of. */
#define FLAG_OWN_ADDRESS 1u
/* Of KIND_CONNECT_FAILED: there was no attempt, the kernel refused the call itself. */
#define FLAG_WITHDRAWN 2u
/* Of KIND_EXECUTING. */
#define FLAG_PRELOADED 1u
#define FLAG_LAST_PART 2u
/* Of KIND_SHUT. */
#define FLAG_SHUT_RECEIVE 1u
#define FLAG_SHUT_SEND 2u
/* Of KIND_CLOSED, KIND_LEFT. */
#define FLAG_ACCOUNT 1u /* sent and received are there */
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
    uint32_t calls;      /* of a run; else as the kind says */
    uint64_t connection; /* number; 0: none */
    uint64_t begin;      /* ticks */
    union {
        struct {
            uint64_t first, end, bytes, blocked, waited;
        } run; /* SENT, RECEIVED; POLLED end and blocked */
        struct {
            uint8_t own_first[8]; /* of an address in IPv6's form; its port is in `calls` */
            uint64_t end;
            uint8_t own_rest[8];
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
            uint32_t forks_opened, forks_closed; /* of this process: when it came into view, and now */
        } closed;
        struct {
            uint32_t pid, parent_pid, parent_image, fork; /* FORKED: the parent's so many-th */
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
        char path[PATH_PART_BYTES]; /* EXECUTING; connection: process number, calls: number of the part */
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
_Static_assert(offsetof(struct slot, dropped) == 16 && offsetof(struct slot, room) == 24, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, space) == 32, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct slot, head) == 64 && offsetof(struct slot, tail) == 128, "own cache lines");
_Static_assert(offsetof(struct slot, dropped_told) == 136, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct header, ring) == 72 && offsetof(struct header, boot) == 80, "as src/rings/layout.rs reads it");
_Static_assert(offsetof(struct header, image_base) == 104, "as src/rings/layout.rs reads it");
_Static_assert(sizeof(struct header) == 112, "as src/rings/layout.rs reads it");

#endif
