/* floor RATE STACK COMMAND...: runs a command while the kernel samples all CPUs RATE times per second
 * into rings that no process reads, each sample with STACK bytes of the user stack (0: the kernel's
 * call chain by frame pointers instead; none: no stack). This is the least cost of any profiler that
 * samples in the kernel. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int opened(int cpu, unsigned rate, const char *stack_mode) {
    unsigned stack = (unsigned)atoi(stack_mode);
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    attr.freq = 1;
    attr.sample_freq = rate;
    attr.exclude_idle = 1;
    attr.write_backward = 1;
    attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                       PERF_SAMPLE_CPU | PERF_SAMPLE_IP;
    if (strcmp(stack_mode, "none") != 0) attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
    if (stack != 0) {
        attr.exclude_callchain_user = 1;
        attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
        attr.sample_regs_user = 0x00ff01ff; /* the general-purpose registers of x86-64 */
        attr.sample_stack_user = stack;
    }
    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

int main(int count, char **words) {
    if (count < 4) {
        fputs("usage: floor RATE STACK COMMAND...\n", stderr);
        return 2;
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < cpus; cpu++) {
        int event = opened(cpu, (unsigned)atoi(words[1]), words[2]);
        size_t length = (size_t)sysconf(_SC_PAGESIZE) + (8 << 20);
        /* A read-only mapping: the kernel overwrites the oldest records when the ring is full. */
        if (event < 0 || mmap(0, length, PROT_READ, MAP_SHARED, event, 0) == MAP_FAILED) {
            perror("floor");
            return 1;
        }
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(words[3], words + 3);
        perror(words[3]);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
