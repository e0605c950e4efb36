/* Finds this user's ring: its file, or the collector that creates it. Included by process.h, after `read_status`. */
#ifndef YAMABIKO_FIND_H
#define YAMABIKO_FIND_H

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* The collector responds within a millisecond. This is the maximum wait of a program for its user's first ring. */
#define RING_REQUEST_TIMEOUT_NS 200000000ull

/* Opens a ring of this user; -errno if there is none. Another user's file is rejected, even if root may open it:
 * its owner could truncate it, which would end this program. */
static long open_ring(const char *path, uint64_t *bytes) {
    long fd = RAW(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0, 0);
    if (fd < 0) return fd;
    struct stat file;
    long result = RAW(SYS_fstat, fd, &file, 0, 0, 0);
    if (result == 0 && S_ISREG(file.st_mode) && file.st_uid == (uint32_t)RAW(SYS_geteuid, 0, 0, 0, 0, 0) &&
        !(file.st_mode & 077)) {
        *bytes = (uint64_t)file.st_size;
        return fd;
    }
    RAW(SYS_close, fd, 0, 0, 0, 0);
    return -EACCES;
}

/* Appends `name` to a path with enough space, and `number` unless it is ~0. */
static void append_name(char *to, const char *name, uint32_t number) {
    while (*name) *to++ = *name++;
    if (number != ~0u) {
        char digits[10];
        size_t n = 0;
        do digits[n++] = (char)('0' + number % 10);
        while (number /= 10);
        while (n) *to++ = digits[--n];
    }
    *to = 0;
}

/* Requests a ring from the collector, which responds with the user's number as it sees users (different in a user
 * namespace). The wait is short: if the collector does not respond, the program is not recorded. `path` is that of
 * the socket. */
static bool request_ring(const char *path, uint32_t *user) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    for (size_t i = 0; path[i]; i++) {
        if (i >= sizeof to.sun_path - 1) return false;
        to.sun_path[i] = path[i];
    }
    /* The loader has made none of the calls below: a filter may kill the program for them. */
    struct status status;
    memset(&status, 0, sizeof status);
    if (!read_status(&status) || status.filters) return false;
    long fd = RAW(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0);
    if (fd < 0) return false;
    bool has_response = false;
    if (RAW(SYS_connect, fd, &to, sizeof to, 0, 0) == 0) {
        uint64_t until = nanoseconds() + RING_REQUEST_TIMEOUT_NS;
        for (uint64_t now = until - RING_REQUEST_TIMEOUT_NS; !has_response && now < until; now = nanoseconds()) {
            struct pollfd waits = {.fd = (int)fd, .events = POLLIN};
            long ready = RAW(SYS_poll, &waits, 1, (until - now) / 1000000 + 1, 0, 0);
            if (ready < 0 && ready != -EINTR) break;
            if (ready > 0) {
                has_response = raw6(SYS_recvfrom, fd, (long)user, sizeof *user, MSG_DONTWAIT, 0, 0) == sizeof *user;
                break;
            }
        }
    }
    RAW(SYS_close, fd, 0, 0, 0, 0);
    return has_response;
}

/* Opens the ring of this program's user in the folder YAMABIKO_TAP: `ring` for the tap's user, otherwise
 * `ring.USER`, which the collector creates on request. On any failure the program runs without being recorded. */
static long find_ring(uint64_t *bytes) {
    const char *folder = getenv("YAMABIKO_TAP");
    if (!folder) return -ENOENT;
    char path[4096];
    size_t length = 0;
    while (folder[length] && length < sizeof path - 32) {
        path[length] = folder[length];
        length++;
    }
    if (folder[length]) return -ENOENT;
    append_name(path + length, "/ring", ~0u);
    long fd = open_ring(path, bytes);
    if (fd != -EACCES) return fd;
    append_name(path + length, "/ring.", (uint32_t)RAW(SYS_geteuid, 0, 0, 0, 0, 0));
    fd = open_ring(path, bytes);
    if (fd != -ENOENT && fd != -EACCES) return fd;
    uint32_t user;
    append_name(path + length, "/ask", ~0u);
    if (!request_ring(path, &user)) return -ENOENT;
    append_name(path + length, "/ring.", user);
    return open_ring(path, bytes);
}

#endif
