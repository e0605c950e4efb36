/* The interposer: preloaded between a program and libc (LD_PRELOAD), it records the program's socket calls.
 *
 *     the program -> a hook here -> the same function of libc
 *                      '-> a record in the thread's ring, when a connection's direction changes
 *
  * Rules for every hook: it makes the real call once with the given arguments, and returns its result and errno
  * unchanged. It does not allocate, lock, print or wait. It may run in a signal handler, before main, after exit
  * has begun, and in a child that shares its parent's memory. Bytes that bypass the hooks show in the kernel's
  * counters at close; records without space in the ring are dropped and counted.
 *
 * Read ring.h first, then connection.h (the central function is `transferred`), then the hooks. One translation unit,
 * so that a hook that is called for a file costs two loads and a jump.
 */
#define _GNU_SOURCE
#include <stdarg.h>

#include "connection.h"

#define SECCOMP_MODE_STRICT_ 1

#include "hooks/transfer.h"

#include "hooks/names.h"
#include "hooks/program.h"
#include "hooks/setup.h"
#include "hooks/wait.h"
