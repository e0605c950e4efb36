/* Connections: the descriptor table, the open run of each connection, and the kernel's counters at the end.
 *
 *   descriptors[fd] -> 0 not inspected | 1 not followed | n: connections[n], shared by descriptors that dup made
 *
  * Both tables are zero pages until touched. There are no locks: descriptors change by compare and swap, and bytes
  * are added atomically and taken out in one step, so that each byte is reported exactly once. Other fields of a
  * run are plain loads and stores: if two threads use one direction of a socket concurrently, its times and calls
  * may be mixed up.
 */
#ifndef YAMABIKO_CONNECTION_H
#define YAMABIKO_CONNECTION_H

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "process.h"

#define DESCRIPTORS (1u << 20) /* the kernel's own default limit (fs.nr_open) */
#ifndef CONNECTIONS /* a test sets fewer */
#define CONNECTIONS (1u << 16)
#endif

enum { UNKNOWN = 0, IGNORED = 1, FIRST = 2 };
/* Kernel values: include/net/tcp_states.h. The header netinet/tcp.h has an older struct tcp_info. */
enum {
    STATE_SYN_SENT = 2,
    STATE_TIME_WAIT = 6,
    STATE_CLOSE = 7,
    STATE_CLOSE_WAIT = 8,
    STATE_LAST_ACK = 9,
    STATE_CLOSING = 11,
};
enum direction { SEND = 0, RECEIVE = 1, NEITHER = 2 };

/* Flags of a connection. */
#define CONNECTING 1u
#define FAILED 2u
#define FOUND 4u
#define STDIO 8u
#define ENDED 16u      /* a receive has returned 0 */
#define SHUT_SEND 32u
#define TOUCHED 64u    /* used since this image began */
#define LOST_SIGHT 128u
#define INHERITED 256u /* from the parent, by fork */
#define NO_LOCAL_ADDRESS 512u  /* reported without a local address */

struct run {
    uint64_t begin, first, end;
    uint64_t bytes; /* 0: no run is open */
    uint64_t blocked, waited;
    uint64_t waiting_since; /* the first EAGAIN; 0: none */
    uint32_t calls;
    uint32_t error_reported; /* last reported errno: repeated failures do not fill the ring */
};

struct connection {
    uint64_t number; /* 0: the entry is free */
    uint32_t references;
    int32_t fd; /* one of its descriptors */
    uint32_t flags;
    uint32_t direction;
    uint32_t forks_before;
    uint32_t next_free;
    uint64_t connect_begin, in_progress_since;
    uint64_t reported[2]; /* reported bytes, by direction */
    struct run run[2];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct connection) == 192, "three cache lines, one of them for each direction");

static uint32_t descriptors[DESCRIPTORS];
static struct connection connections[CONNECTIONS];
static uint32_t connections_used = FIRST; /* entries ever used */
static uint64_t free_entries;              /* top of the stack of free entries; upper half: a counter against ABA */
static uint32_t descriptors_end;          /* above the highest known descriptor */

static struct connection *take_entry(void) {
    uint64_t top = LOAD_ACQUIRE(&free_entries);
    while ((uint32_t)top) {
        struct connection *entry = &connections[(uint32_t)top];
        uint64_t next = ((top >> 32) + 1) << 32 | LOAD(&entry->next_free);
        if (REPLACE(&free_entries, &top, next)) return entry;
    }
    if (LOAD(&connections_used) >= CONNECTIONS) return NULL;
    uint32_t at = ADD(&connections_used, 1);
    return at < CONNECTIONS ? &connections[at] : NULL;
}

static void return_entry(struct connection *entry) {
    STORE(&entry->number, 0);
    uint64_t top = LOAD_ACQUIRE(&free_entries), next;
    do {
        STORE(&entry->next_free, (uint32_t)top);
        next = ((top >> 32) + 1) << 32 | (uint32_t)(entry - connections);
    } while (!REPLACE(&free_entries, &top, next));
}

static void note_descriptor(uint32_t fd) {
    uint32_t end = LOAD(&descriptors_end);
    while (UNLIKELY(fd >= end) && !REPLACE(&descriptors_end, &end, fd + 1)) {
    }
}

/* 0 for TCP over IPv4 or IPv6, otherwise -errno: -EPROTONOSUPPORT for Multipath TCP, SCTP, UDP or a Unix socket. */
static long is_tcp(int fd) {
    int protocol = 0;
    socklen_t length = sizeof protocol;
    long result = RAW(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length);
    if (result < 0) return result;
    return protocol == IPPROTO_TCP ? 0 : -EPROTONOSUPPORT;
}

static uint64_t cookie(int fd) {
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    RAW(SYS_getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &length);
    return cookie & 0xffffffffffffffull;
}

/* IPv4 in mapped form; zero for other families. */
static uint16_t address(uint8_t to[16], const struct sockaddr_storage *from) {
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
        memcpy(to, &in6->sin6_addr, 16);
        return __builtin_bswap16(in6->sin6_port);
    }
    memset(to, 0, 16);
    if (from->ss_family != AF_INET) return 0;
    const struct sockaddr_in *in = (const struct sockaddr_in *)from;
    to[10] = to[11] = 0xff;
    memcpy(to + 12, &in->sin_addr, 4);
    return __builtin_bswap16(in->sin_port);
}

/* Fills the first record of a new connection. If `peer` is NULL the kernel is queried. False without a peer. */
static bool describe(int fd, struct record *record, const struct sockaddr_storage *peer) {
    struct sockaddr_storage addresses[2];
    memset(addresses, 0, sizeof addresses);
    socklen_t length = sizeof addresses[0];
    RAW(SYS_getsockname, fd, &addresses[0], &length, 0, 0);
    if (!peer) {
        length = sizeof addresses[1];
        if (RAW(SYS_getpeername, fd, &addresses[1], &length, 0, 0) < 0) return false;
        peer = &addresses[1];
    }
    record->opened.local_port = address(record->opened.local, &addresses[0]);
    record->opened.peer_port = address(record->opened.peer, peer);
    return true;
}

/* The number is set before a descriptor points to the entry. */
static void init_connection(struct connection *c, uint64_t number, int fd, uint32_t flags) {
    memset(c->run, 0, sizeof c->run);
    c->references = 1;
    c->fd = fd;
    c->flags = flags | TOUCHED;
    c->direction = NEITHER;
    c->forks_before = LOAD(&forks);
    c->connect_begin = c->in_progress_since = 0;
    c->reported[SEND] = c->reported[RECEIVE] = 0;
    STORE_RELEASE(&c->number, number);
}

/* Follows `fd` as a new connection. NULL: the table is full, or another thread has reported the connection. */
static struct connection *follow(int fd, uint32_t before, struct record *record, uint32_t flags) {
    struct connection *c = (uint32_t)fd < DESCRIPTORS && record->connection ? take_entry() : NULL;
    if (!c) {
        count_unfollowed();
        if ((uint32_t)fd < DESCRIPTORS) STORE(&descriptors[fd], IGNORED);
        return NULL;
    }
    init_connection(c, record->connection, fd, flags);
    note_descriptor((uint32_t)fd);
    if (!REPLACE(&descriptors[fd], &before, (uint32_t)(c - connections))) {
        return_entry(c);
        return NULL;
    }
    record->kind = KIND_OPENED;
    push(record);
    return c;
}

/* Inspects an unknown descriptor: inherited, passed, or made by a call without a hook. Hooks that run before the
 * constructor also initialize everything here. errno is preserved. */
static __attribute__((noinline)) struct connection *inspect(int fd) {
    ENSURE_STARTED();
    if (!active || (uint32_t)fd >= DESCRIPTORS || LOAD(&sandboxed)) return NULL;
    long kind = is_tcp(fd);
    if (kind == -EBADF) return NULL;
    if (kind < 0) {
        uint32_t unknown = UNKNOWN;
        note_descriptor((uint32_t)fd);
        REPLACE(&descriptors[fd], &unknown, IGNORED);
        return NULL;
    }
    struct record record = {.flags = FLAG_ROLE_FOUND, .begin = ticks()};
    /* The socket is not connected yet. */
    if (!describe(fd, &record, NULL)) return NULL;
    record.connection = cookie(fd);
    struct connection *c = follow(fd, UNKNOWN, &record, FOUND);
    if (c) return c;
    uint32_t at = LOAD(&descriptors[fd]);
    return at >= FIRST ? &connections[at] : NULL;
}

/* Number of descriptors to inspect at the start: some microseconds in all, since most are not open. */
#define INHERITED_DESCRIPTORS 64

/* Reports connections inherited over exec before the program uses them: the previous holder may close them now,
 * and they stay open. Several descriptors may be one connection, as those from inetd. */
static void report_inherited(void) {
    struct connection *found[INHERITED_DESCRIPTORS];
    uint32_t count = 0;
    if (LOAD(&sandboxed)) return;
    for (int fd = 0; fd < INHERITED_DESCRIPTORS; fd++) {
        if (LOAD(&descriptors[fd]) != UNKNOWN || is_tcp(fd) < 0) continue;
        struct record record = {.flags = FLAG_ROLE_FOUND | FLAG_INHERITED, .begin = ticks()};
        if (!describe(fd, &record, NULL)) continue;
        record.connection = cookie(fd);
        struct connection *c = NULL;
        for (uint32_t i = 0; i < count; i++)
            if (found[i]->number == record.connection) c = found[i];
        if (c) {
            ADD(&c->references, 1);
            note_descriptor((uint32_t)fd);
            STORE_RELEASE(&descriptors[fd], (uint32_t)(c - connections));
        } else if ((c = follow(fd, UNKNOWN, &record, FOUND))) {
            found[count++] = c;
        }
    }
}

/* The connection of a call on `fd`, if any. Initializes `real`. */
static inline struct connection *followed(int fd) {
    if (LIKELY((uint32_t)fd < DESCRIPTORS)) {
        uint32_t at = LOAD(&descriptors[fd]);
        if (at == IGNORED) return NULL;
        if (LIKELY(at >= FIRST)) return &connections[at];
    }
    return inspect(fd);
}

/* Like `followed`, without inspecting an unknown descriptor. */
static inline struct connection *known(int fd) {
    if ((uint32_t)fd >= DESCRIPTORS) return NULL;
    uint32_t at = LOAD(&descriptors[fd]);
    return at >= FIRST ? &connections[at] : NULL;
}

/* Removes the open run and reports it. A run with only an error or end of file is reported too. */
static __attribute__((noinline)) void push_run(struct connection *c, enum direction direction, uint8_t flags,
                                               uint16_t error) {
    detect_fork();
    struct run *run = &c->run[direction];
    uint64_t bytes = SWAP(&run->bytes, 0);
    if (!bytes && !flags && !error) return;
    STORE(&c->reported[direction], LOAD(&c->reported[direction]) + bytes);
    struct record *record = open_record();
    if (LIKELY(record)) {
        record->kind = direction == SEND ? KIND_SENT : KIND_RECEIVED;
        record->flags = flags;
        record->error = error;
        record->calls = LOAD(&run->calls);
        record->connection = LOAD(&c->number);
        record->begin = LOAD(&run->begin);
        record->run.first = LOAD(&run->first);
        record->run.end = LOAD(&run->end);
        record->run.bytes = bytes;
        record->run.blocked = LOAD(&run->blocked);
        record->run.waited = LOAD(&run->waited);
        close_record();
    }
    STORE(&run->calls, 0);
    STORE(&run->blocked, 0);
    STORE(&run->waited, 0);
}

/* Changes the direction of a connection: reports the run of the other direction, and restarts that run's waiting
 * time, since no response was possible until now. */
static __attribute__((noinline)) void change_direction(struct connection *c, enum direction direction, uint64_t now) {
    enum direction other = direction == SEND ? RECEIVE : SEND;
    push_run(c, other, 0, 0);
    if (LOAD(&c->run[other].waiting_since)) STORE(&c->run[other].waiting_since, now);
    STORE(&c->direction, direction);
    SET_BITS(&c->flags, TOUCHED);
}

/* Sets the local address, which was unknown when the attempt was reported. */
static void add_local_address(int fd, struct record *record) {
    struct sockaddr_storage local;
    memset(&local, 0, sizeof local);
    socklen_t length = sizeof local;
    if (LOAD(&sandboxed) || RAW(SYS_getsockname, fd, &local, &length, 0, 0) < 0) return;
    uint8_t bytes[16];
    record->calls = address(bytes, &local);
    memcpy(record->attempt.local_first, bytes, 8);
    memcpy(record->attempt.local_rest, bytes + 8, 8);
    record->flags |= FLAG_LOCAL_ADDRESS;
}

/* Reports that connect has ended, as the program sees it. */
static __attribute__((noinline)) void connect_ended(struct connection *c, uint64_t now, uint16_t error) {
    uint32_t before = CLEAR_BITS(&c->flags, CONNECTING | NO_LOCAL_ADDRESS);
    if (error) SET_BITS(&c->flags, FAILED);
    struct record record = {
        .kind = error ? KIND_CONNECT_FAILED : KIND_CONNECTED,
        .error = error,
        .connection = LOAD(&c->number),
        .begin = c->connect_begin,
    };
    record.attempt.end = now;
    uint64_t returned = c->in_progress_since ? c->in_progress_since : now;
    record.attempt.blocked = returned - c->connect_begin;
    record.attempt.waited = now > returned ? now - returned : 0;
    /* A failed connect has no local address to report. */
    if (before & NO_LOCAL_ADDRESS && !error) add_local_address(LOAD(&c->fd), &record);
    push(&record);
}

/* Adds a call that transferred bytes, from `begin` to now. */
static inline void transferred(struct connection *c, enum direction direction, uint64_t begin, uint64_t bytes) {
    struct run *run = &c->run[direction];
    uint64_t end = ticks();
    if (UNLIKELY(LOAD(&c->flags) & CONNECTING)) connect_ended(c, begin, 0);
    if (LOAD(&c->direction) != direction) change_direction(c, direction, begin);
    uint64_t waiting_since = LOAD(&run->waiting_since);
    if (waiting_since) {
        STORE(&run->waiting_since, 0);
        if (begin > waiting_since) STORE(&run->waited, LOAD(&run->waited) + (begin - waiting_since));
    }
    if (ADD(&run->bytes, bytes) == 0) {
        STORE(&run->begin, begin);
        STORE(&run->first, end);
        STORE(&run->error_reported, 0);
    }
    STORE(&run->calls, LOAD(&run->calls) + 1);
    STORE(&run->blocked, LOAD(&run->blocked) + (end - begin));
    STORE(&run->end, end);
    if (UNLIKELY(end - LOAD(&run->begin) > piece_ticks)) push_run(c, direction, 0, 0);
}

/* Errors of the program, not of the connection. */
static inline bool is_misuse(int error) {
    return error == EBADF || error == EFAULT || error == EINVAL || error == ENOTSOCK || error == ENOTCONN ||
           error == EOPNOTSUPP || error == EMSGSIZE || error == EISCONN || error == EALREADY || error == EDESTADDRREQ;
}

/* Ends a run: by an error, or because the other side has closed its direction. */
static __attribute__((noinline)) void run_ended(struct connection *c, enum direction direction, uint64_t begin,
                                            uint8_t flags, uint16_t error) {
    struct run *run = &c->run[direction];
    if (error ? LOAD(&run->error_reported) == error : LOAD(&c->flags) & ENDED) return;
    uint64_t end = ticks();
    if (LOAD(&c->flags) & CONNECTING) {
        connect_ended(c, end, error);
        if (error) return;
    }
    if (LOAD(&c->direction) != direction) change_direction(c, direction, begin);
    /* A separate record: the end time of the data stays unchanged. */
    push_run(c, direction, 0, 0);
    uint64_t waiting_since = SWAP(&run->waiting_since, 0);
    if (waiting_since && begin > waiting_since) ADD(&run->waited, begin - waiting_since);
    STORE(&run->begin, begin);
    STORE(&run->first, end);
    STORE(&run->end, end);
    ADD(&run->blocked, end - begin);
    if (error)
        STORE(&run->error_reported, error);
    else
        SET_BITS(&c->flags, ENDED);
    push_run(c, direction, flags, error);
}

/* Records the result of a call: `result` bytes, or errno as the kernel's error. */
static inline void call_returned(struct connection *c, uint64_t number, enum direction direction, uint64_t begin,
                         ssize_t result) {
    /* Another thread has closed the connection meanwhile, and the entry may belong to another connection. */
    if (UNLIKELY(LOAD(&c->number) != number)) return;
    /* A fork is detected before bytes are added: pending bytes of the parent do not belong to the child. */
    detect_fork();
    if (LIKELY(result > 0)) {
        transferred(c, direction, begin, (uint64_t)result);
        return;
    }
    if (result == 0) {
        if (direction == RECEIVE) run_ended(c, direction, begin, FLAG_ENDED, 0);
        return;
    }
    int error = errno;
    if (LIKELY(error == EAGAIN)) {
        if (!LOAD(&c->run[direction].waiting_since)) STORE(&c->run[direction].waiting_since, begin);
    } else if (error != EINTR && !is_misuse(error)) {
        run_ended(c, direction, begin, 0, (uint16_t)error);
        errno = error;
    }
}

static bool has_kernel_tls(int fd) {
    char name[16] = {0};
    socklen_t length = sizeof name;
    return RAW(SYS_getsockopt, fd, IPPROTO_TCP, TCP_ULP, name, &length) == 0 && name[0] == 't' && name[1] == 'l' &&
           name[2] == 's';
}

/* The kernel's byte counters of `fd`. */
static void read_counters(struct connection *c, int fd, struct record *record) {
    uint32_t flags = LOAD(&c->flags);
    /* An unreported child holds what was closed after its fork, not what was opened later. */
    record->closed.forks_opened = c->forks_before;
    record->closed.forks_closed = LOAD(&forks);
    if (flags & STDIO) record->flags |= FLAG_STDIO;
    if (flags & (FOUND | INHERITED) || LOAD(&forks) != c->forks_before) record->flags |= FLAG_SHARED;
    if (LOAD(&sandboxed)) {
        record->flags |= FLAG_SANDBOXED;
        return;
    }
    /* After a failed attempt no bytes were transferred, and the sequence numbers have changed for the next attempt. */
    if (flags & FAILED) return;
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    socklen_t length = sizeof info;
    if (flags & LOST_SIGHT || RAW(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) {
        record->flags |= FLAG_LOST_SIGHT;
        return;
    }
    record->error = info.tcpi_state;
    record->closed.retransmits = info.tcpi_total_retrans;
    record->closed.rtt_us = info.tcpi_rtt;
    /* Linux 4.19 counts sent bytes; on older kernels no value is free of races. */
    if (length < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans) return;
    uint64_t sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
    /* A FIN queued behind data counts as an unsent byte. */
    if (flags & SHUT_SEND && info.tcpi_notsent_bytes) sent--;
    uint64_t received = info.tcpi_bytes_received;
    /* The other side's FIN counts as a received byte in TCP's sequence space. */
    bool peer_closed = flags & ENDED || info.tcpi_state == STATE_CLOSE_WAIT || info.tcpi_state == STATE_LAST_ACK ||
                    info.tcpi_state == STATE_CLOSING || info.tcpi_state == STATE_TIME_WAIT;
    if (peer_closed) {
        if (received) received--;
    } else if (info.tcpi_state == STATE_CLOSE && received) {
        record->flags |= FLAG_OFF_BY_ONE;
    }
    /* Unread bytes: queried only if relevant. */
    int unread = 0;
    if (received != LOAD(&c->reported[RECEIVE])) RAW(SYS_ioctl, fd, FIONREAD, &unread, 0, 0);
    if (unread > 0 && (uint64_t)unread <= received) received -= (uint64_t)unread;
    if (received != LOAD(&c->reported[RECEIVE]) || sent != LOAD(&c->reported[SEND])) {
        /* Checks whether `fd` is still the same socket. */
        if (cookie(fd) != (LOAD(&c->number) & 0xffffffffffffffull)) {
            record->flags |= FLAG_LOST_SIGHT;
            return;
        }
        if (has_kernel_tls(fd)) record->flags |= FLAG_KERNEL_TLS;
    }
    record->closed.sent = sent;
    record->closed.received = received;
    record->flags |= FLAG_COUNTERS;
}

/* Another descriptor of `c`, or -1. */
static int32_t other_descriptor(const struct connection *c, int32_t except) {
    uint32_t end = LOAD(&descriptors_end), at = (uint32_t)(c - connections);
    for (uint32_t fd = 0; fd < end; fd++)
        if (LOAD(&descriptors[fd]) == at && (int32_t)fd != except) return (int32_t)fd;
    return -1;
}

/* Before a call that closes `fd`, a descriptor of `c`. Fills `record` if it is the connection's last descriptor;
 * the caller then calls `release_descriptor` and reports the record. */
static bool about_to_close(struct connection *c, int fd, struct record *record) {
    if (__atomic_load_n(&c->references, __ATOMIC_ACQUIRE) > 1) return false;
    *record = (struct record){.kind = KIND_CLOSED, .connection = LOAD(&c->number), .begin = ticks()};
    push_run(c, SEND, 0, 0);
    push_run(c, RECEIVE, 0, 0);
    read_counters(c, fd, record);
    return true;
}

/* `fd` no longer refers to `c`; the caller has checked that it did. True for the last descriptor. */
static bool release_descriptor(struct connection *c, int fd) {
    uint32_t at = (uint32_t)(c - connections);
    if (!REPLACE(&descriptors[fd], &at, UNKNOWN)) return false;
    if (__atomic_fetch_sub(&c->references, 1, __ATOMIC_ACQ_REL) > 1) {
        if (LOAD(&c->fd) == fd) STORE(&c->fd, other_descriptor(c, fd));
        return false;
    }
    return_entry(c);
    return true;
}

/* A call returned `fd`, so an earlier connection was closed by a call without a hook. */
static void forget_stale(int fd) {
    if ((uint32_t)fd >= DESCRIPTORS) return;
    uint32_t at = LOAD(&descriptors[fd]);
    if (at < FIRST) {
        if (at) STORE(&descriptors[fd], UNKNOWN);
        return;
    }
    /* A vfork child has its own descriptors, and the parent's table. */
    if (!is_own_process()) return;
    struct connection *c = &connections[at];
    SET_BITS(&c->flags, LOST_SIGHT);
    struct record record;
    bool last = about_to_close(c, fd, &record);
    if (release_descriptor(c, fd) && last) push(&record);
}

/* Reports open connections before the image ends. */
static void report_open_connections(void) {
    uint32_t used = LOAD(&connections_used);
    for (uint32_t at = FIRST; at < used && at < CONNECTIONS; at++) {
        struct connection *c = &connections[at];
        int32_t fd = LOAD(&c->fd);
        if (!LOAD(&c->number) || !(LOAD(&c->flags) & TOUCHED) || fd < 0) continue;
        struct record record = {.kind = KIND_LEAVING, .connection = LOAD(&c->number), .begin = ticks()};
        push_run(c, SEND, 0, 0);
        push_run(c, RECEIVE, 0, 0);
        read_counters(c, fd, &record);
        push(&record);
    }
    report_polled(&self, ticks());
    if (LOAD(&datagram_sockets) || LOAD(&uring_setups) || LOAD(&unfollowed)) report_aside();
}

/* Starts the child of a fork, which holds the parent's connections, and none of the parent's pending bytes. */
static void child_started(uint32_t parent_image, uint32_t parent_pid, uint32_t fork) {
    uint32_t used = LOAD(&connections_used);
    for (uint32_t at = FIRST; at < used && at < CONNECTIONS; at++) {
        struct connection *c = &connections[at];
        if (!c->number) continue;
        memset(c->run, 0, sizeof c->run);
        c->direction = NEITHER;
        c->flags = (c->flags & ~TOUCHED) | INHERITED;
    }
    datagram_sockets = uring_setups = unfollowed = 0;
    report_image(KIND_FORKED, parent_image, parent_pid, fork);
}

#endif
