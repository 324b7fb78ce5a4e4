// Runs at the end of a deep recursion, of about 600 KiB of stack.
#include <string.h>

static volatile unsigned long sink;

__attribute__((noinline)) void bottom(void) {
    for (long i = 0; i < 100000000; i++) sink = sink + 1;
}

__attribute__((noinline)) int descend(int depth) {
    volatile char room[96];
    memset((char *)room, depth, sizeof room);
    if (depth) return descend(depth - 1) + room[3];
    bottom();
    return room[5];
}

int main(void) { return descend(4000) == -1; }
