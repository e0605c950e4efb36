/* Client and server for the trials of agents and manager. The client makes exchanges that differ from each other, and
 * records them.
 *
 *   talker serve PORT..                                  responds on 127.0.0.1 until it is killed; the kernel chooses
 *                                                        a port for 0
 *   talker client ACCOUNT EXCHANGES RATE CLOSED PORT..   makes EXCHANGES exchanges, RATE per second, and writes them
 *                                                        to ACCOUNT
 *
 * A request begins with its own length and the response's, four bytes each. Exchange n has LOW + n % WIDE bytes in the
 * request and 1 + n / WIDE bytes in the response, so the sizes of any two exchanges of a process differ. Every eighth
 * connection goes to the port CLOSED, which has no listener, and every eighth carries no bytes; with CLOSED 0 no
 * connection is refused. The account is collected in memory and written at the end: lines of CSV, times of
 * CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOW = 8, WIDE = 1009, MAX_BYTES = 64 * 1024, BURSTS_PER_SECOND = 10, MAX_EXCHANGES_PER_CONNECTION = 24, MAX_FILES = 65536 };

static char zeros[MAX_BYTES];

static void fail(const char *what) {
    perror(what);
    exit(9);
}

static struct sockaddr_in at_port(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return to;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- the server: one thread; the state of each connection's request is indexed by the descriptor */

struct request_state {
    uint32_t head[2];
    unsigned have; /* received bytes of the head */
    long left;     /* bytes of the request still to come */
};

static struct request_state *states;

/* Returns 0 if the connection has ended. */
static int serve_one(int fd) {
    char buffer[MAX_BYTES];
    struct request_state *state = &states[fd];
    for (;;) {
        ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return 0;
        for (ssize_t used = 0; used < got;) {
            if (state->have < sizeof state->head) {
                ((char *)state->head)[state->have++] = buffer[used++];
                if (state->have == sizeof state->head) state->left = (long)state->head[0] - LOW;
            } else {
                ssize_t take = got - used < state->left ? got - used : state->left;
                used += take;
                state->left -= take;
            }
            if (state->have == sizeof state->head && state->left == 0) {
                state->have = 0;
                if (state->head[1] > MAX_BYTES || send(fd, zeros, state->head[1], MSG_NOSIGNAL) != state->head[1]) return 0;
            }
        }
    }
}

static int serve(int count, char **ports) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max > MAX_FILES) files.rlim_max = MAX_FILES;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    states = calloc(files.rlim_cur, sizeof *states);
    int poll = epoll_create1(0), listeners = 0, yes = 1;
    if (!states || poll < 0) fail("epoll_create1");
    char *listens = calloc(files.rlim_cur, 1);
    for (; listeners < count; listeners++) {
        struct sockaddr_in own = at_port(atoi(ports[listeners]));
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0 || listen(fd, 4096) < 0) fail("listen");
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        socklen_t length = sizeof own;
        getsockname(fd, (struct sockaddr *)&own, &length);
        printf("port %d\n", ntohs(own.sin_port));
        listens[fd] = 1;
    }
    puts("listening");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (listens[fd]) {
                int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
                if (accepted < 0) continue;
                setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                states[accepted] = (struct request_state){.have = 0};
                struct epoll_event event = {.events = EPOLLIN, .data.fd = accepted};
                epoll_ctl(poll, EPOLL_CTL_ADD, accepted, &event);
            } else if (!serve_one(fd)) {
                close(fd);
            }
        }
    }
    return 0;
}

/* ---- the client */

struct line {
    const char *kind;
    long connection, exchange, last, port, sent, received;
    int64_t begun, ended;
};

static struct line *account;
static long lines;

static void pause_until(int64_t at) {
    struct timespec to = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &to, NULL) == EINTR) {
    }
}

static void exchange(int fd, long n, struct line *line) {
    static char request[LOW + WIDE], response[MAX_BYTES];
    line->sent = LOW + n % WIDE;
    line->received = 1 + n / WIDE;
    uint32_t head[2] = {(uint32_t)line->sent, (uint32_t)line->received};
    memcpy(request, head, sizeof head);
    line->begun = now_ns();
    if (send(fd, request, line->sent, MSG_NOSIGNAL) != line->sent) fail("send");
    for (long got = 0; got < line->received;) {
        ssize_t more = recv(fd, response, line->received - got, 0);
        if (more <= 0) fail("recv");
        got += more;
    }
    line->ended = now_ns();
}

static int client(const char *file, long exchanges, long rate, int closed, int count, char **ports) {
    if (1 + exchanges / WIDE > MAX_BYTES) fail("too many exchanges");
    account = calloc(2 * exchanges + 100, sizeof *account);
    if (!account) fail("calloc");
    long each = (rate + BURSTS_PER_SECOND - 1) / BURSTS_PER_SECOND, done = 0, connection = 0;
    int64_t step = 1000000000LL * each / rate, begin = now_ns();
    int fd = -1, yes = 1;
    long left = 0, place = 0, port = 0;
    while (done < exchanges) {
        pause_until(begin + step * (done / each));
        for (long burst = 0; burst < each && done < exchanges;) {
            if (fd < 0) {
                int is_closed = closed && connection % 8 == 3, is_unused = connection % 8 == 6;
                port = is_closed ? closed : atoi(ports[connection % count]);
                struct sockaddr_in to = at_port(port);
                struct line *line = &account[lines];
                *line = (struct line){.connection = connection, .exchange = -1, .last = 1, .port = port, .begun = now_ns()};
                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (fd < 0) fail("socket");
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                int refused = connect(fd, (struct sockaddr *)&to, sizeof to) < 0;
                if (refused != is_closed || (refused && errno != ECONNREFUSED)) fail("connect");
                if (is_closed || is_unused) {
                    close(fd);
                    fd = -1;
                    line->kind = is_closed ? "refused" : "unused";
                    line->ended = now_ns();
                    lines++;
                    connection++;
                    continue;
                }
                left = 1 + connection * 7 % MAX_EXCHANGES_PER_CONNECTION;
                place = 0;
            }
            struct line *line = &account[lines++];
            *line = (struct line){.kind = "exchange", .connection = connection, .exchange = place++, .port = port};
            exchange(fd, done++, line);
            burst++;
            if (--left == 0 || done == exchanges) {
                line->last = 1;
                close(fd);
                fd = -1;
                connection++;
            }
        }
    }
    char writing[4096];
    snprintf(writing, sizeof writing, "%s.part", file);
    FILE *out = fopen(writing, "w");
    if (!out) fail(writing);
    fprintf(out, "pid,kind,connection,exchange,last,port,sent,received,begun_ns,ended_ns\n");
    for (long i = 0; i < lines; i++) {
        struct line *l = &account[i];
        fprintf(out, "%d,%s,%ld,%ld,%ld,%ld,%ld,%ld,%lld,%lld\n", getpid(), l->kind, l->connection, l->exchange, l->last, l->port,
                l->sent, l->received, (long long)l->begun, (long long)l->ended);
    }
    if (fclose(out) != 0 || rename(writing, file) != 0) fail(file);
    return 0;
}

int main(int count, char **words) {
    if (count > 2 && strcmp(words[1], "serve") == 0) return serve(count - 2, words + 2);
    if (count > 6 && strcmp(words[1], "client") == 0)
        return client(words[2], atol(words[3]), atol(words[4]), atoi(words[5]), count - 6, words + 6);
    fprintf(stderr, "talker serve PORT.. | client ACCOUNT EXCHANGES RATE CLOSED PORT..\n");
    return 2;
}
