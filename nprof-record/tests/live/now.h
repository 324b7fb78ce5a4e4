// The clock of the tests' programs.

#include <time.h>

// Returns the time in ns.
static inline long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
