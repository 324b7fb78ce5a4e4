"""Writes a C program with a random tree of functions, of which each name gives its caller's: `f_0_2` is called by `f_0` only.

The functions have frames of all kinds: arrays, over-aligned locals, alloca, VLAs, arguments on the stack, vectors, structures by value,
switches, calls through pointers, variable arguments, calls that never return. No assembly, no recursion, no tail calls.

usage: program.py SEED FUNCTIONS
"""

import random
import sys

random.seed(int(sys.argv[1]))
FUNCTIONS = int(sys.argv[2])
DEPTH = 9

HEADER = """
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __clang__
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noinline, noclone, noipa))
#endif
typedef double vector __attribute__((vector_size(32)));
struct large { long words[9]; };
volatile long seen;
volatile int zero;
static void *volatile kept;
static void keep(void *memory) { kept = memory; }
ALONE __attribute__((noreturn)) static void leave(long status) { printf("%ld", status); exit((int)status); }
"""

# Statements of a body, by the feature they test. `N` is replaced by a random size, `E` by a random alignment.
FEATURES = {
    "array": "volatile char array[N]; array[x & 15] = x; x += array[0];",
    "pages": "volatile char pages[N * 41]; for (int i = 0; i < N * 41; i += 1000) pages[i] = x; x += pages[0];",
    "aligned": "volatile char aligned[64] __attribute__((aligned(E))); aligned[x & 63] = 1; x += aligned[3];",
    "alloca": "char *block = alloca(16 + (x & 255)); memset(block, (int)x, 16); keep(block); x += block[3];",
    "vla": "volatile long vla[2 + (x & 31)]; vla[1] = x; x += vla[1] & 7;",
    "vector": "vector v = {x, seen, 3, 4}; keep(&v); v = v * v + 1.5; x += (long)v[x & 3];",
    "loop": "double d[N]; keep(d); for (int i = 0; i < N; i++) d[i] = i * x; for (int i = 0; i < N; i++) x += (long)d[i] & 3;",
    "copy": "struct large copy = {{x, 2, 3, seen}}; keep(&copy); x += copy.words[x & 3];",
    "switch": "switch ((unsigned)x % 9) { case 0: x += 3; seen++; break; case 1: x ^= seen; break; case 2: x = x * 7 + seen; break;"
    " case 3: if (zero) return x; x -= seen; break; case 4: x |= 1; seen += x; break; case 5: x += seen * 3; break;"
    " case 6: seen = x; break; case 7: x = ~x; break; default: x += 9; }",
    "leave": "if (zero) leave(x);",
    "abort": "if (__builtin_expect(zero, 0)) { seen = x; puts(\"no\"); abort(); }",
    "many": "long r1 = x * 3, r2 = x ^ 5, r3 = x * 7, r4 = x ^ 11, r5 = x * 13, r6 = seen;",
    "double": "double number = x; number = number * 1.5 + seen; x += (long)(number / 3);",
    "jump": "static jmp_buf place; if (zero) { if (setjmp(place)) x++; }",
}
# The calls of a function and their parameters; `ARG` is filled in.
FORMS = {
    "plain": ("long a1", "", "x"),
    "seven": ("long a1, long a2, long a3, long a4, long a5, long a6, long a7, long a8", "x += a7 * a8 + a6;", "x, 1, 2, x, 4, 5, x + 6, 7"),
    "vectors": ("long a1, vector a2, vector a3, long a4, long a5, long a6, long a7, long a8, long a9", "x += (long)a2[1] + a9;",
                "x, (vector){1, 2, 3, 4}, (vector){x, x, x, x}, 4, 5, 6, 7, 8, 9"),
    "structure": ("long a1, struct large a2", "x += a2.words[3];", "x, (struct large){{1, 2, 3, x}}"),
    "variable": ("long a1, ...", "va_list list; va_start(list, a1); x += va_arg(list, long); va_end(list);", "x, 2L, 3L, 4L, 5L, 6L, 7L, 8L"),
}

declarations, bodies = [], []
count = 0


def spin():
    return f"for (long i = 0; i < {random.choice([100, 300, 600])}; i++) {{ x = x * 2862933555777941757L + 3; if (zero) x++; }}"


def generate(name, form, depth):
    """Adds a function and its callees, depth first."""
    global count
    count += 1
    callees = []
    if depth < DEPTH:
        callees = [f"{name}_{i}" for i in range(random.choice([1, 1, 2, 2, 3]))]
    features = random.sample(sorted(FEATURES), random.randint(1, 5))
    parameters, use, _ = FORMS[form]
    size, alignment = random.choice([16, 40, 136, 1000]), random.choice([32, 64, 64, 128, 4096])
    lines = ["long x = a1 & 0xffff;", use]
    for feature in features:
        lines.append(FEATURES[feature].replace("N", str(size)).replace("E", str(alignment)))
    early = [line for line in lines if line]
    forms = {}
    calls = []
    for callee in callees:
        if count + len(forms) >= FUNCTIONS:
            break
        forms[callee] = random.choice(["plain"] * 6 + ["seven", "seven", "vectors", "structure", "variable"])
        call = f"x += {callee}({FORMS[forms[callee]][2]});"
        way = random.randint(0, 9)
        if way == 0:
            call = f"for (int i = 0; i < 2 + zero; i++) {call}"
        elif way == 1:
            call = f"{{ long (*volatile pointer)({FORMS[forms[callee]][0]}) = {callee}; x += pointer({FORMS[forms[callee]][2]}); }}"
        elif way == 2:
            call = f"if (!zero) {call} else seen++;"
        calls.append(call)
        if random.random() < 0.3:
            calls.append("x ^= seen;")
    if not calls or random.random() < 0.3:
        calls.append(spin())
    if "many" in features:
        calls.append("x += r1 ^ r2 ^ r3 ^ r4 ^ r5 ^ r6;")
    if "array" in features:
        calls.append("x += array[x & 15];")
    calls.append("seen = x; return x;")
    declarations.append(f"ALONE long {name}({parameters});")
    bodies.append(f"ALONE long {name}({parameters}) {{\n    " + "\n    ".join(early + calls) + "\n}")
    for callee, callee_form in forms.items():
        generate(callee, callee_form, depth + 1)


generate("f", "plain", 0)
print(HEADER, "\n".join(declarations), "\n".join(bodies), sep="\n")
# Runs for that number of milliseconds of CPU time, and never returns from `forever`.
body = random.choice(["aligned", "array", "vla", "double"])
print(f"""ALONE __attribute__((noreturn)) static void forever(long end) {{
    long x = end & 7;
    {FEATURES[body].replace("N", "40").replace("E", "64")}
    while (clock() <= end) x += f(x);
    exit((int)(x & zero));
}}
int main(int count, char **words) {{
    long end = count > 1 ? atol(words[1]) * (CLOCKS_PER_SEC / 1000) : 0;
    void (*volatile pointer)(long) = forever;
    if ({random.choice(["zero", "!zero"])}) forever(end);
    pointer(end);
}}""")
