// IDLE threads that wait and BUSY threads that compute, until the process is killed.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long turns;

static void *idle(void *none) {
    pause();
    return none;
}

static void *busy(void *none) {
    for (;;) turns++;
    return none;
}

int main(int count, char **words) {
    pthread_t thread;
    pthread_attr_t small;
    if (count < 3) return 1;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < atoi(words[1]); i++) pthread_create(&thread, &small, idle, 0);
    for (int i = 0; i < atoi(words[2]); i++) pthread_create(&thread, &small, busy, 0);
    pause();
    return 0;
}
