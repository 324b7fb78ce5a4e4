// Ten functions that take turns at random, for comparisons: what each takes of the time is
// known. With SLOWER, the number of one of them, that does a tenth more.
//
// With a second argument they take turns one after the other, each for so many calls: a program of
// phases.
//
// At random, since a program that does the same over and over, each time for so long, can come to
// run in step with the clock that samples it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifndef SLOWER
#define SLOWER 0
#endif

// Each step takes the result of the one before, so that none can be left out; the functions
// differ in a number, or the compiler would make one of them.
#define FUNCTION(name, number, steps)                                         \
    __attribute__((noinline)) static uint64_t name(uint64_t x) {              \
        for (int i = 0; i < (steps) / 10 * (SLOWER == number ? 11 : 10); ++i) \
            x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9 + number;                \
        return x;                                                             \
    }

FUNCTION(one, 1, 400)
FUNCTION(two, 2, 600)
FUNCTION(three, 3, 800)
FUNCTION(four, 4, 1000)
FUNCTION(five, 5, 3000)
FUNCTION(six, 6, 1000)
FUNCTION(seven, 7, 1000)
FUNCTION(eight, 8, 800)
FUNCTION(nine, 9, 700)
FUNCTION(ten, 10, 700)

int main(int argc, char **argv) {
    uint64_t (*const functions[])(uint64_t) = {one, two, three, four, five,
                                               six, seven, eight, nine, ten};
    int calls = argc > 1 ? std::atoi(argv[1]) : 100000;
    int phase = argc > 2 ? std::atoi(argv[2]) : 0;
    uint64_t random = 1, sum = 0;
    for (int i = 0; i < calls; ++i) {
        // The generator of Knuth's MMIX: the same turns every time.
        random = random * 6364136223846793005 + 1442695040888963407;
        sum += functions[phase ? i / phase % 10 : (random >> 33) % 10](random);
    }
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
