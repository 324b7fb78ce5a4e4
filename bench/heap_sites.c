/* Holds half of the blocks of 12 functions, and releases the others. The bytes of each function vary by half a per
   cent between runs; those of `grown` grow by the argument in per cent. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long state;
static void **kept;

static unsigned next(void) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return state >> 33;
}

static void hold(long bytes, long mean) {
    bytes += bytes / 200 * ((long)(next() % 2001) - 1000) / 1000;
    for (long sum = 0, number = 0; sum < bytes; number++) {
        long size = mean / 2 + next() % mean;
        sum += size;
        void **block = malloc(size < 8 ? 8 : size);
        if (number % 2) {
            *block = kept;
            kept = block;
        } else {
            free(block);
        }
    }
    __asm__ volatile("");
}

#define SITE(name, bytes, mean) __attribute__((noinline)) static void name(long more) { hold((bytes) / 100 * (100 + more), mean); __asm__ volatile(""); }
SITE(one, 1000000, 40)
SITE(two, 2000000, 80)
SITE(three, 3000000, 100)
SITE(four, 4000000, 300)
SITE(five, 5000000, 1000)
SITE(six, 6000000, 60)
SITE(seven, 7000000, 5000)
SITE(eight, 8000000, 20000)
SITE(nine, 20000000, 100000)
SITE(ten, 20000000, 500)
SITE(eleven, 20000000, 3000)
SITE(grown, 40000000, 2000)

int main(int count, char **words) {
    if (count != 2) return 2;
    state = (unsigned long)getpid() * 2654435761ul;
    for (int round = 0; round < 10; round++) next();
    one(0), two(0), three(0), four(0), five(0), six(0), seven(0), eight(0), nine(0), ten(0), eleven(0);
    grown(atol(words[1]));
    return 0;
}
