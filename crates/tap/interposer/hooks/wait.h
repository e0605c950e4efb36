/* Waiting for any descriptors: summed per thread, since one wait belongs to no single socket. */

#define WAIT(call) \
    do { \
        ENSURE_STARTED(); \
        if (!active) return call; \
        uint64_t begin = ticks(); \
        int result = call; \
        polled(begin); \
        return result; \
    } while (0)

static inline void polled(uint64_t begin) {
    struct thread *thread = &self;
    uint64_t end = ticks();
    thread->polled_ticks += end - begin;
    thread->polled_calls++;
    if (UNLIKELY(end - thread->polled_reported_at > piece_ticks)) report_polled(thread, end);
}

HOOK int poll(struct pollfd *fds, nfds_t n, int timeout) { WAIT(real.poll(fds, n, timeout)); }
HOOK int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals) {
    WAIT(real.ppoll(fds, n, timeout, signals));
}
HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t buffer_size) {
    WAIT(real.__poll_chk(fds, n, timeout, buffer_size));
}
HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals,
                     size_t buffer_size) {
    WAIT(real.__ppoll_chk(fds, n, timeout, signals, buffer_size));
}
HOOK int select(int n, fd_set *restrict reads, fd_set *restrict writes, fd_set *restrict others,
                struct timeval *restrict timeout) {
    WAIT(real.select(n, reads, writes, others, timeout));
}
HOOK int pselect(int n, fd_set *restrict reads, fd_set *restrict writes, fd_set *restrict others,
                 const struct timespec *restrict timeout, const sigset_t *restrict signals) {
    WAIT(real.pselect(n, reads, writes, others, timeout, signals));
}
/* Older names of the same libc functions. */
HOOK int __poll(struct pollfd *, nfds_t, int) __attribute__((alias("poll")));
HOOK int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *) __attribute__((alias("select")));
HOOK int epoll_wait(int fd, struct epoll_event *events, int n, int timeout) {
    WAIT(real.epoll_wait(fd, events, n, timeout));
}
HOOK int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *signals) {
    WAIT(real.epoll_pwait(fd, events, n, timeout, signals));
}
HOOK int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
                      const sigset_t *signals) {
    WAIT(real.epoll_pwait2(fd, events, n, timeout, signals));
}
