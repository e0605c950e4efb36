/* What is put between a program and libc, by LD_PRELOAD, to hear what its sockets felt.
 *
 *     the program -> a hook here -> the same function of libc
 *                      '-> a record in the thread's ring, when a connection's direction changes
 *
 * What holds in every hook: the real call is made, once, with the arguments given; its result and errno are handed on
 * as they are. Nothing is allocated, locked, printed or waited for. A hook may be called in a signal handler, before
 * main, after exit has begun, and in a child that shares its parent's memory. What cannot be followed is counted or
 * left to the account that the kernel gives at close; what has no room is dropped and counted.
 *
 * Read ring.h first, then connection.h (`moved` is the heart), then the hooks. One translation unit, so that a hook for
 * a file is two loads and a jump.
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
