// propagation ROUNDS: the shape of the first sample-analysis program of the uProfiler thesis
// (appendix B.2.1). Every routine does the same sums, each a number of times of its own; G works
// three times as long for E as for D, and calls H twice for D and once for E.
#include <cstdlib>

namespace {

volatile int sums[3] = {4, 19, 25};

#define WORK(times)                                                                                \
    for (int i = 0; i < (times); ++i) {                                                            \
        sums[0] = sums[0] + sums[1] + sums[2];                                                     \
        sums[1] = sums[0] + sums[1] - sums[2];                                                     \
        sums[2] = sums[0] - sums[1] - sums[2];                                                     \
    }

} // namespace

[[gnu::noipa]] void H() { WORK(100000) }

[[gnu::noipa]] void G(int times) {
    WORK(times)
    H();
    if (times == 200000) H();
    asm volatile(""); // no call is a jump
}

[[gnu::noipa]] void F() { WORK(750000) }

[[gnu::noipa]] void E() {
    WORK(500000)
    G(600000);
    asm volatile("");
}

[[gnu::noipa]] void D() {
    WORK(100000)
    G(200000);
    asm volatile("");
}

[[gnu::noipa]] void C() { WORK(500000) }

[[gnu::noipa]] void B() {
    WORK(3500000)
    E();
    F();
    asm volatile("");
}

[[gnu::noipa]] void A() {
    WORK(250000)
    C();
    D();
    asm volatile("");
}

int main(int count, char **words) {
    for (int round = count > 1 ? std::atoi(words[1]) : 1; round > 0; round--) {
        WORK(1000000)
        A();
        B();
    }
    return sums[0] == 1;
}
