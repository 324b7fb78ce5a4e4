// Functions with known CPU time: prints the name of each and its time in nanoseconds. One of them runs in a
// signal handler, one is called by the C library.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15 };

static volatile unsigned long sink;

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((noinline)) void spin(unsigned long rounds) {
    unsigned long x = rounds;
    for (unsigned long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005UL + i;
        __asm__ volatile("" : "+r"(x));
    }
    sink += x;
}

// Each calls spin() and does more after it, so that no call is a tail call.
__attribute__((noinline)) void heavy(void) { spin(4000000); sink++; }
__attribute__((noinline)) void medium(void) { spin(2000000); sink++; }
__attribute__((noinline)) void light(void) { spin(1000000); sink++; }

__attribute__((noinline)) void in_handler(int number) { spin(1000000); sink += number; }
__attribute__((noinline)) void signalled(void) { raise(SIGUSR1); sink++; }

static int compare(const void *a, const void *b) {
    spin(10000);
    return memcmp(a, b, sizeof(int));
}

__attribute__((noinline)) void sorted(void) {
    int numbers[32];
    for (int i = 0; i < 32; i++) numbers[i] = i * 7 % 32;
    qsort(numbers, 32, sizeof(int), compare);
    sink++;
}

int main(void) {
    struct { const char *name; void (*function)(void); long long ns; } parts[] = {
        {"heavy", heavy, 0}, {"medium", medium, 0}, {"light", light, 0},
        {"signalled", signalled, 0}, {"sorted", sorted, 0},
    };
    struct sigaction action = {.sa_handler = in_handler};
    sigaction(SIGUSR1, &action, NULL);
    int count = sizeof parts / sizeof *parts;
    for (int round = 0; round < ROUNDS; round++)
        for (int part = 0; part < count; part++) {
            long long start = cpu_ns();
            parts[part].function();
            parts[part].ns += cpu_ns() - start;
        }
    for (int part = 0; part < count; part++) printf("%s %lld\n", parts[part].name, parts[part].ns);
    return 0;
}
