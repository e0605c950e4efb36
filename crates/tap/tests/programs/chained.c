/* Another preloaded library, after the tap's: counts calls, and prints the count at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int reads;

ssize_t read(int fd, void *to, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    reads++;
    return next(fd, to, n);
}

__attribute__((destructor)) static void print_count(void) {
    printf("reads %d\n", reads);
}
