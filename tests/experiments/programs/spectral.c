/* spectral ROUNDS: the spectral norm of a matrix; a small function computes each element. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 400 };

static __attribute__((noinline)) double element(int row, int column) {
    return 1.0 / ((row + column) * (row + column + 1) / 2 + row + 1);
}

static __attribute__((noinline)) void times(const double *in, double *out) {
    for (int row = 0; row < SIZE; row++) {
        out[row] = 0;
        for (int column = 0; column < SIZE; column++) out[row] += element(row, column) * in[column];
    }
}

static __attribute__((noinline)) void times_transposed(const double *in, double *out) {
    for (int row = 0; row < SIZE; row++) {
        out[row] = 0;
        for (int column = 0; column < SIZE; column++) out[row] += element(column, row) * in[column];
    }
}

int main(int count, char **words) {
    double u[SIZE], v[SIZE], w[SIZE];
    for (int i = 0; i < SIZE; i++) u[i] = 1;
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        times(u, w), times_transposed(w, v);
        times(v, w), times_transposed(w, u);
    }
    return printf("%f\n", sqrt(u[0] / v[0])) < 0;
}
