/* System calls that bypass libc: they leave errno unchanged, are not cancellation points, and call no other hook. */
#ifndef YAMABIKO_RAW_H
#define YAMABIKO_RAW_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Shared with other threads, or with a signal handler of this one. */
#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define SWAP(p, v) __atomic_exchange_n((p), (v), __ATOMIC_RELAXED)
#define SET_BITS(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define CLEAR_BITS(p, v) __atomic_fetch_and((p), ~(v), __ATOMIC_RELAXED)
#define REPLACE(p, old, new) \
    __atomic_compare_exchange_n((p), (old), (new), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* The kernel's result: -errno for an error. */
static inline long raw6(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define RAW(n, a, b, c, d, e) raw6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

static inline uint64_t tsc(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
