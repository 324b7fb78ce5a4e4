/* matrix ROUNDS: solves a system of linear equations by LU decomposition; few calls, long loops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 300 };
static double a[SIZE][SIZE], x[SIZE];

static __attribute__((noinline)) void fill(void) {
    unsigned state = 1;
    for (int i = 0; i < SIZE * SIZE; i++) {
        state = state * 1664525 + 1013904223;
        a[i / SIZE][i % SIZE] = state / 4294967296.0 + (i / SIZE == i % SIZE) * SIZE;
    }
    for (int i = 0; i < SIZE; i++) x[i] = i;
}

static __attribute__((noinline)) void decompose(void) {
    for (int step = 0; step < SIZE; step++)
        for (int row = step + 1; row < SIZE; row++) {
            double factor = a[row][step] /= a[step][step];
            for (int at = step + 1; at < SIZE; at++) a[row][at] -= factor * a[step][at];
        }
}

static __attribute__((noinline)) void solve(void) {
    for (int row = 0; row < SIZE; row++)
        for (int at = 0; at < row; at++) x[row] -= a[row][at] * x[at];
    for (int row = SIZE - 1; row >= 0; row--) {
        for (int at = row + 1; at < SIZE; at++) x[row] -= a[row][at] * x[at];
        x[row] /= a[row][row];
    }
}

static __attribute__((noinline)) double check(void) {
    double sum = 0;
    for (int times = 0; times < 40; times++)
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++) sum += fabs(a[j][i]) * x[j];
    return sum;
}

int main(int count, char **words) {
    double sum = 0;
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        fill();
        decompose();
        for (int times = 0; times < 20; times++) solve();
        sum += check();
    }
    return printf("%g\n", sum) < 0;
}
