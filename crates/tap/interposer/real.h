/* The real functions: those of libc, or of another library preloaded after this one. */
#ifndef YAMABIKO_REAL_H
#define YAMABIKO_REAL_H

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "raw.h"

/* Name, result, parameters. Functions of the first list use a raw system call until the real one is found: an
 * allocator may read a file during its own start. */
#define BASIC_FUNCTIONS(X) \
    X(read, ssize_t, (int, void *, size_t)) \
    X(write, ssize_t, (int, const void *, size_t)) \
    X(readv, ssize_t, (int, const struct iovec *, int)) \
    X(writev, ssize_t, (int, const struct iovec *, int)) \
    X(close, int, (int)) \
    X(dup, int, (int)) \
    X(dup2, int, (int, int)) \
    X(dup3, int, (int, int, int))

#define OTHER_FUNCTIONS(X) \
    X(recv, ssize_t, (int, void *, size_t, int)) \
    X(recvfrom, ssize_t, (int, void *, size_t, int, struct sockaddr *, socklen_t *)) \
    X(recvmsg, ssize_t, (int, struct msghdr *, int)) \
    X(recvmmsg, int, (int, struct mmsghdr *, unsigned int, int, struct timespec *)) \
    X(send, ssize_t, (int, const void *, size_t, int)) \
    X(sendto, ssize_t, (int, const void *, size_t, int, const struct sockaddr *, socklen_t)) \
    X(sendmsg, ssize_t, (int, const struct msghdr *, int)) \
    X(sendmmsg, int, (int, struct mmsghdr *, unsigned int, int)) \
    X(sendfile, ssize_t, (int, int, off_t *, size_t)) \
    X(sendfile64, ssize_t, (int, int, off64_t *, size_t)) \
    X(splice, ssize_t, (int, off64_t *, int, off64_t *, size_t, unsigned int)) \
    X(__read_chk, ssize_t, (int, void *, size_t, size_t)) \
    X(__recv_chk, ssize_t, (int, void *, size_t, size_t, int)) \
    X(__recvfrom_chk, ssize_t, (int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *)) \
    X(vdprintf, int, (int, const char *, va_list)) \
    X(__vdprintf_chk, int, (int, int, const char *, va_list)) \
    X(preadv2, ssize_t, (int, const struct iovec *, int, off_t, int)) \
    X(pwritev2, ssize_t, (int, const struct iovec *, int, off_t, int)) \
    X(socket, int, (int, int, int)) \
    X(connect, int, (int, const struct sockaddr *, socklen_t)) \
    X(accept, int, (int, struct sockaddr *, socklen_t *)) \
    X(accept4, int, (int, struct sockaddr *, socklen_t *, int)) \
    X(getsockopt, int, (int, int, int, void *, socklen_t *)) \
    X(shutdown, int, (int, int)) \
    X(fcntl, int, (int, int, ...)) \
    X(fcntl64, int, (int, int, ...)) \
    X(close_range, int, (unsigned int, unsigned int, int)) \
    X(closefrom, void, (int)) \
    X(fclose, int, (FILE *)) \
    X(fdopen, FILE *, (int, const char *)) \
    X(poll, int, (struct pollfd *, nfds_t, int)) \
    X(ppoll, int, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)) \
    X(__poll_chk, int, (struct pollfd *, nfds_t, int, size_t)) \
    X(__ppoll_chk, int, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t)) \
    X(select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *)) \
    X(pselect, int, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
    X(epoll_wait, int, (int, struct epoll_event *, int, int)) \
    X(epoll_pwait, int, (int, struct epoll_event *, int, int, const sigset_t *)) \
    X(epoll_pwait2, int, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *)) \
    X(getaddrinfo, int, (const char *, const char *, const struct addrinfo *, struct addrinfo **)) \
    X(gethostbyname, struct hostent *, (const char *)) \
    X(gethostbyname2, struct hostent *, (const char *, int)) \
    X(gethostbyname_r, int, (const char *, struct hostent *, char *, size_t, struct hostent **, int *)) \
    X(gethostbyname2_r, int, (const char *, int, struct hostent *, char *, size_t, struct hostent **, int *)) \
    X(fork, pid_t, (void)) \
    X(daemon, int, (int, int)) \
    X(posix_spawn, int, \
      (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], \
       char *const[])) \
    X(posix_spawnp, int, \
      (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], \
       char *const[])) \
    X(execve, int, (const char *, char *const[], char *const[])) \
    X(execv, int, (const char *, char *const[])) \
    X(execvp, int, (const char *, char *const[])) \
    X(execvpe, int, (const char *, char *const[], char *const[])) \
    X(execveat, int, (int, const char *, char *const[], char *const[], int)) \
    X(fexecve, int, (int, char *const[], char *const[])) \
    X(_exit, void, (int)) \
    X(_Exit, void, (int)) \
    X(prctl, int, (int, ...))

static long with_errno(long result) {
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

static ssize_t raw_read(int fd, void *to, size_t n) { return with_errno(RAW(SYS_read, fd, to, n, 0, 0)); }
static ssize_t raw_write(int fd, const void *from, size_t n) { return with_errno(RAW(SYS_write, fd, from, n, 0, 0)); }
static ssize_t raw_readv(int fd, const struct iovec *to, int n) { return with_errno(RAW(SYS_readv, fd, to, n, 0, 0)); }
static ssize_t raw_writev(int fd, const struct iovec *from, int n) {
    return with_errno(RAW(SYS_writev, fd, from, n, 0, 0));
}
static int raw_close(int fd) { return (int)with_errno(RAW(SYS_close, fd, 0, 0, 0, 0)); }
static int raw_dup(int fd) { return (int)with_errno(RAW(SYS_dup, fd, 0, 0, 0, 0)); }
static int raw_dup2(int fd, int to) { return (int)with_errno(RAW(SYS_dup2, fd, to, 0, 0, 0)); }
static int raw_dup3(int fd, int to, int flags) { return (int)with_errno(RAW(SYS_dup3, fd, to, flags, 0, 0)); }

#define DECLARE(name, result, parameters) result(*name) parameters;
static struct {
    BASIC_FUNCTIONS(DECLARE)
    OTHER_FUNCTIONS(DECLARE)
} real = {
#define RAW_FIRST(name, result, parameters) .name = raw_##name,
    BASIC_FUNCTIONS(RAW_FIRST)
#undef RAW_FIRST
};
#undef DECLARE

/* Read by the assembler code of hooks/process.h; 0 until found. */
__attribute__((used)) static long (*real_syscall)(long, ...);

/* Resolves all functions together before the program runs: a look-up inside a hook would take the loader's lock.
 * Functions that this libc lacks stay as they are, since no linked program calls them. */
static void find_real(void) {
    void *found;
#define FIND(name, result, parameters) \
    found = dlsym(RTLD_NEXT, #name); \
    if (found) real.name = (__typeof__(real.name))found;
    BASIC_FUNCTIONS(FIND)
    OTHER_FUNCTIONS(FIND)
#undef FIND
    real_syscall = (__typeof__(real_syscall))dlsym(RTLD_NEXT, "syscall");
    /* Hides this library's errors from the program. */
    dlerror();
}

#endif
