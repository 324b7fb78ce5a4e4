// Figure 1 of Froyd, Mellor-Crummey, Fowler: Low-overhead call path profiling of unmodified,
// optimized code (ICS 2005), with a quarter of the work. The calls of c by a take as long as those by
// b: half as many, twice as long each.
#define HUGE (1 << 26)
void d() {}
void c(int n) { int i; for (i = 0; i < HUGE / n; ++i) d(); }
void b(void (*f)(int)) { f(2); f(2); f(2); f(2); }
void a(void (*f)(int)) { f(1); f(1); }
int main() { a(c); b(c); return 0; }
