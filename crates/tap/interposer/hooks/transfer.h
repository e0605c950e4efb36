/* Calls that transfer bytes: each makes the real call, reads the clock before, and records the result. */
#define HOOK __attribute__((visibility("default")))

/* A call that receives or sends: `transfers` is false if the call requests no bytes, or transfers none by design. */
#define TRANSFER(direction, fd, transfers, call) \
    do { \
        struct connection *c = followed(fd); \
        if (!c || !(transfers)) return call; \
        uint64_t number = LOAD(&c->number), begin = ticks(); \
        ssize_t result = call; \
        call_returned(c, number, direction, begin, result); \
        return result; \
    } while (0)

/* Data peeked at, or notifications about sent bytes: no bytes are transferred. */
#define TRANSFERS_BYTES(flags) (!((flags) & (MSG_PEEK | MSG_ERRQUEUE)))

HOOK ssize_t read(int fd, void *to, size_t n) { TRANSFER(RECEIVE, fd, n, real.read(fd, to, n)); }
HOOK ssize_t __read_chk(int fd, void *to, size_t n, size_t buffer_size) {
    TRANSFER(RECEIVE, fd, n, real.__read_chk(fd, to, n, buffer_size));
}
HOOK ssize_t readv(int fd, const struct iovec *to, int n) { TRANSFER(RECEIVE, fd, n, real.readv(fd, to, n)); }
HOOK ssize_t recv(int fd, void *to, size_t n, int flags) {
    TRANSFER(RECEIVE, fd, n && TRANSFERS_BYTES(flags), real.recv(fd, to, n, flags));
}
HOOK ssize_t __recv_chk(int fd, void *to, size_t n, size_t buffer_size, int flags) {
    TRANSFER(RECEIVE, fd, n && TRANSFERS_BYTES(flags), real.__recv_chk(fd, to, n, buffer_size, flags));
}
HOOK ssize_t recvfrom(int fd, void *restrict to, size_t n, int flags, struct sockaddr *restrict from,
                      socklen_t *restrict length) {
    TRANSFER(RECEIVE, fd, n && TRANSFERS_BYTES(flags), real.recvfrom(fd, to, n, flags, from, length));
}
HOOK ssize_t __recvfrom_chk(int fd, void *restrict to, size_t n, size_t buffer_size, int flags,
                            struct sockaddr *restrict from, socklen_t *restrict length) {
    TRANSFER(RECEIVE, fd, n && TRANSFERS_BYTES(flags),
             real.__recvfrom_chk(fd, to, n, buffer_size, flags, from, length));
}

/* Descriptors received over a Unix socket: earlier knowledge about their numbers is invalid. */
static void inspect_received_descriptors(const struct msghdr *message) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
         part = CMSG_NXTHDR((struct msghdr *)(uintptr_t)message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const unsigned char *from = CMSG_DATA(part);
        for (size_t left = part->cmsg_len - CMSG_LEN(0); left >= sizeof(int); left -= sizeof(int)) {
            int fd;
            __builtin_memcpy(&fd, from, sizeof fd);
            from += sizeof fd;
            forget_stale(fd);
        }
    }
}

HOOK ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    struct connection *c = followed(fd);
    if (!c || !TRANSFERS_BYTES(flags)) {
        ssize_t result = real.recvmsg(fd, message, flags);
        if (result >= 0 && message->msg_control && message->msg_controllen) inspect_received_descriptors(message);
        return result;
    }
    uint64_t number = LOAD(&c->number), begin = ticks();
    ssize_t result = real.recvmsg(fd, message, flags);
    if (result || (message->msg_iovlen && message->msg_iov[0].iov_len))
        call_returned(c, number, RECEIVE, begin, result);
    return result;
}

/* Several messages: the result is their number, their lengths are in the vector. */
static void after_messages(struct connection *c, uint64_t number, enum direction direction, uint64_t begin, int result,
                           const struct mmsghdr *messages) {
    ssize_t bytes = result;
    if (result > 0) {
        bytes = 0;
        for (int i = 0; i < result; i++) bytes += messages[i].msg_len;
        if (!bytes && direction == SEND) return;
    } else if (result == 0) {
        return;
    }
    call_returned(c, number, direction, begin, bytes);
}

HOOK int recvmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags, struct timespec *timeout) {
    struct connection *c = followed(fd);
    if (!c || !TRANSFERS_BYTES(flags)) {
        int result = real.recvmmsg(fd, messages, n, flags, timeout);
        for (int i = 0; i < result; i++)
            if (messages[i].msg_hdr.msg_control && messages[i].msg_hdr.msg_controllen)
                inspect_received_descriptors(&messages[i].msg_hdr);
        return result;
    }
    uint64_t number = LOAD(&c->number), begin = ticks();
    int result = real.recvmmsg(fd, messages, n, flags, timeout);
    after_messages(c, number, RECEIVE, begin, result, messages);
    return result;
}

HOOK ssize_t write(int fd, const void *from, size_t n) { TRANSFER(SEND, fd, n, real.write(fd, from, n)); }
HOOK ssize_t writev(int fd, const struct iovec *from, int n) { TRANSFER(SEND, fd, n, real.writev(fd, from, n)); }
HOOK ssize_t send(int fd, const void *from, size_t n, int flags) {
    TRANSFER(SEND, fd, n, real.send(fd, from, n, flags));
}
HOOK ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    TRANSFER(SEND, fd, true, real.sendmsg(fd, message, flags));
}

/* With MSG_FASTOPEN the call also connects; the next call, or the end of this one, finds the connection. */
HOOK ssize_t sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t length) {
    struct connection *c = followed(fd);
    if (!c && !(active && to && flags & MSG_FASTOPEN)) return real.sendto(fd, from, n, flags, to, length);
    uint64_t number = c ? LOAD(&c->number) : 0, begin = ticks();
    ssize_t result = real.sendto(fd, from, n, flags, to, length);
    if (!c) {
        int saved = errno;
        c = result >= 0 ? followed(fd) : NULL;
        errno = saved;
        if (!c) return result;
        number = LOAD(&c->number);
    }
    call_returned(c, number, SEND, begin, result);
    return result;
}

/* libc itself writes, in a call without a hook. A formatting error is not an error of the connection. */
#define PRINT(fd, call) \
    do { \
        struct connection *c = followed(fd); \
        if (!c) return call; \
        uint64_t number = LOAD(&c->number), begin = ticks(); \
        int result = call; \
        if (result >= 0 || (errno != EILSEQ && errno != EOVERFLOW && errno != ENOMEM)) \
            call_returned(c, number, SEND, begin, result); \
        return result; \
    } while (0)

HOOK int vdprintf(int fd, const char *restrict format, va_list list) { PRINT(fd, real.vdprintf(fd, format, list)); }
HOOK int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list list) {
    PRINT(fd, real.__vdprintf_chk(fd, flag, format, list));
}
HOOK int dprintf(int fd, const char *restrict format, ...) {
    va_list list;
    va_start(list, format);
    int result = vdprintf(fd, format, list);
    va_end(list);
    return result;
}
HOOK int __dprintf_chk(int fd, int flag, const char *restrict format, ...) {
    va_list list;
    va_start(list, format);
    int result = __vdprintf_chk(fd, flag, format, list);
    va_end(list);
    return result;
}

/* A socket has no position: these are readv and writev with flags. */
HOOK ssize_t preadv2(int fd, const struct iovec *to, int n, off_t from, int flags) {
    TRANSFER(RECEIVE, fd, from == -1, real.preadv2(fd, to, n, from, flags));
}
HOOK ssize_t pwritev2(int fd, const struct iovec *from, int n, off_t to, int flags) {
    TRANSFER(SEND, fd, to == -1, real.pwritev2(fd, from, n, to, flags));
}
HOOK ssize_t preadv64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("preadv2")));
HOOK ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("pwritev2")));

HOOK int sendmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags) {
    struct connection *c = followed(fd);
    if (!c) return real.sendmmsg(fd, messages, n, flags);
    uint64_t number = LOAD(&c->number), begin = ticks();
    int result = real.sendmmsg(fd, messages, n, flags);
    after_messages(c, number, SEND, begin, result, messages);
    return result;
}

HOOK ssize_t sendfile(int to, int from, off_t *offset, size_t n) {
    TRANSFER(SEND, to, n, real.sendfile(to, from, offset, n));
}
HOOK ssize_t sendfile64(int to, int from, off64_t *offset, size_t n) {
    TRANSFER(SEND, to, n, real.sendfile64(to, from, offset, n));
}

/* One end is a pipe, so at most one is a connection. */
HOOK ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t n, unsigned int flags) {
    struct connection *source = followed(from);
    struct connection *c = source ? source : followed(to);
    if (!c || !n) return real.splice(from, from_offset, to, to_offset, n, flags);
    uint64_t number = LOAD(&c->number), begin = ticks();
    ssize_t result = real.splice(from, from_offset, to, to_offset, n, flags);
    call_returned(c, number, source ? RECEIVE : SEND, begin, result);
    return result;
}

/* Older names of the same libc functions. */
HOOK ssize_t __read(int, void *, size_t) __attribute__((alias("read")));
HOOK ssize_t __write(int, const void *, size_t) __attribute__((alias("write")));
HOOK ssize_t __send(int, const void *, size_t, int) __attribute__((alias("send")));
