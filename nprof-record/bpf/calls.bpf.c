// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The programs that count calls: an exact number for each function and followed thread, and a full
// perf sample of one call of each block, at random. And those that count an event by routine: by the
// counted functions that a thread has entered and not left.
//
// See waits.bpf.c for the way in which this file is compiled.

#include "kernel.h"

struct task_struct {
	int pid;
	int tgid;
} HIDDEN;

// The words that the recorder shares with the programs: `Setting` in src/perf/calls/data.rs.
enum {
	BEGIN,  // the start of the first slice; 0: not known yet
	EVERYONE,  // 1: all threads are followed
	FLOOR,  // the smallest block
	SHIFT,  // a block has this part of the calls of a slice: 1 / 2^SHIFT
	SERIALS,  // the last number of a thread
	MISSED_THREADS,  // those for which there was no room
	CPUS,
	SAMPLED,  // the samples so far
	PATHS,  // the last number of a path
	MISSED_ROUTINES,  // how often there was no room for a thread, a path, or both
	UNREADABLE,  // the times that the event could not be read
	STOPPED,  // 1: no events are added to routines any more
	SAMPLED_BEFORE,  // the samples of all slices but this
	SETTINGS,
};

static const u64 SLICE = 1000000000;

// The smallest block doubles with each such number of samples in a slice: thousands of functions would
// else have 128 samples each in the first one.
static const u64 SAMPLES_DOUBLED = 500;

// The bit in the number of an idle thread, of which each CPU has one: all have the id 0.
static const u32 IDLE = 1u << 31;

struct {
	UINT(type, MAP_ARRAY);
	UINT(map_flags, MMAPABLE);
	UINT(max_entries, SETTINGS);
	TYPE(key, u32);
	TYPE(value, u64);
} settings SEC(".maps");

// For each point: the calls by CPU, then 1 if a call was sampled, then the calls of threads for
// which there was no counter, then 1 if its function is not counted any more.
struct {
	UINT(type, MAP_ARRAY);
	UINT(map_flags, MMAPABLE);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, u64);
} points SEC(".maps");

// The words of a point after those of the CPUs.
enum { IS_SAMPLED, OVERFLOW, IS_OFF, POINT_WORDS };

// A followed thread.
struct thread {
	u32 serial;  // numbers are never used again, unlike ids of threads
	u32 is_pending;  // the process of the command before its exec
};

struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

// The calls of a function by a thread, which alone writes it. `Counter::read` in
// src/perf/calls/data.rs copies it from the first word to the last: they agree if both are of the
// same slice.
struct counter {
	u64 ended;  // the slice to which the words before `began` belong; written last
	u64 total;
	u64 before;  // the calls before this slice
	u64 sampled;  // the calls up to the last sample
	u64 rests;  // the calls of ended slices after the last sample of each
	u64 left;  // the calls to the end of the block
	u64 point;  // the call that is sampled, counted from the end of the block
	u64 last;  // the calls of the slice before
	u32 tid;
	u32 tgid;
	u32 generation;
	u32 unused;
	u64 began;  // the slice; written first
};

struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u64);
	TYPE(value, struct counter);
} counters SEC(".maps");

struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} samples SEC(".maps");

// Of each CPU, the event that is counted by routine. It counts all that runs there.
struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} counted SEC(".maps");

// 1: the event is that of context switches.
const volatile u32 counts_switches = 0;

// The place of the stack pointer in struct pt_regs, in words.
const volatile u32 is_arm = 0;
enum { STACK_X86 = 19, STACK_ARM = 31 };

// A routine that its thread has entered and not left.
struct routine {
	u64 stack;  // the stack pointer at its probe
	u32 path;
	u32 index;
};

enum { DEPTH = 128 };
static const u64 UNKNOWN = -1;

// The routines of a thread, which alone writes this.
struct walk {
	u64 events;  // those of the thread up to its last switch
	u64 since;  // the CPU's count at that switch, or UNKNOWN
	u64 switches;
	u64 charged;  // the events that were added to routines, or occurred outside
	u32 depth;
	u32 is_changing;  // 1: a program changes the routines
	u32 serial;
	u32 is_out;  // 1: switched out, as far as the tracepoint tells
	struct routine routines[DEPTH];
};

struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct walk);
} walks SEC(".maps");

// A walk of zeros: it is larger than the stack of a program.
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct walk);
} blank SEC(".maps");

// The numbers of paths: of a routine (the lower half of the key) that was entered on a path (the
// upper half; 0: from none).
struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u64);
	TYPE(value, u32);
} paths SEC(".maps");

// The events of a thread (the upper half of the key) on a path. `Charge::read` in
// src/perf/calls/routines.rs copies it from the first word to the last, as a counter.
struct charge {
	u64 ended;
	u64 total;
	u64 before;
	u32 tid;
	u32 tgid;
	u64 began;
};

struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u64);
	TYPE(value, struct charge);
} charges SEC(".maps");

// A sampled call: `Call::read`.
struct call {
	u64 key;
	u64 calls;  // those since the last sample of the slice, with this one
	u64 slice;
};

INLINE u64 *setting(u32 number)
{
	return map_lookup(&settings, &number);
}

INLINE u64 value(u32 number)
{
	u64 *word = setting(number);

	return word ? *word : 0;
}

INLINE void add_thread(u32 tid, u32 is_pending)
{
	struct thread thread = { .is_pending = is_pending };
	u64 *serials = setting(SERIALS), *missed;

	if (!serials)
		return;
	thread.serial = __sync_fetch_and_add(serials, 1) + 1;
	if (map_update(&threads, &tid, &thread, ANY) == 0)
		return;
	missed = setting(MISSED_THREADS);
	if (missed)
		__sync_fetch_and_add(missed, 1);
}

INLINE u64 min(u64 a, u64 b)
{
	return a < b ? a : b;
}

INLINE u64 max(u64 a, u64 b)
{
	return a > b ? a : b;
}

// A point of a block at random: each call of a block is as likely to be sampled as any other.
INLINE void begin_block(struct counter *counter)
{
	u64 calls = max(counter->total - counter->before, counter->last);
	u64 samples = value(SAMPLED) - value(SAMPLED_BEFORE);
	u64 floor = max(value(FLOOR), 1) << min(samples / SAMPLES_DOUBLED, 24);
	u64 block = max(calls >> (value(SHIFT) & 63), floor);

	counter->left = block;
	counter->point = block > 0xffffffff ? get_prandom_u32()
					    : (u64)get_prandom_u32() * block >> 32;
}

INLINE void end_slice(struct counter *counter, u64 slice)
{
	u64 total = counter->total;

	counter->began = slice;
	__asm__ volatile("" ::: "memory");
	counter->rests += total - max(counter->sampled, counter->before);
	counter->last = slice == counter->ended + 1 ? total - counter->before : 0;
	counter->before = total;
	__asm__ volatile("" ::: "memory");
	counter->ended = slice;
}

INLINE u64 current_slice(void)
{
	u64 begin = value(BEGIN), now = ktime_get_ns();

	return begin && now > begin ? (now - begin) / SLICE : 0;
}

// The thread is current, which has this id. 0 if it is not followed.
INLINE struct thread *followed(u32 tid)
{
	struct thread *thread = map_lookup(&threads, &tid);

	if (!thread && value(EVERYONE)) {
		add_thread(tid, 0);
		thread = map_lookup(&threads, &tid);
	}
	return thread && !thread->is_pending ? thread : 0;
}

// Current has called the function with the number in the lower half of the cookie. The upper half
// is the generation of the link.
SEC("kprobe/on_call")
int on_call(void *ctx)
{
	u64 cookie = get_attach_cookie(ctx), ids = get_current_pid_tgid(), key, slice;
	u32 tid = ids, index = cookie, generation = cookie >> 32, cpus, cpu, width, at;
	struct thread *thread;
	struct counter *counter;
	u64 *count, *is_sampled, *samples_so_far;

	if (!tid)
		tid = IDLE | get_smp_processor_id();
	thread = followed(tid);
	if (!thread)
		return 0;
	cpus = value(CPUS);
	width = cpus + POINT_WORDS;
	cpu = get_smp_processor_id();
	// A CPU that has come online since adds to the word of the first one.
	at = index * width + (cpu < cpus ? cpu : 0);
	key = (u64)thread->serial << 32 | index;
	counter = map_lookup(&counters, &key);
	if (!counter) {
		struct counter new = { .tid = tid, .tgid = ids >> 32 };

		map_update(&counters, &key, &new, ANY);
		counter = map_lookup(&counters, &key);
		if (!counter) {
			at = index * width + cpus + OVERFLOW;
			count = map_lookup(&points, &at);
			if (count)
				__sync_fetch_and_add(count, 1);
			return 0;
		}
	}
	// While one link replaces another, a call runs the program for both, the later one first.
	if (counter->generation > generation) {
		counter->generation = 0;
		return 0;
	}
	counter->generation = generation;
	// Another thread may run between the load and the store of an addition (CONFIG_PREEMPT).
	count = map_lookup(&points, &at);
	if (count)
		__sync_fetch_and_add(count, 1);
	slice = current_slice();
	if (slice > counter->began)
		end_slice(counter, slice);
	if (!counter->left)
		begin_block(counter);
	counter->left--;
	counter->total++;
	at = index * width + cpus + IS_SAMPLED;
	is_sampled = map_lookup(&points, &at);
	if (counter->left == counter->point || (is_sampled && !*is_sampled)) {
		struct call call = {
			.key = key,
			.calls = counter->total - max(counter->sampled, counter->before),
			.slice = counter->began,
		};

		// If the ring is full, the next sample has these calls.
		if (perf_event_output(ctx, &samples, CURRENT_CPU, &call, sizeof(call)) == 0) {
			counter->sampled = counter->total;
			if (is_sampled)
				*is_sampled = 1;
			samples_so_far = setting(SAMPLED);
			if (samples_so_far)
				__sync_fetch_and_add(samples_so_far, 1);
		}
	}
	return 0;
}

INLINE void note(u32 number)
{
	u64 *word = setting(number);

	if (word)
		__sync_fetch_and_add(word, 1);
}

// The count of this CPU. UNKNOWN if its event is not open, or has lost its counter.
INLINE u64 cpu_count(void)
{
	u64 count = perf_event_read(&counted, CURRENT_CPU);

	if ((long long)count < 0 && (long long)count >= -4095) {
		note(UNREADABLE);
		return UNKNOWN;
	}
	return count;
}

// The events from one count of a CPU to another one.
INLINE u64 difference(u64 from, u64 to)
{
	return from == UNKNOWN || to == UNKNOWN ? 0 : to - from;
}

// Current runs, but its switch-in was not seen: the kernel may run no tracepoint for a switch from some
// threads. What it had since is not known, and the CPU's count at its last switch is of other threads.
INLINE void come_in_unseen(struct walk *walk)
{
	note(UNREADABLE);
	for (int i = 0; i < 4; i++) {
		u64 switches = *(volatile u64 *)&walk->switches;

		*(volatile u64 *)&walk->since = cpu_count();
		*(volatile u32 *)&walk->is_out = 0;
		if (*(volatile u64 *)&walk->switches == switches)
			return;
	}
	walk->since = UNKNOWN;
}

// The events of current. A switch may happen in between (CONFIG_PREEMPT).
INLINE u64 thread_count(struct walk *walk)
{
	if (walk->is_out)
		come_in_unseen(walk);
	for (int i = 0; i < 4; i++) {
		u64 switches = *(volatile u64 *)&walk->switches;
		u64 before = *(volatile u64 *)&walk->events, since = *(volatile u64 *)&walk->since;
		u64 count = before + difference(since, cpu_count());

		if (*(volatile u64 *)&walk->switches == switches)
			return count;
	}
	return walk->charged;
}

// The routine at this depth. The mask is for the verifier, for which the compiler would leave it out where it knows
// the bounds: the verifier of Linux 6.12 does not.
INLINE struct routine *routine_at(struct walk *walk, u32 depth)
{
	__asm__ volatile("" : "+r"(depth));
	return &walk->routines[depth & (DEPTH - 1)];
}

// True for a function that is not counted any more: its routines are no longer entered, nor left.
INLINE int is_off(u32 index)
{
	u32 cpus = value(CPUS), at = index * (cpus + POINT_WORDS) + cpus + IS_OFF;
	u64 *word = map_lookup(&points, &at);

	return word && *word;
}

// Adds the events since the last time to the routine in which current is.
INLINE void charge(struct walk *walk, u64 count)
{
	u64 events = count - walk->charged, key, slice, ids = get_current_pid_tgid();
	u32 depth = walk->depth, path = 0;
	struct charge *sum;

	// The count goes back if it can no longer be read.
	if ((long long)events <= 0)
		return;
	walk->charged = count;
	if (value(STOPPED))
		return;
	for (int i = 0; i < DEPTH && depth; i++) {
		struct routine *routine = routine_at(walk, depth - 1);

		if (!is_off(routine->index)) {
			path = routine->path;
			break;
		}
		depth--;
	}
	// Outside of all routines, or there was no room for the path.
	if (!path)
		return;
	key = (u64)walk->serial << 32 | path;
	sum = map_lookup(&charges, &key);
	if (!sum) {
		struct charge new = { .tid = ids, .tgid = ids >> 32 };

		map_update(&charges, &key, &new, ANY);
		sum = map_lookup(&charges, &key);
		if (!sum) {
			note(MISSED_ROUTINES);
			return;
		}
	}
	slice = current_slice();
	if (slice > sum->began) {
		sum->began = slice;
		__asm__ volatile("" ::: "memory");
		sum->before = sum->total;
		__asm__ volatile("" ::: "memory");
		sum->ended = slice;
	}
	sum->total += events;
}

// The path of a routine that is entered on another path. That one if there is no room.
INLINE u32 path_of(u32 from, u32 index)
{
	u64 key = (u64)from << 32 | index, *last;
	u32 *path = map_lookup(&paths, &key), new;

	if (path)
		return *path;
	last = setting(PATHS);
	if (!last)
		return from;
	new = __sync_fetch_and_add(last, 1) + 1;
	map_update(&paths, &key, &new, NOEXIST);
	// Another thread may have been faster.
	path = map_lookup(&paths, &key);
	if (path)
		return *path;
	note(MISSED_ROUTINES);
	return from;
}

INLINE u64 stack_pointer(u64 *ctx)
{
	u64 stack;

	// The verifier wants constant places: the branches must not become one load.
	if (is_arm) {
		stack = ctx[STACK_ARM];
		__asm__ volatile("" : "+r"(stack));
	} else {
		stack = ctx[STACK_X86];
	}
	return stack;
}

// Current has entered the routine with the number in the cookie.
//
// Routines with a lower stack pointer were left in another way: by longjmp, an exception, or a jump
// through a pointer. So were those with the same one, except on arm64, where a call leaves the
// stack pointer as it is.
SEC("kprobe/on_enter")
int on_enter(u64 *ctx)
{
	u32 tid = get_current_pid_tgid(), index = get_attach_cookie(ctx), zero = 0, depth, from = 0;
	struct thread *thread = followed(tid);
	u64 stack = stack_pointer(ctx);
	struct routine *routine;
	struct walk *walk;

	if (!thread || is_off(index))
		return 0;
	walk = map_lookup(&walks, &tid);
	if (!walk) {
		struct walk *none = map_lookup(&blank, &zero);

		if (!none)
			return 0;
		map_update(&walks, &tid, none, ANY);
		walk = map_lookup(&walks, &tid);
		if (!walk) {
			note(MISSED_ROUTINES);
			return 0;
		}
		walk->is_changing = 1;
		walk->serial = thread->serial;
		walk->since = cpu_count();
	}
	walk->is_changing = 1;
	charge(walk, thread_count(walk));
	depth = walk->depth;
	for (int i = 0; i < DEPTH && depth; i++) {
		routine = routine_at(walk, depth - 1);
		if (!is_off(routine->index)) {
			if (routine->stack > stack)
				break;
			if (routine->stack == stack && is_arm && routine->index != index)
				break;
		}
		depth--;
	}
	if (depth)
		from = routine_at(walk, depth - 1)->path;
	// The events of deeper routines are those of the last one that has room.
	if (depth < DEPTH) {
		routine = routine_at(walk, depth);
		routine->stack = stack;
		routine->index = index;
		routine->path = path_of(from, index);
		depth++;
	}
	walk->depth = depth;
	walk->is_changing = 0;
	return 0;
}

// Current leaves the routine with the number in the cookie: the stack pointer is that of its entry.
// On arm64, its caller may have the same one. Activations with a lower one were left in another way,
// also those of the same function, if this activation catches what they throw.
SEC("kprobe/on_leave")
int on_leave(u64 *ctx)
{
	u32 tid = get_current_pid_tgid(), index = get_attach_cookie(ctx), depth, is_left = 0;
	struct walk *walk = map_lookup(&walks, &tid);
	u64 stack = stack_pointer(ctx);
	struct routine *routine;

	if (!walk)
		return 0;
	walk->is_changing = 1;
	charge(walk, thread_count(walk));
	depth = walk->depth;
	for (int i = 0; i < DEPTH && depth; i++) {
		routine = routine_at(walk, depth - 1);
		if (routine->stack > stack)
			break;
		if (routine->stack == stack) {
			if (is_left || routine->index != index)
				break;
			is_left = 1;
		}
		depth--;
	}
	walk->depth = depth;
	walk->is_changing = 0;
	return 0;
}

// The count of this CPU with the switch that goes on: the kernel counts it after the tracepoint.
INLINE u64 count_after_switch(void)
{
	u64 count = cpu_count();

	return count == UNKNOWN ? UNKNOWN : count + counts_switches;
}

// Current is switched out, for the thread `next`.
SEC("raw_tp/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[2];
	u32 tid = get_current_pid_tgid();
	struct walk *walk = map_lookup(&walks, &tid);
	u64 count = 0;
	int next = 0;

	if (walk) {
		count = count_after_switch();
		if (walk->is_out)
			note(UNREADABLE);
		else
			walk->events += difference(walk->since, count);
		walk->is_out = 1;
		walk->since = count;
		walk->switches++;
		if (!walk->is_changing)
			charge(walk, walk->events);
	}
	probe_read_kernel(&next, sizeof(next), __builtin_preserve_access_index(&task->pid));
	tid = next;
	walk = map_lookup(&walks, &tid);
	if (walk) {
		walk->since = count ?: count_after_switch();
		walk->is_out = 0;
		walk->switches++;
	}
	return 0;
}

// The routines of a thread have ended, without leaving them. That thread is current, under this id
// or, after an exec, under another one: then its switches since are unknown, and so is its count.
INLINE void end_walk(u32 tid, u32 is_renamed)
{
	struct walk *walk = map_lookup(&walks, &tid);

	if (!walk)
		return;
	charge(walk, is_renamed ? walk->events : thread_count(walk));
	map_delete(&walks, &tid);
}

// Current is the parent; the child does not run yet.
SEC("raw_tp/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *child = (void *)ctx[1];
	u32 parent = get_current_pid_tgid();
	struct thread *thread = map_lookup(&threads, &parent);
	int tid = 0;

	if (!thread || thread->is_pending)
		return 0;
	probe_read_kernel(&tid, sizeof(tid), __builtin_preserve_access_index(&child->pid));
	add_thread(tid, 0);
	return 0;
}

// Current has executed another image.
SEC("raw_tp/sched_process_exec")
int on_exec(u64 *ctx)
{
	u32 tid = get_current_pid_tgid(), before = ctx[1];
	struct thread *thread;

	end_walk(before, before != tid);
	if (before != tid) {
		// It was not the first thread of its process, and has taken its id.
		if (!map_lookup(&threads, &before))
			return 0;
		map_delete(&threads, &before);
		add_thread(tid, 0);
		return 0;
	}
	thread = map_lookup(&threads, &tid);
	if (thread)
		thread->is_pending = 0;
	return 0;
}

// Current exits. Its counters stay until the recorder has read them.
SEC("raw_tp/sched_process_exit")
int on_exit(u64 *ctx __attribute__((unused)))
{
	u32 tid = get_current_pid_tgid();

	end_walk(tid, 0);
	map_delete(&threads, &tid);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
