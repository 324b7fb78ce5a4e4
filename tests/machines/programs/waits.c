// Functions that wait, and one that runs: prints the name of each and its time in nanoseconds.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void pause_ms(int ms) {
    struct timespec time = {.tv_nsec = ms * 1000000L};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) void sleeps(void) { pause_ms(20); sink++; }

__attribute__((noinline)) void reads(void) {
    char byte;
    sink += read(ends[0], &byte, 1);
}

__attribute__((noinline)) void locks(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    sink++;
}

// Ends the waits of reads() and of locks() after 30 and 40 ms.
static void *other(void *step) {
    if (step) {
        pause_ms(30);
        sink += write(ends[1], "", 1);
    } else {
        pthread_mutex_lock(&lock);
        sink += write(ends[1], "", 1);
        pause_ms(40);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    long long ns[3] = {0};
    if (pipe(ends)) return 1;
    for (int round = 0; round < 20; round++) {
        long long start = now_ns();
        sleeps();
        ns[0] += now_ns() - start;
        pthread_t thread;
        pthread_create(&thread, NULL, other, ends);
        start = now_ns();
        reads();
        ns[1] += now_ns() - start;
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, other, NULL);
        // The other thread has the lock.
        char byte;
        sink += read(ends[0], &byte, 1);
        start = now_ns();
        locks();
        ns[2] += now_ns() - start;
        pthread_join(thread, NULL);
    }
    printf("sleeps %lld\nreads %lld\nlocks %lld\n", ns[0], ns[1], ns[2]);
    return 0;
}
