// The example of csprof (Froyd, Mellor-Crummey and Fowler 2005): a and b call c CALLS times each, and a
// call by a takes twice as long. COST is the length of a call by b.
#include <stdlib.h>

static volatile unsigned sink;

__attribute__((noinline)) void c(long cost)
{
	for (long i = 0; i < cost; i++)
		sink = sink * 3 + 1;
}

__attribute__((noinline)) void a(long calls, long cost)
{
	for (long i = 0; i < calls; i++)
		c(2 * cost);
	sink++;
}

__attribute__((noinline)) void b(long calls, long cost)
{
	for (long i = 0; i < calls; i++)
		c(cost);
	sink++;
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 1, cost = argc > 2 ? atol(argv[2]) : 1;

	a(calls, cost);
	b(calls, cost);
	return 0;
}
