// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The programs that count calls: an exact number for each function and followed thread, and a full
// perf sample of one call of each block, at random.
//
// See waits.bpf.c for the form of maps, and for the way in which this file is compiled.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define HIDDEN __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))

#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

// include/uapi/linux/bpf.h.
enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERF_EVENT_ARRAY = 4 };
enum { NO_PREALLOC = 1, MMAPABLE = 1 << 10 };
enum { ANY = 0 };
static const u64 CURRENT_CPU = 0xffffffff;

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static u32 (*get_prandom_u32)(void) = (void *)7;
static u32 (*get_smp_processor_id)(void) = (void *)8;
static u64 (*get_current_pid_tgid)(void) = (void *)14;
static long (*perf_event_output)(void *ctx, void *map, u64 flags, void *data, u64 size) = (void *)25;
static long (*probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;

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
	SETTINGS = 8,
};

static const u64 SLICE = 1000000000;

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
// which there was no counter.
struct {
	UINT(type, MAP_ARRAY);
	UINT(map_flags, MMAPABLE);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, u64);
} points SEC(".maps");

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

INLINE u64 max(u64 a, u64 b)
{
	return a > b ? a : b;
}

// A point of a block at random: each call of a block is as likely to be sampled as any other.
INLINE void begin_block(struct counter *counter)
{
	u64 calls = max(counter->total - counter->before, counter->last);
	u64 block = max(calls >> (value(SHIFT) & 63), max(value(FLOOR), 1));

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

// Current has called the function with the number in the lower half of the cookie. The upper half
// is the generation of the link.
SEC("kprobe/on_call")
int on_call(void *ctx)
{
	u64 cookie = get_attach_cookie(ctx), ids = get_current_pid_tgid(), key, now, begin, slice;
	u32 tid = ids, index = cookie, generation = cookie >> 32, cpus, cpu, width, at;
	struct thread *thread = map_lookup(&threads, &tid);
	struct counter *counter;
	u64 *count, *is_sampled, *samples_so_far;

	if (!tid) {
		tid = IDLE | get_smp_processor_id();
		thread = map_lookup(&threads, &tid);
	}
	if (!thread) {
		if (!value(EVERYONE))
			return 0;
		add_thread(tid, 0);
		thread = map_lookup(&threads, &tid);
		if (!thread)
			return 0;
	}
	if (thread->is_pending)
		return 0;
	cpus = value(CPUS);
	width = cpus + 2;
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
			at = index * width + width - 1;
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
	begin = value(BEGIN);
	now = ktime_get_ns();
	slice = begin && now > begin ? (now - begin) / SLICE : 0;
	if (slice > counter->began)
		end_slice(counter, slice);
	if (!counter->left)
		begin_block(counter);
	counter->left--;
	counter->total++;
	at = index * width + width - 2;
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

	map_delete(&threads, &tid);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
