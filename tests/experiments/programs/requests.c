/* requests PAIRS EXCHANGES: runs PAIRS client and server processes. Each client exchanges EXCHANGES
 * requests of one byte with its server through a TCP connection on this machine, as netperf's TCP_RR
 * does. A process that exits prints a line: its name, process id, and the seconds of user and system
 * time that it used, by getrusage(2). */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void finish(const char *name) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%s %d %ld.%06ld %ld.%06ld\n", name, getpid(), used.ru_utime.tv_sec,
           (long)used.ru_utime.tv_usec, used.ru_stime.tv_sec, (long)used.ru_stime.tv_usec);
    exit(0);
}

/* Some work in user mode for each request. */
static unsigned digest(unsigned value) {
    for (int i = 0; i < 500; i++) value = value * 1664525 + 1013904223;
    return value;
}

static void client(struct sockaddr_in at, int exchanges) {
    prctl(PR_SET_NAME, "client");
    int one = 1, line = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(line, (struct sockaddr *)&at, sizeof at) != 0) exit(1);
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    unsigned char byte = 1;
    while (exchanges-- > 0) {
        byte = (unsigned char)digest(byte);
        if (write(line, &byte, 1) != 1 || read(line, &byte, 1) != 1) exit(1);
    }
    close(line);
    finish("client");
}

static void server(int listener) {
    prctl(PR_SET_NAME, "server");
    int one = 1, line = accept(listener, 0, 0);
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    unsigned char byte;
    while (read(line, &byte, 1) == 1)
        if (write(line, &byte, 1) != 1) break;
    finish("server");
}

int main(int count, char **words) {
    if (count < 3) return 2;
    int pairs = atoi(words[1]), exchanges = atoi(words[2]), status = 0;
    for (int pair = 0; pair < pairs; pair++) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof at;
        if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
            getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
            perror("requests");
            return 1;
        }
        if (fork() == 0) server(listener);
        if (fork() == 0) client(at, exchanges);
        close(listener);
    }
    while (wait(&status) > 0)
        if (status != 0) return 1;
    return 0;
}
