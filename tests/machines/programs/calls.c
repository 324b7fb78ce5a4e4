// Functions with known numbers of calls: prints the name and the calls of each.
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void work(int rounds) { for (int i = 0; i < rounds; i++) sink += i; }
// They begin with more than a jump target: probes are not set into loops.
__attribute__((noinline)) void often(void) { work(10); sink++; }
__attribute__((noinline)) void seldom(void) { work(20); sink++; }
// On x86-64 the probes take a single step: each has another instruction at its entry.
__attribute__((noinline)) void adds(void) { sink++; }
__attribute__((noinline)) unsigned long reads(const unsigned char *bytes) { return bytes[0] * 3u; }
__attribute__((noinline)) double floats(double a, double b) { return a * b; }
__attribute__((noinline)) long recursive(long depth) { return depth ? recursive(depth - 1) + sink : 1; }

int main(void) {
    for (int i = 0; i < 20000; i++) often();
    for (int i = 0; i < 300; i++) seldom();
    for (int i = 0; i < 100; i++) sink += recursive(9);
    for (int i = 0; i < 500; i++) sink += getppid();
    for (int i = 0; i < 700; i++) adds(), sink += reads((const unsigned char *)"x") + floats(i, 2);
    puts("often 20000\nseldom 300\nrecursive 1000\nadds 700\nreads 700\nfloats 700");
    return 0;
}
