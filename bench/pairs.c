/* Pairs of malloc(64) and free in several threads, each DEPTH calls deep. Prints the CPU time of a pair in ns, the
   mean of the threads, and the time of the whole. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long pairs;
static int depth;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double run(int level) {
    if (level > 0) {
        volatile double result = run(level - 1);
        return result;
    }
    double start = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (long index = 0; index < pairs; index++) {
        void *volatile block = malloc(64);
        free(block);
    }
    return (seconds(CLOCK_THREAD_CPUTIME_ID) - start) * 1e9 / pairs;
}

static void *body(void *result) {
    *(double *)result = run(depth);
    return 0;
}

int main(int count, char **words) {
    pthread_t threads[64];
    double results[64], sum = 0;
    if (count != 4) return 2;
    int number = atoi(words[1]);
    pairs = atol(words[2]);
    depth = atoi(words[3]);
    if (number < 1 || number > 64 || pairs < 1) return 2;
    double start = seconds(CLOCK_MONOTONIC);
    for (int index = 0; index < number; index++) pthread_create(&threads[index], 0, body, &results[index]);
    for (int index = 0; index < number; index++) pthread_join(threads[index], 0), sum += results[index];
    printf("%.3f %.3f\n", sum / number, (seconds(CLOCK_MONOTONIC) - start) * 1e9 / pairs / number);
    return 0;
}
