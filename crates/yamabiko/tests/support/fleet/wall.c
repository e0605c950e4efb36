/* A wall clock that is wrong: for a process that has this in LD_PRELOAD, CLOCK_REALTIME is WALL_SHIFT_S seconds off (a whole number, may be
 * negative). A time namespace would not do: the kernel has none for this clock. The monotonic clocks stay right. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift_s(void) {
    const char *text = getenv("WALL_SHIFT_S");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += shift_s();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, at, zone);
    if (result == 0) at->tv_sec += shift_s();
    return result;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
