/* life ROUNDS: the game of life on a torus. */
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 256 };
static unsigned char cells[2][SIZE][SIZE];

static __attribute__((noinline)) int alive(int board, int row, int column) {
    return cells[board][row & (SIZE - 1)][column & (SIZE - 1)];
}

static __attribute__((noinline)) int neighbours(int board, int row, int column) {
    int sum = 0;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) sum += alive(board, row + i, column + j);
    return sum - alive(board, row, column);
}

static __attribute__((noinline)) int rule(int is_alive, int around) {
    return around == 3 || (is_alive && around == 2);
}

static void step(int board) {
    for (int row = 0; row < SIZE; row++)
        for (int column = 0; column < SIZE; column++)
            cells[!board][row][column] =
                rule(alive(board, row, column), neighbours(board, row, column));
}

int main(int count, char **words) {
    unsigned state = 7;
    for (int i = 0; i < SIZE * SIZE; i++)
        cells[0][i / SIZE][i % SIZE] = (state = state * 1664525 + 1013904223) >> 31;
    int rounds = count > 1 ? atoi(words[1]) : 1;
    for (int round = 0; round < rounds; round++) step(round & 1);
    return printf("%d\n", cells[rounds & 1][3][5]) < 0;
}
