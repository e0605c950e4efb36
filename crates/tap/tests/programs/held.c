/* A client with one open connection that executes commands from stdin, one word a line, with a line in response:
 * `held PORT [DESCRIPTOR]`.
 *
  * With HELD_PRELOAD it first sets a system call filter that allows everything, and executes itself with that
  * library: like a program in a container, started outside the tap. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(9);
}

static int connect_to(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
    return fd;
}

/* Sends a request and reads its response, which ends with ten letters `y`. */
static void exchange(int fd) {
    static const char request[] = "GET /10 HTTP/1.1\r\n\r\n", end[] = "yyyyyyyyyy";
    char response[4096];
    size_t all = 0;
    if (write(fd, request, sizeof request - 1) != sizeof request - 1) fail("write");
    while (all < 10 || memcmp(response + all - 10, end, 10)) {
        ssize_t n = read(fd, response + all, sizeof response - all);
        if (n <= 0) fail("read");
        all += (size_t)n;
    }
}

static void set_filter_and_exec(char **arguments, const char *library) {
    struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, filter};
    if (setenv("LD_PRELOAD", library, 1) || unsetenv("HELD_PRELOAD")) fail("setenv");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) fail("seccomp");
    execv(arguments[0], arguments);
    fail("exec");
}

int main(int n, char **arguments) {
    const char *library = getenv("HELD_PRELOAD");
    if (library) set_filter_and_exec(arguments, library);
    int port = n > 1 ? atoi(arguments[1]) : 0;
    int fd = n > 2 ? atoi(arguments[2]) : connect_to(port);
    char word[64];
    puts("ready");
    fflush(stdout);
    while (fgets(word, sizeof word, stdin)) {
        word[strcspn(word, "\n")] = 0;
        if (!strcmp(word, "ask")) {
            exchange(fd);
        } else if (!strcmp(word, "again")) {
            close(fd);
            fd = connect_to(port);
        } else if (!strcmp(word, "exec")) {
            char number[12];
            snprintf(number, sizeof number, "%d", fd);
            execl(arguments[0], arguments[0], arguments[1], number, (char *)NULL);
            fail("exec");
        } else if (!strcmp(word, "end")) {
            close(fd);
            return 0;
        }
        puts(word);
        fflush(stdout);
    }
    return 0;
}
