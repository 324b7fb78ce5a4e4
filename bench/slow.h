/* SLOW(units) burns time in the function that contains it: $SLOW is a list of NAME:STEPS, separated by
 * commas, with 1024ths of a step for each unit. Included before each source file. */
#ifndef SLOW
#include <stdlib.h>
#include <string.h>

static __attribute__((noinline, unused, cold)) long slow_steps(const char *name) {
    size_t length = strlen(name);
    for (const char *all = getenv("SLOW"); all && *all; all = strchr(all, ',') ? strchr(all, ',') + 1 : "")
        if (!strncmp(all, name, length) && all[length] == ':') return atol(all + length + 1);
    return 0;
}

static unsigned long slow_value __attribute__((unused)) = 1;

/* Orders all earlier and later instructions. */
#if defined __x86_64__
#define SLOW_FENCE(value) __asm__ volatile("lfence" : "+r"(value) : : "memory")
#else
#define SLOW_FENCE(value) __asm__ volatile("dsb sy\n\tisb" : "+r"(value) : : "memory")
#endif

/* The steps that are burnt at once, between fences: some 1.3 us. Without, steps can overlap with the code
 * around them: two in each call of internshrstr cost 1 % of its time, with fences 14 %. A deflate_slow that was
 * 14 % slower made longest_match 2 % faster, with a fence before and after its steps not. */
#define SLOW_STEPS 512L

/* Each step uses the result of the one before, so that the compiler cannot remove it. */
#define SLOW(units) do { \
    static long slow = -1, due; \
    if (__builtin_expect(slow < 0, 0)) slow = slow_steps(__func__); \
    due += slow * (units); \
    if (__builtin_expect(due >= 1024 * SLOW_STEPS, 0)) { \
        unsigned long value = slow_value; \
        SLOW_FENCE(value); \
        for (; due >= 1024; due -= 1024) value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9ul; \
        SLOW_FENCE(value); \
        slow_value = value; \
    } \
} while (0)
#endif
