// Allocates known amounts: prints the name of each function, the bytes allocated by it and those left at the end.
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept[1000];

__attribute__((noinline)) void keeps(int i) { kept[i] = malloc(1000); }

__attribute__((noinline)) void frees(int i) {
    void *volatile block = malloc(3000 + i % 2);
    free(block);
}

__attribute__((noinline)) void grows(void) {
    void *volatile block = calloc(10, 100);
    block = realloc(block, 5000);
    free(block);
}

int main(void) {
    for (int i = 0; i < 1000; i++) {
        keeps(i);
        frees(i);
        grows();
    }
    puts("keeps 1000000 1000000\nfrees 3000500 0\ngrows 6000000 0");
    return 0;
}
