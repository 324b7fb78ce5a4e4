// Functions that execute a known number of rounds of the same loop, or touch a known number of new pages: prints
// both by function, without those of the functions that it calls, and the calls of the loops.
#include <stdio.h>
#include <sys/mman.h>

// At least a page of each architecture.
enum { PAGE = 65536, PAGES = 1000 };
static _Alignas(65536) char area[PAGES][PAGE];
static volatile int touched;

__attribute__((noinline)) void inner(long rounds) { for (volatile long i = 0; i < rounds; i++); }
__attribute__((noinline)) void outer(long rounds) {
    for (volatile long i = 0; i < 50000; i++);
    inner(rounds);
    inner(rounds);
    for (volatile long i = 0; i < 1; i++);
}

__attribute__((noinline)) void few(int pages) {
    for (volatile int i = 0; i < pages; i++) area[touched++][0] = 1;
}
__attribute__((noinline)) void many(int pages) {
    for (volatile int i = 0; i < pages; i++) area[touched++][0] = 1;
    few(pages / 2);
    for (volatile int i = 0; i < pages; i++) area[touched++][0] = 1;
}

int main(void) {
    madvise(area, sizeof area, MADV_NOHUGEPAGE);
    touched = 0;
    few(20);
    many(100);
    many(200);
    for (int i = 0; i < 100; i++) outer(30000);
    inner(500000);
    puts("few 170\nmany 600\ninner 6500000\nouter 5000100\ncalls.inner 201\ncalls.outer 100");
    return 0;
}
