// ten [CALLS [PHASE]]: ten functions with known shares of the time, for comparisons. SLOWER is the number
// of one of them that does a tenth more work.
//
// The functions are called at random: a program that repeats the same work in a fixed time can run in
// step with the clock that samples it. With PHASE they are called in sequence, PHASE calls each: a
// program of phases.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifndef SLOWER
#define SLOWER 0
#endif

// Each step uses the result of the previous one, so that the compiler cannot remove it. The functions
// differ in a constant, so that the compiler cannot merge them.
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
        // The generator of Knuth's MMIX: the same sequence in each run.
        random = random * 6364136223846793005 + 1442695040888963407;
        sum += functions[phase ? i / phase % 10 : (random >> 33) % 10](random);
    }
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
