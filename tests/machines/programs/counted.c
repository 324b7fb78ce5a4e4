// counted FILE EVENT COMMAND...: runs a command, and writes the count of a hardware event during its run to a file;
// nothing if the machine has no such counter. EVENT is a number of enum perf_hw_id.
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 4) return 2;
    struct perf_event_attr attr = {
        .size = sizeof attr, .type = PERF_TYPE_HARDWARE, .config = strtoul(words[2], NULL, 10),
        .disabled = 1, .inherit = 1, .enable_on_exec = 1,
    };
    int status = 0, counter = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        execvp(words[3], words + 3);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    unsigned long long counted = 0;
    FILE *file = fopen(words[1], "w");
    if (!file) return 1;
    if (counter >= 0 && read(counter, &counted, sizeof counted) == sizeof counted) fprintf(file, "%llu\n", counted);
    return fclose(file) || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}
