// storm PROCESSES WORKERS: starts short processes, from several workers at a time. Prints their number and
// their CPU time in nanoseconds by the kernel's accounting.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void brief(void) {
    for (long i = 0; i < 200000; i++) sink = sink + 1;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int processes = atoi(words[1]), workers = atoi(words[2]);
    for (int worker = 0; worker < workers; worker++)
        if (fork() == 0) {
            int ended = 0;
            for (int i = worker; i < processes; i += workers) {
                pid_t child = fork();
                if (child == 0) {
                    brief();
                    _exit(0);
                }
                ended += child > 0 && waitpid(child, NULL, 0) == child;
            }
            _exit(ended == (processes - worker + workers - 1) / workers ? 0 : 1);
        }
    int failed = 0, status;
    while (wait(&status) > 0) failed += status != 0;
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    long long ns = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
                   (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
    printf("processes %d\ncpu_ns %lld\n", processes, ns);
    return failed != 0;
}
