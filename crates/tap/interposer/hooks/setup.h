/* Connections and descriptors: created, duplicated, closed. */

HOOK int socket(int domain, int type, int protocol) {
    ENSURE_STARTED();
    int fd = real.socket(domain, type, protocol);
    if (fd < 0 || !active) return fd;
    forget_stale(fd);
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_DGRAM) count_aside(&datagram_sockets);
    return fd;
}

/* Builds the record of a connect attempt; false for other sockets. `to` is readable. */
static bool describe_attempt(int fd, const struct sockaddr *to, socklen_t length, struct record *record) {
    if (LOAD(&sandboxed) || is_tcp(fd) < 0) return false;
    struct sockaddr_storage peer;
    memset(&peer, 0, sizeof peer);
    memcpy(&peer, to, length < sizeof peer ? length : sizeof peer);
    record->connection = cookie(fd);
    return describe(fd, record, &peer);
}

/* Whether the program's memory is readable there: the kernel must reject an invalid address, and this library must
 * not crash on it. The kernel copies the set before it rejects the operation as unknown. */
static bool is_readable(const void *from, size_t bytes) {
    const char *last = (const char *)from + bytes - 8;
    return RAW(SYS_rt_sigprocmask, -1, from, 0, 8, 0) == -EINVAL &&
           RAW(SYS_rt_sigprocmask, -1, last, 0, 8, 0) == -EINVAL;
}

/* Follows and reports the attempt in `record`. `c` is the connection of `fd`. NULL: the table is full. */
static struct connection *begin_attempt(int fd, struct connection *c, struct record *record, uint32_t flags) {
    uint32_t before = (uint32_t)fd < DESCRIPTORS ? LOAD(&descriptors[fd]) : UNKNOWN;
    if (c && LOAD(&c->flags) & FAILED && (LOAD(&c->number) ^ record->connection) << 8 == 0) {
        /* Another attempt on the same socket. */
        record->connection = LOAD(&c->number) + (1ull << 56);
        init_connection(c, record->connection, fd, flags);
        c->connect_begin = record->begin;
        record->kind = KIND_OPENED;
        push(record);
        return c;
    }
    if (before >= FIRST) {
        forget_stale(fd);
        before = UNKNOWN;
    }
    c = follow(fd, before, record, flags);
    if (c) c->connect_begin = record->begin;
    return c;
}

/* Reports a blocking connect before it waits: otherwise the connection would be unknown until it returns, and too
 * few connections would count as concurrent. False if it starts no attempt; `c` is NULL if the table is full. */
static bool report_attempt_before_call(int fd, const struct sockaddr *to, socklen_t length, struct connection **c) {
    struct connection *before = known(fd);
    if (LOAD(&sandboxed) || !to || length < sizeof(struct sockaddr_in) || length > sizeof(struct sockaddr_storage) ||
        (before && !(LOAD(&before->flags) & FAILED)))
        return false;
    long flags = RAW(SYS_fcntl, fd, F_GETFL, 0, 0, 0);
    if (flags < 0 || flags & O_NONBLOCK || !is_readable(to, length)) return false;
    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) return false;
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    /* Already connected, and unknown so far. */
    if (RAW(SYS_getpeername, fd, &peer, &size, 0, 0) == 0) return false;
    struct record record = {0};
    if (!describe_attempt(fd, to, length, &record)) return false;
    record.begin = ticks();
    *c = begin_attempt(fd, before, &record, CONNECTING | NO_LOCAL_ADDRESS);
    return true;
}

/* The kernel rejected the call: there was no attempt. */
static void withdraw(struct connection *c, int fd, uint64_t now) {
    struct record record = {.kind = KIND_CONNECT_FAILED, .flags = FLAG_WITHDRAWN, .connection = LOAD(&c->number)};
    record.begin = record.attempt.end = now;
    push(&record);
    release_descriptor(c, fd);
}

/* The result of an attempt that was reported in advance. */
static void attempt_returned(struct connection *c, uint64_t number, int fd, uint64_t now, int error) {
    /* Another thread has closed the connection meanwhile, or has used it successfully. */
    if (LOAD(&c->number) != number || !(LOAD(&c->flags) & CONNECTING)) return;
    /* The attempt continues after an interruption by a handler, or after SO_SNDTIMEO. */
    if (error == EINTR || error == EINPROGRESS)
        c->in_progress_since = now;
    else if (is_misuse(error))
        withdraw(c, fd, now);
    else
        connect_ended(c, now, (uint16_t)error);
}

HOOK int connect(int fd, const struct sockaddr *to, socklen_t length) {
    ENSURE_STARTED();
    if (!active) return real.connect(fd, to, length);
    int saved = errno;
    struct connection *c = NULL;
    bool ahead = report_attempt_before_call(fd, to, length, &c);
    uint64_t number = c ? LOAD(&c->number) : 0;
    errno = saved;
    uint64_t begin = ticks();
    int result = real.connect(fd, to, length);
    saved = errno;
    int error = result < 0 ? saved : 0;
    uint64_t end = ticks();
    if (ahead) {
        if (c) attempt_returned(c, number, fd, end, error);
        errno = saved;
        return result;
    }
    c = known(fd);
    if (c && LOAD(&c->flags) & CONNECTING) {
        /* A repeated connect: it has succeeded, failed, or is pending. */
        if (!error || error == EISCONN)
            connect_ended(c, end, 0);
        else if (error != EALREADY && error != EINPROGRESS && error != EINTR && !is_misuse(error))
            connect_ended(c, end, (uint16_t)error);
        errno = saved;
        return result;
    }
    if ((error && error != EINPROGRESS && error != EINTR && is_misuse(error)) || !to || length < sizeof(sa_family_t))
        return result;
    bool pending = error == EINPROGRESS || error == EINTR;
    struct record record = {.begin = begin, .flags = pending ? FLAG_NONBLOCKING : 0};
    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) {
        /* AF_UNSPEC disconnects: what follows is another connection. */
        if (c && to->sa_family == AF_UNSPEC && !error) forget_stale(fd);
    } else if (describe_attempt(fd, to, length, &record)) {
        c = begin_attempt(fd, c, &record, 0);
        if (c && pending) {
            c->in_progress_since = end;
            SET_BITS(&c->flags, CONNECTING);
        } else if (c) {
            connect_ended(c, end, (uint16_t)error);
        }
    }
    errno = saved;
    return result;
}

/* The peer is read from the kernel: the program's buffer may be too short, or invalid. */
static void accepted(int fd) {
    if (!active) return;
    int saved = errno;
    struct record record = {.flags = FLAG_ROLE_ACCEPTED, .begin = ticks()};
    forget_stale(fd);
    if (!LOAD(&sandboxed) && is_tcp(fd) == 0 && describe(fd, &record, NULL)) {
        record.connection = cookie(fd);
        follow(fd, UNKNOWN, &record, 0);
    }
    errno = saved;
}

HOOK int accept(int fd, struct sockaddr *restrict from, socklen_t *restrict length) {
    ENSURE_STARTED();
    int result = real.accept(fd, from, length);
    if (result >= 0) accepted(result);
    return result;
}

HOOK int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict length, int flags) {
    ENSURE_STARTED();
    int result = real.accept4(fd, from, length, flags);
    if (result >= 0) accepted(result);
    return result;
}

/* After EINPROGRESS a program reads the result this way. */
HOOK int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict length) {
    ENSURE_STARTED();
    int result = real.getsockopt(fd, level, option, value, length);
    if (level != SOL_SOCKET || option != SO_ERROR || result < 0) return result;
    struct connection *c = known(fd);
    if (!c || !(LOAD(&c->flags) & CONNECTING) || *length < sizeof(int)) return result;
    int error = *(const int *)value;
    uint64_t now = ticks();
    if (!error && !LOAD(&sandboxed)) {
        /* Read too early, the value is 0 as well. */
        struct tcp_info info;
        socklen_t size = sizeof info;
        if (RAW(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 || info.tcpi_state == STATE_SYN_SENT)
            return result;
    }
    connect_ended(c, now, (uint16_t)error);
    return result;
}

HOOK int shutdown(int fd, int how) {
    struct connection *c = followed(fd);
    if (!c) return real.shutdown(fd, how);
    uint64_t begin = ticks();
    int result = real.shutdown(fd, how);
    if (result < 0) return result;
    push_run(c, SEND, 0, 0);
    push_run(c, RECEIVE, 0, 0);
    if (how != SHUT_RD) SET_BITS(&c->flags, SHUT_SEND);
    struct record record = {.kind = KIND_SHUT, .connection = LOAD(&c->number), .begin = begin};
    record.flags = (how != SHUT_WR ? FLAG_SHUT_RECEIVE : 0) | (how != SHUT_RD ? FLAG_SHUT_SEND : 0);
    push(&record);
    return result;
}

static int close_through_libc(int fd) { return real.close(fd); }

/* Reports the close of `fd`, which `next` closes. */
static inline int close_by(int fd, int (*next)(int)) {
    ENSURE_STARTED();
    struct connection *c = known(fd);
    if (!c) {
        if ((uint32_t)fd < DESCRIPTORS && LOAD(&descriptors[fd])) STORE(&descriptors[fd], UNKNOWN);
        return next(fd);
    }
    if (!is_own_process()) return next(fd);
    struct record record;
    bool last = about_to_close(c, fd, &record);
    /* Before the call: afterwards the number may be reused at any time, and the call may wait (SO_LINGER). */
    if (release_descriptor(c, fd) && last) push(&record);
    return next(fd);
}

HOOK int close(int fd) { return close_by(fd, close_through_libc); }
/* Through syscall(3), which is not a cancellation point: libuv closes all sockets of Node this way. */
__attribute__((used)) static long close_by_syscall(int fd) { return close_by(fd, raw_close); }
HOOK int __close(int) __attribute__((alias("close")));
HOOK int __connect(int, const struct sockaddr *, socklen_t) __attribute__((alias("connect")));

/* `created` is a duplicate of `from`. */
static void duplicated(int from, int created) {
    if (!active || (uint32_t)from >= DESCRIPTORS || created < 0 || !is_own_process()) return;
    struct connection *c = known(from);
    forget_stale(created);
    if (!c) return;
    if ((uint32_t)created >= DESCRIPTORS) {
        count_unfollowed();
        return;
    }
    ADD(&c->references, 1);
    note_descriptor((uint32_t)created);
    STORE_RELEASE(&descriptors[created], (uint32_t)(c - connections));
}

HOOK int dup(int fd) {
    ENSURE_STARTED();
    int created = real.dup(fd);
    if (created >= 0) duplicated(fd, created);
    return created;
}

/* The call closes a connection of `onto`, unless it fails. */
#define DUP_ONTO(call) \
    do { \
        ENSURE_STARTED(); \
        struct connection *c = fd != onto ? known(onto) : NULL; \
        if (c && is_own_process() && (LOAD(&sandboxed) || RAW(SYS_fcntl, fd, F_GETFD, 0, 0, 0) >= 0)) { \
            struct record record; \
            bool last = about_to_close(c, onto, &record); \
            if (release_descriptor(c, onto) && last) push(&record); \
        } \
        int created = call; \
        if (created >= 0 && fd != onto) duplicated(fd, created); \
        return created; \
    } while (0)

HOOK int dup2(int fd, int onto) { DUP_ONTO(real.dup2(fd, onto)); }
HOOK int dup3(int fd, int onto, int flags) { DUP_ONTO(real.dup3(fd, onto, flags)); }
HOOK int __dup2(int, int) __attribute__((alias("dup2")));

#define FCNTL(name) \
    HOOK int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        ENSURE_STARTED(); \
        if (UNLIKELY(!real.name)) return (int)with_errno(RAW(SYS_fcntl, fd, command, argument, 0, 0)); \
        int result = real.name(fd, command, argument); \
        if (UNLIKELY((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0)) duplicated(fd, result); \
        return result; \
    }
FCNTL(fcntl)
FCNTL(fcntl64)
HOOK int __fcntl(int, int, ...) __attribute__((alias("fcntl")));

/* Reports and forgets all descriptors from `first` to `last`, which are about to be closed. */
static void close_all(uint32_t first, uint32_t last) {
    uint32_t end = LOAD(&descriptors_end);
    if (!active || !is_own_process()) return;
    for (uint32_t fd = first; fd < end && fd <= last; fd++) {
        uint32_t at = LOAD(&descriptors[fd]);
        if (at == IGNORED) STORE(&descriptors[fd], UNKNOWN);
        if (at < FIRST) continue;
        struct connection *c = &connections[at];
        struct record record;
        bool is_last = about_to_close(c, (int)fd, &record);
        if (release_descriptor(c, (int)fd) && is_last) push(&record);
    }
}

HOOK int close_range(unsigned int first, unsigned int last, int flags) {
    ENSURE_STARTED();
    /* Bits: 2 gives this thread a separate table, 4 only marks descriptors for closing at exec. */
    if (first <= last && !(flags & ~2)) close_all(first, last);
    return real.close_range(first, last, flags);
}

__attribute__((used)) static long close_range_by_syscall(unsigned int first, unsigned int last, int flags) {
    ENSURE_STARTED();
    if (first <= last && !(flags & ~2)) close_all(first, last);
    return with_errno(RAW(SYS_close_range, first, last, flags, 0, 0));
}

HOOK void closefrom(int first) {
    ENSURE_STARTED();
    close_all(first < 0 ? 0 : (uint32_t)first, ~0u);
    real.closefrom(first);
}

HOOK FILE *fdopen(int fd, const char *mode) {
    struct connection *c = followed(fd);
    FILE *created = real.fdopen(fd, mode);
    if (created && c) SET_BITS(&c->flags, STDIO);
    return created;
}

/* libc closes the descriptor without calling a hook. The buffer is flushed first, so that the
 * kernel's counters include it. */
HOOK int fclose(FILE *stream) {
    ENSURE_STARTED();
    int saved = errno;
    /* A stream over memory has no descriptor, which sets errno. */
    int fd = stream ? fileno_unlocked(stream) : -1;
    errno = saved;
    struct connection *c = known(fd);
    if (!c || !is_own_process()) {
        if ((uint32_t)fd < DESCRIPTORS && !c && LOAD(&descriptors[fd])) STORE(&descriptors[fd], UNKNOWN);
        return real.fclose(stream);
    }
    fflush(stream);
    errno = saved;
    struct record record;
    bool last = about_to_close(c, fd, &record);
    if (release_descriptor(c, fd) && last) push(&record);
    return real.fclose(stream);
}
