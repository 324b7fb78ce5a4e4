// cycles ROUNDS: the shape of the second sample-analysis program of the uProfiler thesis (appendix
// B.2.2). All calls go through q, so that three call paths share it: a q d q x, b q e q y and
// c q f q z. Only x, y and z take time: once, twice and three times as much.
#include <cstdlib>

using Routine = void (*)();

[[gnu::noipa]] void q(Routine routine) {
    routine();
    asm volatile(""); // no call is a jump
}

#define SPINS(name, times)                                                                         \
    [[gnu::noipa]] void name() {                                                                   \
        for (int i = 0; i < (times); ++i) asm volatile("");                                        \
    }
SPINS(x, 5000000)
SPINS(y, 10000000)
SPINS(z, 15000000)

#define PASSES(name, routine)                                                                      \
    [[gnu::noipa]] void name() {                                                                   \
        q(routine);                                                                                \
        asm volatile("");                                                                          \
    }
PASSES(d, x)
PASSES(e, y)
PASSES(f, z)
PASSES(a, d)
PASSES(b, e)
PASSES(c, f)

int main(int count, char **words) {
    for (int round = count > 1 ? std::atoi(words[1]) : 1; round > 0; round--) {
        a();
        b();
        c();
    }
    return 0;
}
