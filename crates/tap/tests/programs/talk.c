/* Programs to run under the tap, in one file: `talk MODE PORT [ARGUMENT]`. Each prints what it received, so that
 * runs with and without the tap can be compared. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int port;
static const char request[] = "GET /20000 HTTP/1.0\r\n\r\n";
extern char **environ;

static void fail(const char *what) {
    perror(what);
    exit(9);
}

static struct sockaddr_in server(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const char *address = getenv("TALK_SERVER");
    to.sin_addr.s_addr = address ? inet_addr(address) : htonl(INADDR_LOOPBACK);
    return to;
}

static int connect_to_server(void) {
    struct sockaddr_in to = server();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
    return fd;
}

/* Reads to the end; returns the number of bytes. */
static long read_to_end(int fd) {
    char to[4096];
    long sum = 0, n;
    while ((n = read(fd, to, sizeof to)) > 0) sum += n;
    if (n < 0) fail("read");
    return sum;
}

static long exchange(int fd) {
    if (write(fd, request, sizeof request - 1) != sizeof request - 1) fail("write");
    return read_to_end(fd);
}

static long talk(void) {
    int fd = connect_to_server();
    long received = exchange(fd);
    close(fd);
    return received;
}

static long nonblocking(void) {
    struct sockaddr_in to = server();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t length = sizeof error;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) fail("connect");
    poll(&wait, 1, -1);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error) fail("SO_ERROR");
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0) fail("send");
    char buffer[1000];
    long sum = 0;
    for (;;) {
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n == 0) break;
        if (n > 0) {
            sum += n;
        } else if (errno == EAGAIN) {
            wait.events = POLLIN;
            poll(&wait, 1, -1);
        } else {
            fail("recv");
        }
    }
    close(fd);
    return sum;
}

static void *thread_exchange(void *unused) {
    (void)unused;
    return (void *)talk();
}

static long threads(int n) {
    pthread_t *created = calloc(n, sizeof *created);
    long sum = 0;
    for (int i = 0; i < n; i++)
        if (pthread_create(&created[i], NULL, thread_exchange, NULL)) fail("pthread_create");
    for (int i = 0; i < n; i++) {
        void *received;
        pthread_join(created[i], &received);
        sum += (long)received;
    }
    free(created);
    return sum;
}

static long with_vfork(void) {
    int fd = connect_to_server(), status;
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 0);
        close(fd);
        close(1);
        execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    long received = exchange(fd);
    close(fd);
    return received + (WEXITSTATUS(status) == 3 ? 0 : 1000000);
}

static long with_spawn(void) {
    int fd = connect_to_server(), status;
    char *arguments[] = {"sh", "-c", "exit 3", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, fd);
    pid_t child;
    if (posix_spawnp(&child, "sh", &actions, NULL, arguments, environ)) fail("posix_spawnp");
    waitpid(child, &status, 0);
    long received = exchange(fd);
    close(fd);
    return received + (WEXITSTATUS(status) == 3 ? 0 : 1000000);
}

static long duplicate_descriptors(void) {
    int fd = connect_to_server(), second = dup(fd), third = fcntl(fd, F_DUPFD_CLOEXEC, 50), fourth = dup2(fd, 60);
    close(fd);
    /* The descriptor number may be reused now. */
    int other = open("/dev/null", O_RDONLY);
    char unused;
    if (read(other, &unused, 1) != 0) fail("/dev/null");
    if (write(second, request, sizeof request - 1) < 0) fail("write");
    long received = read_to_end(third);
    close(other);
    close(second);
    close(fourth);
    dup2(open("/dev/null", O_RDONLY), third);
    return received;
}

static long messages(void) {
    int fd = connect_to_server(), pipes[2];
    char request_parts[3][8] = {"/2", "000 HTT", "P/1.0\r\n"}, buffers[3][100];
    struct iovec parts[3] = {{request_parts[0], 1}, {request_parts[1], 7}, {request_parts[2], 7}};
    if (dprintf(fd, "%s ", "GET") != 4) fail("dprintf");
    if (writev(fd, parts, 1) != 1) fail("writev");
    parts[0].iov_base = &request_parts[0][1];
    if (pwritev2(fd, parts, 1, -1, 0) != 1) fail("pwritev2");
    if (send(fd, "0", 1, 0) != 1) fail("send");
    struct msghdr message = {.msg_iov = &parts[1], .msg_iovlen = 1};
    if (sendmsg(fd, &message, 0) != 7) fail("sendmsg");
    struct mmsghdr several[2] = {{.msg_hdr = {.msg_iov = &parts[2], .msg_iovlen = 1}}};
    if (sendmmsg(fd, several, 1, 0) != 1) fail("sendmmsg");
    FILE *file = tmpfile();
    fputs("\r\n", file);
    fflush(file);
    off_t from = 0;
    if (sendfile(fd, fileno(file), &from, 2) != 2) fail("sendfile");
    fclose(file);
    long sum = 0;
    char peeked[10];
    if (recv(fd, peeked, sizeof peeked, MSG_PEEK) <= 0) fail("peek");
    for (int i = 0; i < 3; i++) parts[i] = (struct iovec){buffers[i], sizeof buffers[i]};
    long n = readv(fd, parts, 3);
    if (n > 0) sum += n;
    n = preadv2(fd, parts, 1, -1, 0);
    if (n > 0) sum += n;
    n = recvmsg(fd, &message, 0);
    if (n > 0) sum += n;
    several[0].msg_hdr.msg_iov = &parts[2];
    several[1].msg_hdr = (struct msghdr){.msg_iov = &parts[0], .msg_iovlen = 1};
    n = recvmmsg(fd, several, 2, MSG_WAITFORONE, NULL);
    for (int i = 0; i < n; i++) sum += several[i].msg_len;
    n = recvfrom(fd, buffers[0], 50, 0, NULL, NULL);
    if (n > 0) sum += n;
    if (pipe(pipes) < 0) fail("pipe");
    n = splice(fd, NULL, pipes[1], NULL, 500, 0);
    if (n > 0) sum += n;
    sum += read_to_end(fd);
    close(fd);
    return sum;
}

/* Concurrent reader and writer: the server echoes. */
enum { DUPLEX = 3000000 };

static void *writes(void *argument) {
    int fd = (int)(long)argument;
    char from[3000];
    memset(from, 'x', sizeof from);
    for (int i = 0; i < DUPLEX / 3000; i++)
        for (size_t at = 0; at < sizeof from;) {
            ssize_t n = write(fd, from + at, sizeof from - at);
            if (n < 0) fail("write");
            at += n;
        }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static long duplex(void) {
    int fd = connect_to_server();
    pthread_t writer;
    if (write(fd, "ECHO\r\n\r\n", 8) != 8) fail("write");
    pthread_create(&writer, NULL, writes, (void *)(long)fd);
    long received = read_to_end(fd);
    pthread_join(writer, NULL);
    close(fd);
    return received;
}

static long with_stdio(void) {
    FILE *stream = fdopen(connect_to_server(), "r+");
    char line[200];
    long sum = 0;
    fputs(request, stream);
    fflush(stream);
    while (fgets(line, sizeof line, stream)) sum += strlen(line);
    fclose(stream);
    /* The descriptor's number is reused for another connection. */
    return sum + talk();
}

/* Reads bypass libc. */
static long bypass_libc(void) {
    int fd = connect_to_server();
    char to[4096];
    long sum = 0, n;
    if (write(fd, request, sizeof request - 1) < 0) fail("write");
    while ((n = syscall(SYS_read, fd, to, sizeof to)) > 0) sum += n;
    close(fd);
    return sum;
}

static long pass_descriptor(void) {
    int pair[2], fd = connect_to_server(), status;
    char byte = 'x';
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) fail("socketpair");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        close(pair[0]);
        if (recvmsg(pair[1], &message, 0) != 1) fail("recvmsg");
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        printf("%ld\n", exchange(fd));
        exit(0);
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, 0) != 1) fail("sendmsg");
    close(fd);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* A server that forks: prints its port, serves n connections with a child each. */
static long serve_forking(int n) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in local = {.sin_family = AF_INET};
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof local;
    if (bind(listener, (struct sockaddr *)&local, sizeof local) < 0 || listen(listener, 10) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&local, &length);
    printf("%d\n", ntohs(local.sin_port));
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) fail("accept");
        if (fork() == 0) {
            char to[100];
            long received = read(fd, to, sizeof to);
            if (write(fd, to, received) != received) fail("write");
            /* The last one exits without closing. */
            if (i) close(fd);
            if (i == 1) _exit(0);
            exit(0);
        }
        close(fd);
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}

/* A process created by a call without a hook. */
static long raw_fork(void) {
    int fd = connect_to_server(), status;
    if (write(fd, request, 5) != 5) fail("write");
    fflush(stdout);
    pid_t child = syscall(SYS_fork);
    if (child == 0) {
        if (write(fd, request + 5, sizeof request - 6) < 0) fail("write");
        printf("%ld\n", read_to_end(fd));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    close(fd);
    return 0;
}

/* An io_uring ring, created through libc's syscall, or attempted where the kernel forbids it. */
static long with_uring(void) {
    char parameters[120] = {0};
    long fd = syscall(SYS_io_uring_setup, 4, parameters);
    if (fd >= 0) syscall(SYS_close, fd);
    fd = connect_to_server();
    long received = exchange(fd);
    syscall(SYS_close, fd);
    fd = open("/dev/null", O_RDONLY);
    char byte;
    received += read(fd, &byte, 1);
    syscall(SYS_close_range, fd, fd, 0);
    return received;
}

/* Waits until the process is killed. */
static long wait_for_response(void) {
    char byte;
    return read(connect_to_server(), &byte, 1);
}

static int listening(struct sockaddr_in *local, int backlog) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *local;
    *local = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)local, length) < 0 || listen(listener, backlog) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *)local, &length);
    return listener;
}

/* A listener without accept: the last of several connects wait, the very last one for the socket's timeout. */
static long blocking_connects(void) {
    struct sockaddr_in local;
    int listener = listening(&local, 0), error = 0;
    for (int i = 0; i < 6; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(fd, (struct sockaddr *)&local, sizeof local) < 0 && errno != EINPROGRESS) fail("connect");
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval timeout = {.tv_usec = 300000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&local, sizeof local) < 0) error = errno;
    close(fd);
    printf("%d\n", error);
    fflush(stdout);
    if (port) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        connect(fd, (struct sockaddr *)&local, sizeof local);
    }
    close(listener);
    return error;
}

/* Opens this many connections, then one more after closing all. */
static long many(int n) {
    int *created = calloc(n, sizeof *created);
    long sum = 0;
    for (int i = 0; i < n; i++) created[i] = connect_to_server();
    for (int i = 0; i < n; i++) sum += exchange(created[i]);
    for (int i = 0; i < n; i++) close(created[i]);
    free(created);
    return sum + talk();
}

/* Both ends in one thread, and a record per call: exchange k sends k + 1 bytes and receives one. */
static long pingpong(int n) {
    static char buffer[100000];
    struct sockaddr_in local;
    int listener = listening(&local, 1), a = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(a, (struct sockaddr *)&local, sizeof local) < 0) fail("connect");
    int b = accept(listener, NULL, NULL);
    for (int k = 0; k < n; k++) {
        if (send(a, buffer, k + 1, 0) != k + 1 || recv(b, buffer, k + 1, MSG_WAITALL) != k + 1) fail("there");
        if (send(b, buffer, 1, 0) != 1 || recv(a, buffer, 1, 0) != 1) fail("back");
    }
    close(a);
    close(b);
    close(listener);
    return n;
}

/* getsockopt and other calls kill the program from here on. */
static void install_filter(int by_syscall) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockname, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    printf("filtered\n");
    fflush(stdout);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long result = by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                             : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (result < 0) fail("seccomp");
}

static long sandboxed(int by_syscall) {
    int fd = connect_to_server();
    install_filter(by_syscall);
    long received = exchange(fd);
    close(fd);
    return received;
}

/* Executes another program, which has the filter from its first instruction on. */
static long filtered(void) {
    char local[20];
    install_filter(0);
    snprintf(local, sizeof local, "%d", port);
    execl("/proc/self/exe", "talk", "plain", local, (char *)NULL);
    return -1;
}

/* Closes everything except the connection with the response. */
static long reuse_closed_descriptors(const char *output_path) {
    close(0);
    close(1);
    close(2);
    long received = talk();
    int fd = connect_to_server();
    received += exchange(fd);
    closefrom(0);
    fd = open(output_path, O_WRONLY | O_CREAT, 0600);
    char text[30];
    int n = snprintf(text, sizeof text, "%d %ld\n", fd, received);
    if (write(fd, text, n) != n) exit(8);
    close_range(0, ~0u, 0);
    return received;
}

static volatile sig_atomic_t alarms;
static int alarm_fd;

static void on_alarm(int signal) {
    (void)signal;
    int saved = errno;
    alarms++;
    if (write(alarm_fd, "x", 1) < 0) _exit(7);
    errno = saved;
}

/* A handler that writes to a socket while the program uses others. */
static long interrupted(void) {
    int echo = connect_to_server();
    if (write(echo, "ECHO\r\n\r\n", 8) != 8) fail("write");
    alarm_fd = echo;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct itimerspec interval = {{0, 200000}, {0, 200000}};
    timer_create(CLOCK_MONOTONIC, NULL, &timer);
    timer_settime(timer, 0, &interval, NULL);
    long sum = 0;
    for (int i = 0; i < 50; i++) sum += talk();
    timer_delete(timer);
    sigset_t block;
    sigfillset(&block);
    sigprocmask(SIG_BLOCK, &block, NULL);
    shutdown(echo, SHUT_WR);
    if (read_to_end(echo) != alarms) return -1;
    close(echo);
    return sum;
}

/* Connects before main, as other libraries do; errno must not change there either. */
static __attribute__((constructor)) void before_main(void) {
    errno = 77;
    const char *early = getenv("TALK_EARLY");
    if (early) {
        port = atoi(early);
        printf("early %ld %d\n", talk(), errno);
    }
}

/* Returns the number of wrong errno values. */
static long errnos(void) {
    char byte;
    int wrong = 0, fd = connect_to_server();
#define EXPECT(call, error) \
    do { \
        errno = 0; \
        if ((call) >= 0 || errno != (error)) { \
            wrong++; \
            printf("%s: %d\n", #call, errno); \
        } \
    } while (0)
    EXPECT(read(-1, &byte, 1), EBADF);
    EXPECT(read(1000000, &byte, 1), EBADF);
    EXPECT(write(fd, NULL, 5), EFAULT);
    EXPECT(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    EXPECT(close(-5), EBADF);
    EXPECT(dup2(-1, fd), EBADF);
    EXPECT(dup(-1), EBADF);
    EXPECT(accept(fd, NULL, NULL), EINVAL);
    EXPECT(connect(fd, NULL, 16), EFAULT);
    EXPECT(connect(fd, (struct sockaddr *)&byte, 0), EINVAL);
    EXPECT(shutdown(fd, 99), EINVAL);
    EXPECT(fcntl(-1, F_GETFL), EBADF);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, NULL, NULL), EFAULT);
    EXPECT(execl("/no/such", "x", (char *)NULL), ENOENT);
    EXPECT(execlp("no-such-program-at-all", "x", (char *)NULL), ENOENT);
    EXPECT(poll(NULL, 100, 0), EFAULT);
    errno = 5;
    struct sockaddr_in to = server();
    int other = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(other, (struct sockaddr *)&to, sizeof to) || errno != 5) wrong++;
    if (close(other) || errno != 5) wrong++;
    if (exchange(fd) <= 0 || close(fd) || errno != 5) wrong++;
    FILE *in_memory = fmemopen(&byte, 1, "r");
    errno = 5;
    if (fclose(in_memory) || errno != 5) wrong++;
    /* A port without a listener, twice with the same socket. */
    to.sin_port = htons(1);
    other = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(connect(other, (struct sockaddr *)&to, sizeof to), ECONNREFUSED);
    to = server();
    if (connect(other, (struct sockaddr *)&to, sizeof to) < 0) wrong++;
    if (exchange(other) <= 0) wrong++;
    close(other);
    /* Invalid memory, a listening socket, and AF_UNSPEC. */
    other = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(connect(other, (struct sockaddr *)1, 16), EFAULT);
    EXPECT(connect(other, (struct sockaddr *)&to, sizeof to - 1), EINVAL);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    errno = 5;
    if (connect(other, &none, sizeof none) || errno != 5) wrong++;
    if (connect(other, (struct sockaddr *)&to, sizeof to) || errno != 5) wrong++;
    if (exchange(other) <= 0) wrong++;
    close(other);
    other = listening(&to, 1);
    EXPECT(connect(other, (struct sockaddr *)&to, sizeof to), EISCONN);
    close(other);
    return wrong;
}

int main(int n, char **arguments) {
    const char *mode = n > 1 ? arguments[1] : "", *third = n > 3 ? arguments[3] : "0";
    if (n > 2) port = atoi(arguments[2]);
#define MODE(name, call) \
    if (!strcmp(mode, name)) { \
        printf("%ld\n", call); \
        return 0; \
    }
    MODE("plain", talk())
    MODE("nonblocking", nonblocking())
    MODE("threads", threads(atoi(third)))
    MODE("vfork", with_vfork())
    MODE("spawn", with_spawn())
    MODE("dups", duplicate_descriptors())
    MODE("messages", messages())
    MODE("duplex", duplex())
    MODE("stdio", with_stdio())
    MODE("round", bypass_libc())
    MODE("passes", pass_descriptor())
    MODE("serves", serve_forking(atoi(third)))
    MODE("raw-fork", raw_fork())
    MODE("waits", wait_for_response())
    MODE("knocks", blocking_connects())
    MODE("many", many(atoi(third)))
    MODE("pingpong", pingpong(atoi(third)))
    MODE("uring", with_uring())
    MODE("sandboxed", sandboxed(atoi(third)))
    MODE("filtered", filtered())
    MODE("closes", reuse_closed_descriptors(third))
    MODE("interrupted", interrupted())
    MODE("errnos", errnos())
    fprintf(stderr, "no mode %s\n", mode);
    return 2;
}
