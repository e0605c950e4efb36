/* Name lookups: only their duration is recorded. The resolver's own sockets are inside libc. */

static void resolved(uint64_t begin, const char *name, int result) {
    int saved = errno;
    struct record record = {.kind = KIND_RESOLVED, .calls = (uint32_t)result, .begin = begin};
    record.resolved.end = ticks();
    size_t length = 0;
    while (name && name[length]) length++;
    /* The end of a long name is more specific than its start. */
    if (length > NAME_BYTES - 1) {
        name += length - (NAME_BYTES - 1);
        length = NAME_BYTES - 1;
    }
    for (size_t i = 0; i < length; i++) record.resolved.name[i] = name[i];
    push(&record);
    errno = saved;
}

HOOK int getaddrinfo(const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints,
                     struct addrinfo **restrict found) {
    ENSURE_STARTED();
    uint64_t begin = active ? ticks() : 0;
    int result = real.getaddrinfo(name, service, hints, found);
    resolved(begin, name, result);
    return result;
}

HOOK struct hostent *gethostbyname(const char *name) {
    ENSURE_STARTED();
    uint64_t begin = active ? ticks() : 0;
    struct hostent *found = real.gethostbyname(name);
    resolved(begin, name, found ? 0 : h_errno);
    return found;
}

HOOK struct hostent *gethostbyname2(const char *name, int family) {
    ENSURE_STARTED();
    uint64_t begin = active ? ticks() : 0;
    struct hostent *found = real.gethostbyname2(name, family);
    resolved(begin, name, found ? 0 : h_errno);
    return found;
}

/* ERANGE: the caller retries with a larger buffer. */
HOOK int gethostbyname_r(const char *restrict name, struct hostent *restrict entry, char *restrict buffer, size_t n,
                         struct hostent **restrict found, int *restrict error) {
    ENSURE_STARTED();
    uint64_t begin = active ? ticks() : 0;
    int result = real.gethostbyname_r(name, entry, buffer, n, found, error);
    if (result != ERANGE) resolved(begin, name, *found ? 0 : *error);
    return result;
}

HOOK int gethostbyname2_r(const char *restrict name, int family, struct hostent *restrict entry, char *restrict buffer,
                          size_t n, struct hostent **restrict found, int *restrict error) {
    ENSURE_STARTED();
    uint64_t begin = active ? ticks() : 0;
    int result = real.gethostbyname2_r(name, family, entry, buffer, n, found, error);
    if (result != ERANGE) resolved(begin, name, *found ? 0 : *error);
    return result;
}
