/* The process itself: fork, exec, exit, and system call filters. */

HOOK pid_t fork(void) {
    ENSURE_STARTED();
    uint32_t image = image_state->image, pid = image_state->pid;
    /* Before the fork, so that the child's connections are marked as shared too. */
    uint32_t number = active ? ADD(&forks, 1) + 1 : 0;
    pid_t child = real.fork();
    if (child == 0 && active) {
        int saved = errno;
        self.pushing = false;
        child_started(image, pid, number);
        errno = saved;
    }
    return child;
}

HOOK pid_t __fork(void) __attribute__((alias("fork")));

/* Forks inside libc, and replaces descriptors 0 to 2 by /dev/null. */
HOOK int daemon(int stay, int keep) {
    ENSURE_STARTED();
    uint32_t image = image_state->image, pid = image_state->pid;
    int result = real.daemon(stay, keep);
    int saved = errno;
    if (active && result == 0 && !image_state->image) child_started(image, pid, 0);
    if (!keep)
        for (int fd = 0; fd < 3; fd++) forget_stale(fd);
    errno = saved;
    return result;
}

static bool contains(const char *text, const char *part) {
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && text[i] == part[i]) i++;
        if (!part[i]) return true;
    }
    return false;
}

static bool starts_with(const char *text, const char *part) {
    while (*part)
        if (*text++ != *part++) return false;
    return true;
}

static bool has_library(char *const environment[]) {
    for (; environment && *environment; environment++)
        if (starts_with(*environment, "LD_PRELOAD=") && contains(*environment, "libyamabiko_tap.so")) return true;
    return false;
}

/* Reports the next program, in as many records as its path needs. `begin` precedes the program's own first record. */
static void executing(uint64_t begin, uint32_t pid, const char *path, char *const environment[]) {
    struct record record = {.kind = KIND_EXECUTING, .connection = pid, .begin = begin};
    uint8_t preloaded = has_library(environment) ? FLAG_PRELOADED : 0;
    size_t length = 0;
    while (path[length]) length++;
    if (length > PATH_PART_BYTES * PATH_PARTS) {
        path += length - PATH_PART_BYTES * PATH_PARTS;
        length = PATH_PART_BYTES * PATH_PARTS;
    }
    for (uint32_t part = 0; part == 0 || length; part++) {
        size_t n = length < PATH_PART_BYTES ? length : PATH_PART_BYTES;
        for (size_t i = 0; i < PATH_PART_BYTES; i++) record.path[i] = i < n ? path[i] : 0;
        path += n;
        length -= n;
        record.calls = part;
        record.flags = preloaded | (length ? 0 : FLAG_LAST_PART);
        push(&record);
    }
}

/* Before exec. A child that shares the parent's memory reports only the program's name, in the parent's ring,
 * while the parent's thread waits. */
static void about_to_exec(const char *path, char *const environment[]) {
    if (!active || LOAD(&sandboxed)) return;
    int saved = errno;
    bool is_own = is_own_process();
    if (is_own)
        report_open_connections();
    else
        ADD(&forks, 1); /* the vfork child holds the connections, and exec passes them on */
    executing(ticks(), (uint32_t)RAW(SYS_getpid, 0, 0, 0, 0, 0), path ? path : "", environment);
    if (is_own) release(&self);
    errno = saved;
}

HOOK int execve(const char *path, char *const arguments[], char *const environment[]) {
    ENSURE_STARTED();
    about_to_exec(path, environment);
    return real.execve(path, arguments, environment);
}
HOOK int execv(const char *path, char *const arguments[]) {
    ENSURE_STARTED();
    about_to_exec(path, environ);
    return real.execv(path, arguments);
}
HOOK int execvp(const char *file, char *const arguments[]) {
    ENSURE_STARTED();
    about_to_exec(file, environ);
    return real.execvp(file, arguments);
}
HOOK int execvpe(const char *file, char *const arguments[], char *const environment[]) {
    ENSURE_STARTED();
    about_to_exec(file, environment);
    return real.execvpe(file, arguments, environment);
}
HOOK int execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags) {
    ENSURE_STARTED();
    about_to_exec(path, environment);
    return real.execveat(folder, path, arguments, environment, flags);
}
HOOK int fexecve(int fd, char *const arguments[], char *const environment[]) {
    ENSURE_STARTED();
    about_to_exec("", environment);
    return real.fexecve(fd, arguments, environment);
}

/* The variants with an argument list: collected on the stack, as libc does. `arguments[n]` is the closing NULL.
 * The header requires a first argument, but some programs omit it. */
#define COLLECT_ARGUMENTS(first) \
    const char *volatile first_argument = first; \
    va_list list; \
    va_start(list, first); \
    size_t n = first_argument ? 1 : 0; \
    if (first_argument) \
        while (va_arg(list, char *)) n++; \
    va_end(list); \
    char *arguments[n + 1]; \
    arguments[0] = (char *)(uintptr_t)first_argument; \
    va_start(list, first); \
    for (size_t i = 1; i <= n; i++) arguments[i] = va_arg(list, char *);

HOOK int execl(const char *path, const char *first, ...) {
    COLLECT_ARGUMENTS(first)
    va_end(list);
    return execv(path, arguments);
}
HOOK int execlp(const char *file, const char *first, ...) {
    COLLECT_ARGUMENTS(first)
    va_end(list);
    return execvp(file, arguments);
}
HOOK int execle(const char *path, const char *first, ...) {
    COLLECT_ARGUMENTS(first)
    char **environment = va_arg(list, char **);
    va_end(list);
    return execve(path, arguments, environment);
}

HOOK int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                     char *const environment[restrict]) {
    ENSURE_STARTED();
    pid_t created = 0;
    /* The real call stores the number before a handler of SIGCHLD can run. */
    pid_t *to = pid ? pid : &created;
    uint64_t begin = active ? ticks() : 0;
    int result = real.posix_spawn(to, path, actions, attributes, arguments, environment);
    /* The child may hold the connections. */
    if (result == 0 && active) ADD(&forks, 1);
    if (result == 0 && active) executing(begin, (uint32_t)*to, path, environment);
    return result;
}
HOOK int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                      char *const environment[restrict]) {
    ENSURE_STARTED();
    pid_t created = 0;
    /* The real call stores the number before a handler of SIGCHLD can run. */
    pid_t *to = pid ? pid : &created;
    uint64_t begin = active ? ticks() : 0;
    int result = real.posix_spawnp(to, file, actions, attributes, arguments, environment);
    /* The child may hold the connections. */
    if (result == 0 && active) ADD(&forks, 1);
    if (result == 0 && active) executing(begin, (uint32_t)*to, file, environment);
    return result;
}

/* Reports open connections. From now on every call is reported immediately, since the process may end at any time. */
static void about_to_exit(void) {
    if (!active || !is_own_process()) return;
    int saved = errno;
    if (LOAD(&piece_ticks)) {
        report_open_connections();
        STORE(&piece_ticks, 0);
    }
    /* A shell script runs a thousand processes: their slots must be free before the collector detects their end. */
    release(&self);
    errno = saved;
}

HOOK __attribute__((noreturn)) void _exit(int status) {
    ENSURE_STARTED();
    about_to_exit();
    real._exit(status);
    __builtin_unreachable();
}
HOOK __attribute__((noreturn)) void _Exit(int status) {
    ENSURE_STARTED();
    about_to_exit();
    real._Exit(status);
    __builtin_unreachable();
}

/* A filter may kill the program for a system call of this library: the library makes none from here on. Strict mode
 * also forbids the cycle counter, so recording ends. */
__attribute__((used)) static void about_to_filter(long mode) {
    ENSURE_STARTED();
    if (!active) return;
    STORE(&header->filtered, 1);
    STORE(&sandboxed, 1);
    if (mode != SECCOMP_MODE_STRICT_) return;
    uint32_t end = LOAD(&descriptors_end);
    for (uint32_t fd = 0; fd < end; fd++)
        if (LOAD(&descriptors[fd])) STORE(&descriptors[fd], IGNORED);
    active = false;
}

HOOK int prctl(int option, ...) {
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    ENSURE_STARTED();
    if (option == PR_SET_SECCOMP) about_to_filter((long)a);
    return real.prctl(option, a, b, c, d);
}

__attribute__((used)) static void uring_created(void) {
    ENSURE_STARTED();
    if (active) count_aside(&uring_setups);
}

__attribute__((used)) static void start_for_syscall(void) {
    start();
}

/* syscall(3): few numbers are checked, then it jumps to libc with the stack unchanged: a C frame in between would
 * break a clone whose child has another stack. 317 seccomp (operation 0 is strict mode, 1 a filter), 425
 * io_uring_setup, 157 prctl (22 PR_SET_SECCOMP), 3 close, 436 close_range. Other calls bypass the hooks, and show
 * in the kernel's counters. */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    cmpq $3, %rdi\n"
        "    je 8f\n"
        "    cmpq $317, %rdi\n"
        "    je 6f\n"
        "    cmpq $436, %rdi\n"
        "    je 9f\n"
        "    cmpq $425, %rdi\n"
        "    je 2f\n"
        "    cmpq $157, %rdi\n"
        "    jne 3f\n"
        "    cmpl $22, %esi\n"
        "    je 7f\n"
        "3:  movq real_syscall(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    jz 4f\n"
        "    jmp *%rax\n"
        "8:  movl %esi, %edi\n"
        "    jmp close_by_syscall\n"
        "9:  movl %esi, %edi\n"
        "    movl %edx, %esi\n"
        "    movl %ecx, %edx\n"
        "    jmp close_range_by_syscall\n"
        "6:  cmpl $1, %esi\n"
        "    ja 3b\n"
        "    leal 1(%rsi), %r11d\n"
        "    jmp 1f\n"
        "7:  movl %edx, %r11d\n"
        "1:  leaq about_to_filter(%rip), %rax\n"
        "    jmp 5f\n"
        "2:  leaq uring_created(%rip), %rax\n"
        "    jmp 5f\n"
        "4:  leaq start_for_syscall(%rip), %rax\n"
        "5:  pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rcx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %r8\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %r9\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movl %r11d, %edi\n"
        "    call *%rax\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r9\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r8\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rcx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    movq real_syscall(%rip), %rax\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size syscall, .-syscall\n");

static __attribute__((constructor)) void on_load(void) {
    ENSURE_STARTED();
}

static __attribute__((destructor)) void on_unload(void) {
    about_to_exit();
}
