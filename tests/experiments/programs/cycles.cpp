// The second sample-analysis program of Lessard: uProfiler (2005), appendix B.2.2, with a quarter of
// the work: three call cycles through q, which a call graph of all stacks merges into one.
void q(void (*function)()) { function(); }

#define SPIN(times) for (int i = 0; i < (times); ++i) {}
void x() { SPIN(2500000) }
void y() { SPIN(5000000) }
void z() { SPIN(7500000) }
void d() { q(x); }
void e() { q(y); }
void f() { q(z); }
void a() { q(d); }
void b() { q(e); }
void c() { q(f); }

int main() {
    for (int iter = 0; iter < 40; ++iter) {
        a();
        b();
        c();
    }
}
