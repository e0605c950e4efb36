/* The cost of a call: `cost ROUNDS`. Prints nanoseconds per call, one line per kind. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define TIME(name, rounds, call) \
    do { \
        double best = 1e18; \
        for (int pass = 0; pass < 9; pass++) { \
            double begin = now(); \
            for (long i = 0; i < (rounds); i++) { \
                call; \
            } \
            double each = (now() - begin) / (rounds); \
            if (each < best) best = each; \
        } \
        printf("%s %.1f\n", name, best); \
    } while (0)

static void pair(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) exit(1);
    getsockname(listener, (struct sockaddr *)&address, &length);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[0], (struct sockaddr *)&address, sizeof address)) exit(1);
    fds[1] = accept(listener, NULL, NULL);
    close(listener);
}

int main(int n, char **arguments) {
    long rounds = n > 1 ? atol(arguments[1]) : 100000;
    int fds[2];
    char buffer[1000] = {0};
    pair(fds);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    int null = open("/dev/null", O_RDWR);
    ssize_t result;
    TIME("eagain", rounds, result = read(fds[0], buffer, sizeof buffer));
    TIME("file", rounds, result = read(null, buffer, sizeof buffer));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event);
    TIME("poll", rounds, result = epoll_wait(epoll, &event, 1, 0));
    close(epoll);
    /* Back and forth: each call changes the direction at both ends. */
    TIME("exchange", rounds / 10, {
        result = write(fds[0], buffer, 100);
        result += read(fds[1], buffer, 100);
        result += write(fds[1], buffer, 100);
        result += read(fds[0], buffer, 100);
    });
    /* 16 reads of one run. */
    TIME("reads", rounds / 100, {
        result = write(fds[1], buffer, 1000);
        for (int i = 0; i < 16; i++) result += read(fds[0], buffer, 60);
        result += read(fds[0], buffer, 60);
    });
    TIME("connection", rounds / 100, {
        int more[2];
        pair(more);
        close(more[0]);
        close(more[1]);
    });
    return result == 12345;
}
