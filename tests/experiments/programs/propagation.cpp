// The first sample-analysis program of Lessard: uProfiler (2005), appendix B.2.1: all functions do
// the same work in loops of different lengths. G works three times as long for E as for D, but
// calls H twice for D and once for E.
int a = 4, b = 19, c = 25, d = 99, e = 34, f = 7;

#define WORK(times)                                                                                \
    for (int i = 0; i < (times); ++i) {                                                            \
        a += a + b + c + d + e + f;                                                                \
        b += a + b + c + d + e + f;                                                                \
        c += a - b - c - d - e - f;                                                                \
    }

void H() { WORK(100000) }
void G(int times) {
    WORK(times)
    H();
    if (times == 200000) H();
}
void F() { WORK(750000) }
void E() { WORK(500000) G(600000); }
void D() { WORK(100000) G(200000); }
void C() { WORK(500000) }
void B() { WORK(3500000) E(); F(); }
void A() { WORK(250000) C(); D(); }

int main() {
    for (int iter = 0; iter < 20; ++iter) {
        WORK(1000000)
        A();
        B();
    }
}
