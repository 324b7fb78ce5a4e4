// Calls twenty functions CALLS times in all from eight threads, in rounds with a pause after each. Prints
// for each round of a function: its thread, its number, its calls, and CLOCK_MONOTONIC in ns before and after.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define FUNCTIONS 20
#define ROUNDS 8

#define F(n) \
	__asm__(".text\n.globl f" #n "\n.type f" #n ", @function\n" \
		"f" #n ": push %rbx\n pop %rbx\n ret\n.size f" #n ", .-f" #n "\n"); \
	void f##n(void);
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19)
static void (*const all[FUNCTIONS])(void) = {
	f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
};

static long calls_of_unit;

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void *work(void *thread)
{
	long number = (long)thread;

	for (int round = 0; round < ROUNDS; round++) {
		for (int f = 0; f < FUNCTIONS; f++) {
			// Different for each thread, function and round.
			long calls = calls_of_unit * (f + 1) * (number + 1) + round;
			unsigned long long before = now();

			for (long i = 0; i < calls; i++)
				all[f]();
			printf("%ld f%d %ld %llu %llu\n", syscall(SYS_gettid), f, calls, before, now());
		}
		usleep(300000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	// The sum over (f + 1) is 210, and over (number + 1) 36.
	long units = 210l * 36 * ROUNDS;
	pthread_t threads[THREADS];

	calls_of_unit = (argc > 1 ? atol(argv[1]) : units) / units;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
