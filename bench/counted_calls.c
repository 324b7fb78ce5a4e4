// Calls a function CALLS times, after a second in which tracers attach. Prints ns of CPU time for each
// call, the least of five rounds.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef IN_C
// For tracers that the compiler calls.
__attribute__((noinline)) void counted(void)
{
	__asm__ volatile("");
}
#else
__asm__(".text\n.globl counted\n.type counted, @function\n"
        "counted: push %rbx\n pop %rbx\n ret\n.size counted, .-counted\n");
void counted(void);
#endif

static long long cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 1;
	long long least = -1;
	struct timespec second = {.tv_sec = 1};

	nanosleep(&second, NULL);
	for (int round = 0; round < 5; round++) {
		long long start = cpu_ns(), used;

		for (long i = 0; i < calls; i++)
			counted();
		used = cpu_ns() - start;
		if (least < 0 || used < least)
			least = used;
	}
	printf("%lld\n", least / calls);
	return 0;
}
