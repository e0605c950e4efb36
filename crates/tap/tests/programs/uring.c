/* Sends a request and receives the response through io_uring, by system calls without libc, like liburing: `uring
 * PORT`. Without io_uring, plain reads and writes bypass libc instead. Prints the number of received bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static int ring;
static struct io_uring_params sizes;
static char *submissions, *completions;
static struct io_uring_sqe *entries;

static unsigned *at(char *memory, unsigned offset) {
    return (unsigned *)(memory + offset);
}

static void *mapped(size_t bytes, long offset) {
    return (void *)call(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
}

static int create_ring(void) {
    ring = call(SYS_io_uring_setup, 4, (long)&sizes, 0, 0, 0, 0);
    if (ring < 0) return 0;
    submissions = mapped(sizes.sq_off.array + sizes.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    completions = mapped(sizes.cq_off.cqes + sizes.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    entries = mapped(sizes.sq_entries * sizeof *entries, IORING_OFF_SQES);
    return 1;
}

/* Executes one operation and waits for it. */
static long execute(int operation, int fd, void *buffer, unsigned length) {
    if (ring < 0) return call(operation == IORING_OP_SEND ? SYS_write : SYS_read, fd, (long)buffer, length, 0, 0, 0);
    unsigned *tail = at(submissions, sizes.sq_off.tail), mask = *at(submissions, sizes.sq_off.ring_mask);
    unsigned index = *tail & mask;
    memset(&entries[index], 0, sizeof entries[index]);
    entries[index].opcode = operation;
    entries[index].fd = fd;
    entries[index].addr = (unsigned long)buffer;
    entries[index].len = length;
    at(submissions, sizes.sq_off.array)[index] = index;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (call(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) return -1;
    unsigned *head = at(completions, sizes.cq_off.head);
    struct io_uring_cqe *cqes = (struct io_uring_cqe *)(completions + sizes.cq_off.cqes);
    long result = cqes[*head & *at(completions, sizes.cq_off.ring_mask)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int n, char **arguments) {
    static char request[] = "GET /20000 HTTP/1.0\r\n\r\n", response[4096];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(n > 1 ? atoi(arguments[1]) : 0)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fprintf(stderr, "%s\n", create_ring() ? "a ring" : "no ring");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) return 1;
    if (execute(IORING_OP_SEND, fd, request, sizeof request - 1) != sizeof request - 1) return 2;
    long sum = 0, received;
    while ((received = execute(IORING_OP_RECV, fd, response, sizeof response)) > 0) sum += received;
    close(fd);
    printf("%ld\n", sum);
    return received < 0 ? 3 : 0;
}
