/* Connections and descriptors: made, doubled, given up. */

HOOK int socket(int domain, int type, int protocol) {
    ENSURE_STARTED();
    int fd = real.socket(domain, type, protocol);
    if (fd < 0 || !active) return fd;
    forget_stale(fd);
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_DGRAM) aside(&datagram_sockets);
    return fd;
}

/* The record of an attempt to connect; false if this is none of ours. Called with the real call already made. */
static bool attempted(int fd, const struct sockaddr *to, socklen_t length, struct record *record) {
    if (LOAD(&sandboxed) || is_tcp(fd) < 0) return false;
    struct sockaddr_storage peer;
    memset(&peer, 0, sizeof peer);
    memcpy(&peer, to, length < sizeof peer ? length : sizeof peer);
    record->connection = cookie(fd);
    return describe(fd, record, &peer);
}

HOOK int connect(int fd, const struct sockaddr *to, socklen_t length) {
    ENSURE_STARTED();
    if (!active) return real.connect(fd, to, length);
    uint64_t begin = ticks();
    int result = real.connect(fd, to, length);
    int error = result < 0 ? errno : 0;
    uint64_t end = ticks();
    struct connection *c = known(fd);
    if (c && LOAD(&c->flags) & CONNECTING) {
        /* Asked again: done, failed, or not yet. */
        if (!error || error == EISCONN)
            settle(c, end, 0);
        else if (error != EALREADY && error != EINPROGRESS && error != EINTR && !is_misuse(error))
            settle(c, end, (uint16_t)error);
        errno = error ? error : errno;
        return result;
    }
    if ((error && error != EINPROGRESS && error != EINTR && is_misuse(error)) || !to || length < sizeof(sa_family_t))
        return result;
    int saved = errno;
    bool pending = error == EINPROGRESS || error == EINTR;
    struct record record = {.begin = begin, .flags = pending ? FLAG_NONBLOCKING : 0};
    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) {
        /* AF_UNSPEC takes a connection apart: what follows is another one. */
        if (c && to->sa_family == AF_UNSPEC && !error) forget_stale(fd);
    } else if (attempted(fd, to, length, &record)) {
        uint32_t before = (uint32_t)fd < DESCRIPTORS ? LOAD(&descriptors[fd]) : UNKNOWN;
        if (c && LOAD(&c->flags) & FAILED && (LOAD(&c->number) ^ record.connection) << 8 == 0) {
            /* Once more on the same socket. */
            record.connection = LOAD(&c->number) + (1ull << 56);
            occupy(c, record.connection, fd, 0);
            record.kind = KIND_OPENED;
            push(&record);
        } else {
            if (before >= FIRST) {
                forget_stale(fd);
                before = UNKNOWN;
            }
            c = follow(fd, before, &record, 0);
        }
        if (c) {
            c->connect_begin = begin;
            if (pending) {
                c->in_progress_since = end;
                SET_BITS(&c->flags, CONNECTING);
            } else {
                settle(c, end, (uint16_t)error);
            }
        }
    }
    errno = saved;
    return result;
}

/* The kernel is asked for the peer: what the program gave room for may be too short, or not be memory at all. */
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

/* After EINPROGRESS, this is how a program asks what became of it. */
HOOK int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict length) {
    ENSURE_STARTED();
    int result = real.getsockopt(fd, level, option, value, length);
    if (level != SOL_SOCKET || option != SO_ERROR || result < 0) return result;
    struct connection *c = known(fd);
    if (!c || !(LOAD(&c->flags) & CONNECTING) || *length < sizeof(int)) return result;
    int error = *(const int *)value;
    uint64_t now = ticks();
    if (!error && !LOAD(&sandboxed)) {
        /* Asked too early, the answer is 0 as well. */
        struct tcp_info info;
        socklen_t room = sizeof info;
        if (RAW(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &room) < 0 || info.tcpi_state == STATE_SYN_SENT)
            return result;
    }
    settle(c, now, (uint16_t)error);
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

static int close_plainly(int fd) { return real.close(fd); }

/* `next` closes it. */
static inline int close_by(int fd, int (*next)(int)) {
    ENSURE_STARTED();
    struct connection *c = known(fd);
    if (!c) {
        if ((uint32_t)fd < DESCRIPTORS && LOAD(&descriptors[fd])) STORE(&descriptors[fd], UNKNOWN);
        return next(fd);
    }
    if (!own_process()) return next(fd);
    struct record record;
    bool last = about_to_close(c, fd, &record);
    /* Before the call: after it the number may be given out again at any moment. */
    bool gone = let_go(c, fd);
    int result = next(fd);
    if (gone && last) {
        int saved = errno;
        record.closed.end = ticks();
        push(&record);
        errno = saved;
    }
    return result;
}

HOOK int close(int fd) { return close_by(fd, close_plainly); }
/* By syscall(3), which is no cancellation point: libuv closes all sockets of Node so. */
__attribute__((used)) static long close_by_syscall(int fd) { return close_by(fd, raw_close); }
HOOK int __close(int) __attribute__((alias("close")));
HOOK int __connect(int, const struct sockaddr *, socklen_t) __attribute__((alias("connect")));

/* `made` refers to what `from` refers to. */
static void doubled(int from, int made) {
    if (!active || (uint32_t)from >= DESCRIPTORS || made < 0 || !own_process()) return;
    struct connection *c = known(from);
    forget_stale(made);
    if (!c) return;
    if ((uint32_t)made >= DESCRIPTORS) {
        aside(&unfollowed);
        return;
    }
    ADD(&c->references, 1);
    saw_descriptor((uint32_t)made);
    STORE_RELEASE(&descriptors[made], (uint32_t)(c - connections));
}

HOOK int dup(int fd) {
    ENSURE_STARTED();
    int made = real.dup(fd);
    if (made >= 0) doubled(fd, made);
    return made;
}

/* A connection that `onto` refers to is closed on the way, unless the call fails. */
#define DUP_ONTO(call) \
    do { \
        ENSURE_STARTED(); \
        struct connection *c = fd != onto ? known(onto) : NULL; \
        struct record record; \
        bool last = false, gone = false; \
        if (c && own_process() && (LOAD(&sandboxed) || RAW(SYS_fcntl, fd, F_GETFD, 0, 0, 0) >= 0)) { \
            last = about_to_close(c, onto, &record); \
            gone = let_go(c, onto); \
        } \
        int made = call; \
        if (gone && last) { \
            record.closed.end = ticks(); \
            push(&record); \
        } \
        if (made >= 0 && fd != onto) doubled(fd, made); \
        return made; \
    } while (0)

HOOK int dup2(int fd, int onto) { DUP_ONTO(real.dup2(fd, onto)); }
HOOK int dup3(int fd, int onto, int flags) { DUP_ONTO(real.dup3(fd, onto, flags)); }

#define FCNTL(name) \
    HOOK int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        ENSURE_STARTED(); \
        if (UNLIKELY(!real.name)) return (int)with_errno(RAW(SYS_fcntl, fd, command, argument, 0, 0)); \
        int result = real.name(fd, command, argument); \
        if (UNLIKELY((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0)) doubled(fd, result); \
        return result; \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* Tells and forgets all from `first` to `last`, which are about to be closed. */
static void close_all(uint32_t first, uint32_t last) {
    uint32_t end = LOAD(&descriptors_end);
    if (!active || !own_process()) return;
    for (uint32_t fd = first; fd < end && fd <= last; fd++) {
        uint32_t at = LOAD(&descriptors[fd]);
        if (at == IGNORED) STORE(&descriptors[fd], UNKNOWN);
        if (at < FIRST) continue;
        struct connection *c = &connections[at];
        struct record record;
        bool is_last = about_to_close(c, (int)fd, &record);
        if (let_go(c, (int)fd) && is_last) {
            record.closed.end = ticks();
            push(&record);
        }
    }
}

HOOK int close_range(unsigned int first, unsigned int last, int flags) {
    ENSURE_STARTED();
    /* Bits: 2 gives this thread a table of its own, 4 only marks what exec is to close. */
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
    FILE *made = real.fdopen(fd, mode);
    if (made && c) SET_BITS(&c->flags, STDIO);
    return made;
}

/* libc closes by itself then. What is buffered is written first, so that the kernel's account has it. */
HOOK int fclose(FILE *stream) {
    ENSURE_STARTED();
    int saved = errno;
    /* A stream over memory has none, which sets errno. */
    int fd = stream ? fileno_unlocked(stream) : -1;
    errno = saved;
    struct connection *c = known(fd);
    if (!c || !own_process()) {
        if ((uint32_t)fd < DESCRIPTORS && !c && LOAD(&descriptors[fd])) STORE(&descriptors[fd], UNKNOWN);
        return real.fclose(stream);
    }
    fflush(stream);
    errno = saved;
    struct record record;
    bool last = about_to_close(c, fd, &record);
    bool gone = let_go(c, fd);
    int result = real.fclose(stream);
    if (gone && last) {
        record.closed.end = ticks();
        push(&record);
    }
    return result;
}
