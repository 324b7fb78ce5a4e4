/* contexts ROUNDS: csprof's Figure 1. A function's time depends on its argument, and so on who
 * calls it: two calls from a take as long as four from b. */
#include <stdlib.h>

enum { HUGE_COUNT = 1 << 24 };

__attribute__((noipa)) void d(void) {}
__attribute__((noipa)) void c(int n) {
    for (int i = 0; i < HUGE_COUNT / n; i++) d();
}
__attribute__((noipa)) void b(void (*f)(int)) {
    f(2), f(2), f(2), f(2);
    __asm__ volatile(""); /* no call is a jump */
}
__attribute__((noipa)) void a(void (*f)(int)) {
    f(1), f(1);
    __asm__ volatile("");
}

int main(int count, char **words) {
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) a(c), b(c);
    return 0;
}
