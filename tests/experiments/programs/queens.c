/* queens ROUNDS: a search by recursion; nearly all of it is calls. */
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 10 };
static int column[SIZE];

static __attribute__((noinline)) int attacks(int row, int other) {
    int apart = column[row] - column[other];
    return apart == 0 || abs(apart) == row - other;
}

static __attribute__((noinline)) int is_safe(int row) {
    for (int other = 0; other < row; other++)
        if (attacks(row, other)) return 0;
    return 1;
}

static int place(int row) {
    if (row == SIZE) return 1;
    int found = 0;
    for (column[row] = 0; column[row] < SIZE; column[row]++)
        if (is_safe(row)) found += place(row + 1);
    return found;
}

int main(int count, char **words) {
    int found = 0;
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) found += place(0);
    return printf("%d\n", found) < 0;
}
