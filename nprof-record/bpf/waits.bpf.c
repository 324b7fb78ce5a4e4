// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The programs that measure waiting: exact times of each followed thread, and a full perf sample of
// a thread at the end of each wait that is chosen.
//
// `make bpf` compiles this file to waits.bpf.o, which is part of the repository: a build of nprof
// needs no clang. Types of the kernel are declared only as far as they are used; the loader adapts
// the offsets of their fields to the running kernel (CO-RE), by /sys/kernel/btf/vmlinux.

#include "kernel.h"

// include/uapi/linux/bpf.h, enum bpf_core_relo_kind.
enum { FIELD_EXISTS = 2 };

// The number of the system call of a thread of the kernel: see `KERNEL_THREAD` in
// src/perf/waits/data.rs.
static const u64 KERNEL_THREAD = -2;

// A bit of the number of a system call of a 32-bit program: see `COMPAT_CALL` there.
static const u64 COMPAT_CALL = 1 << 30;

// The loader replaces the number by that of a function of the kernel, see `RDONLY_CAST` in
// src/perf/bpf/object.rs.
static void *(*rdonly_cast)(u64 address, u32 type) = (void *)(1 << 30);

struct sched_info {
	u64 pcount;
	u64 run_delay;
	u64 last_arrival;
} HIDDEN;

struct rq {
	u64 clock;
} HIDDEN;

struct cfs_rq {
	struct rq *rq;
} HIDDEN;

struct sched_entity {
	struct cfs_rq *cfs_rq;
} HIDDEN;

struct inode {
	unsigned short i_mode;
	u64 i_ino;
} HIDDEN;

struct file {
	struct inode *f_inode;
} HIDDEN;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} HIDDEN;

struct files_struct {
	struct fdtable *fdt;
} HIDDEN;

struct task_struct {
	int pid;
	int tgid;
	u32 __state;
	int exit_state;
	int on_cpu;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	struct files_struct *files;
} HIDDEN;

// The verifier knows the context of a program by this name.
struct bpf_raw_tracepoint_args {
	u64 args[0];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} HIDDEN;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} HIDDEN;

// Set by the loader.
const volatile u64 blocked_period = 0;  // 0: the event is not recorded
const volatile u64 runnable_period = 0;
// The number of `struct rq` in the types of the kernel.
const volatile u32 run_queue_type = 0;
// The offsets of the number of the system call and of its first argument in the saved registers.
const volatile u32 call_offset = 0;
const volatile u32 argument_offset = 0;
// The same of the stack pointer and of the processor's mode: the bits that separate user code from the
// kernel, their value for user code, and the mode of 32-bit code.
const volatile u32 pointer_offset = 0;
const volatile u32 mode_offset = 0;
const volatile u64 mode_mask = 0;
const volatile u64 mode_user = 0;
const volatile u64 mode_compat = 0;
// The bytes of the saved registers.
const volatile u32 register_bytes = 0;
// The bytes of a stack that the kernel copies; 0 if stacks are not copied.
const volatile u64 copied = 0;
// The interval in ns of the timers that sample CPU time; 0 if their samples are taken as they come.
const volatile u64 timer_period = 0;

// The state of a thread between two switches.
enum phase {
	ATTACHED,  // followed since a moment of its life; not switched since
	RUNS,
	WAITS,
	CREATED,  // has never been switched out
	PENDING,  // the process of the command before its exec: not measured
	FOUND,  // not measured before `on_task` has seen it
	CLOSED,  // waited at the end of a window; not measured before the next one
	ENDED = 8,  // a bit beside the others: reported at the end of the recording, and not measured any more
};

// The points at which waits shorter than the period are sampled, see `hits`.
struct draw {
	u64 left;  // ns of waiting to the end of the interval; 0: the next wait begins one
	u64 point;  // ns of waiting to its point; PASSED: there is none any more
};

struct thread {
	u64 begin;  // the time from which on it is measured
	u64 since;  // the time of the last switch
	u64 run_delay;  // of the kernel's own account, at the last switch
	u64 cpu;
	u64 runnable;
	u64 blocked;
	u64 captured;  // the start of the wait of which `progress` has reported the stack
	u32 phase;
	u32 state;  // the task's state when it was switched out; 0 if it was preempted
	u64 woken;  // the time of the wake-up in this wait; 0 if none was seen
	u64 wake_hits;  // those of the wait, drawn by `on_waking`
	struct draw blocked_draw;
	struct draw runnable_draw;
	u64 sampled;  // the part of its CPU time that has samples
};

struct {
	UINT(type, MAP_HASH);
	UINT(map_flags, NO_PREALLOC);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

// The threads, by the last bits of their ids; `threads` has only those that found their place taken.
// The verifier turns a lookup in an array into a few instructions. Both lookups of a switch in the hash
// table took 32 of the 230 ns by which a recording made a switch of a pipe longer.
enum { PLACES = 1 << 12, FREE = 0, TAKEN = 1 };

struct place {
	u32 key;  // the complement of the thread's id, which is never FREE or TAKEN
	struct thread thread;
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct place);
} places SEC(".maps");

// The number of threads that did not fit into `threads`.
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} missed SEC(".maps");

// Later than all times of the clock, and less than 2^63.
#define NEVER (1ull << 62)

// The time at which the measurement ends. The recorder sets it: to detach the programs takes 10 to 60 ms, one after
// the other, in which threads begin, wait and end. What lies beyond is left out.
volatile u64 end_time = NEVER;

// The events of each CPU: of full samples, of notes without a stack, and of samples of wakers.
struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} samples SEC(".maps");

struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} notes SEC(".maps");

struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} wakes SEC(".maps");

// The wait that a sample reports. The layout is that of `Wait::read` in src/perf/waits/record.rs.
struct wait {
	u64 since;
	u64 until;
	u64 runnable;  // its last part, in which the thread waited for a CPU
	u32 state;
	unsigned short blocked_hits;
	unsigned short runnable_hits;
	u64 call;
	u64 argument;
	u64 inode;  // of the file that is open with the argument as its descriptor; 0 if there is none
	u64 mode;
};

// The wake-up that a sample reports: see `Wake::read`.
struct wake {
	u64 since;
	u64 until;
	u32 tid;
	u32 tgid;
	u64 hits;
};

// The end of a thread, and waits for a CPU without a stack: for the first one, and of a thread that
// has exited.
struct note {
	u32 kind;
	u32 tid;  // the record has none if the thread was released before its last switch
	u64 begin;
	u64 end;
	u64 cpu;
	u64 runnable;
	u64 blocked;
	u64 hits;
};

enum { NOTE_TIMES = 1, NOTE_RUNNABLE = 2, NOTE_TWO_SAMPLES = 3 };

// The clock of the records beside that of the scheduler, which has its time at each switch. To read
// the former at each switch, too, would take a fifth of the time of both programs: 77 ns in a virtual
// machine. For each CPU.
struct clock {
	u64 queue;  // the address of the scheduler's queue of this CPU
	u64 read;  // the scheduler's time at which both were read; 0: never
	u64 offset;  // of the clock of the records from that of the scheduler
	u64 switched;  // the time of the last switch
};

// The time for which an offset is used, in ns. The clocks differ by less than DRIFT of it.
enum { OFFSET_NS = 1000000, DRIFT = 1024 };

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct clock);
} clocks SEC(".maps");

INLINE struct clock *this_clock(void)
{
	u32 first = 0;

	return map_lookup(&clocks, &first);
}

// Returns the address of the scheduler's queue of the CPU on which a task runs. 0 with a kernel without
// CONFIG_FAIR_GROUP_SCHED.
INLINE u64 queue_of(struct task_struct *task)
{
	struct cfs_rq *fair = 0;
	u64 queue = 0;

	if (!__builtin_preserve_field_info(task->se.cfs_rq, FIELD_EXISTS))
		return 0;
	probe_read_kernel(&fair, sizeof(fair), __builtin_preserve_access_index(&task->se.cfs_rq));
	probe_read_kernel(&queue, sizeof(queue), __builtin_preserve_access_index(&fair->rq));
	return queue;
}

// Returns the time of the switch from a task, which is current. `has_yielded` is false if another one
// takes its place while it could run.
INLINE u64 time_of_switch(struct task_struct *task, int has_yielded)
{
	struct clock *clock = this_clock();
	u64 at, passed, offset, drifted, now = 0;
	struct rq *queue;

	if (!clock)
		return ktime_get_ns();
	if (!clock->queue)
		clock->queue = queue_of(task);
	if (!clock->queue)
		return ktime_get_ns();
	// To follow pointers from the task would take the verifier 5 ms.
	queue = rdonly_cast(clock->queue, run_queue_type);
	at = queue->clock;
	passed = at - clock->read;
	if (!has_yielded || passed >= OFFSET_NS)
		now = ktime_get_ns();
	if (passed >= OFFSET_NS) {
		// The scheduler has read its clock before: the least difference is the best.
		offset = now - at;
		drifted = clock->offset + passed / DRIFT;
		clock->offset = clock->read && (long)(drifted - offset) < 0 ? drifted : offset;
		clock->read = at;
	}
	// The scheduler does not read its clock again if a wake-up has requested the switch
	// (rq_clock_skip_update), however long the interrupt of another processor or the way out of a system
	// call takes: some ten microseconds in a virtual machine.
	clock->switched = has_yielded ? at + clock->offset : now;
	return clock->switched;
}

// Returns a time of the scheduler of this CPU by the clock of the records; 0 if it is unknown.
INLINE u64 by_our_clock(const struct clock *clock, u64 time)
{
	return clock->read ? time + clock->offset : 0;
}

INLINE struct place *place_of(u32 tid)
{
	u32 index = tid & (PLACES - 1);

	return map_lookup(&places, &index);
}

INLINE struct thread *find(u32 tid)
{
	struct place *place = place_of(tid);

	if (place && place->key == ~tid)
		return &place->thread;
	return map_lookup(&threads, &tid);
}

INLINE struct thread *followed(struct task_struct *task, u32 *tid)
{
	*tid = task->pid;
	return find(*tid);
}

INLINE struct thread *current_thread(u32 *tid)
{
	return followed(get_current_task_btf(), tid);
}

INLINE void add_thread(u32 tid, const struct thread *thread)
{
	struct place *place = place_of(tid);
	u32 first = 0;
	u64 *count;

	if (place && (place->key == ~tid || __sync_bool_compare_and_swap(&place->key, FREE, TAKEN))) {
		place->thread = *thread;
		// A lookup on another CPU finds it complete: an exchange orders all accesses, also on 64-bit
		// ARM. The loads of a lookup are in this order on x86-64 only.
		__sync_lock_test_and_set(&place->key, ~tid);
		map_delete(&threads, &tid);
		return;
	}
	if (map_update(&threads, &tid, thread, ANY) == 0)
		return;
	count = map_lookup(&missed, &first);
	if (count)
		__sync_fetch_and_add(count, 1);
}

INLINE void forget(u32 tid)
{
	struct place *place = place_of(tid);

	if (!place || !__sync_bool_compare_and_swap(&place->key, ~tid, FREE))
		map_delete(&threads, &tid);
}

// True if the time of the scheduler at which a thread was last switched in on this CPU is later than another.
INLINE int has_arrived_since(u64 time, u64 last_arrival)
{
	struct clock *clock = this_clock();

	return clock && time < by_our_clock(clock, last_arrival);
}

static const u64 PASSED = ~0ull;

// Returns a number below `bound`, at random.
INLINE u64 random_below(u64 bound)
{
	u64 random = get_prandom_u32();

	return random * (bound >> 32) + (random * (u32)bound >> 32);
}

// Returns the number of points in a wait; 1 if it is at least a period long.
//
// The shorter waits of a thread, one after the other, are divided into intervals of a period, and each
// has a point at random. A wait then has size / period points in expectation, whatever its neighbours
// are, and the sum of all is within a period of the time waited. Independent draws would have an error
// of the square root of the number of samples.
INLINE u32 hits(struct draw *draw, u64 size, u64 period)
{
	u32 found = 0;

	if (size == 0 || period == 0)
		return 0;
	if (size >= period)
		return 1;
	if (size >= draw->left) {
		found = draw->point < draw->left;
		size -= draw->left;
		draw->left = period;
		draw->point = random_below(period);
	}
	draw->left -= size;
	if (draw->point < size) {
		draw->point = PASSED;
		return found + 1;
	}
	if (draw->point != PASSED)
		draw->point -= size;
	return found;
}

// Returns 0 if the times are in the other order: clocks of CPUs may differ by some ns. They differ by less than
// 2^63. A branch would double the paths that the verifier follows.
INLINE u64 difference(u64 later, u64 earlier)
{
	long passed = later - earlier, negative = passed >> 63;

	// The compiler must not make a branch of it.
	__asm__ volatile("" : "+r"(negative));
	return passed & ~negative;
}

INLINE u64 min(u64 a, u64 b)
{
	return a - difference(a, b);
}

INLINE u64 max(u64 a, u64 b)
{
	return a + difference(b, a);
}

// The part of a stack beyond the kernel's copy, in chunks before the sample. The rules are those of
// src/perf/bpf/program.rs, which does the same for samples of the CPU.

#define PAGE 4096ull
#define PART (32ull << 10)

enum { HINT_SLOTS = 1 << 14, THREAD_BITS = 22, TOP_SHIFT = 6, AFTER_GAP = 1 << 30 };
enum { EXTRA_MAX = 1 << 20, NEAR = 128 << 10, NEAR_UNKNOWN = 64 << 10 };
enum { ABSENT_MAX_UNKNOWN = 16, ABSENT_MAX_REQUESTED = 1 << 16 };
enum { PARTS_MAX = 1 << 12 };

// See src/perf/bpf/shared_array.rs.
struct hint {
	u64 top;
	u64 gap_start;
	u64 gap_end;
	u64 everything;
};

// The bytes of chunks of a CPU, and the most of them that may be in its ring.
struct ring_bytes {
	u64 written;
	u64 read;
	u64 room;
	u64 unused;
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(map_flags, MMAPABLE);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct hint);
} hints SEC(".maps");

struct {
	UINT(type, MAP_PERF_EVENT_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} chunks SEC(".maps");

// See `StackChunk::read` in src/perf/stack_chunks.rs.
struct chunk {
	u64 thread;
	u64 pointer;
	u64 start;
	u64 size;
	unsigned char bytes[PART];
};

// The state of a copy.
struct copy {
	u64 at;
	u64 end;
	u64 next;  // where the part after the gap begins; 0: there is none
	u64 last;
	u64 absent_left;
	u64 absent_max;
	u64 by_page;
	struct chunk chunk;
};

// By CPU: a value of this size does not fit into a map of values for each CPU.
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);  // set by the loader
	TYPE(key, u32);
	TYPE(value, struct copy);
} copies SEC(".maps");

struct copying {
	u64 *ctx;
	struct copy *copy;
	struct ring_bytes *bytes;
};

static long copy_next(u32 index __attribute__((unused)), struct copying *copying)
{
	struct copy *copy = copying->copy;
	struct chunk *chunk = &copy->chunk;
	u64 unit = copy->by_page ? PAGE : PART, at = copy->at, size;

	if (at >= copy->end) {
		if (!copy->next)
			return 1;
		copy->at = copy->next;
		copy->end = copy->last;
		copy->next = 0;
		copy->by_page = 0;
		chunk->thread |= AFTER_GAP;
		return 0;
	}
	size = min((at | (unit - 1)) + 1, copy->end) - at;
	// The compiler must not move the check, which the verifier needs, to another register.
	__asm__ volatile("" : "+r"(size));
	if (size > PART)
		return 1;
	if (probe_read_user(chunk->bytes, size, (void *)at)) {
		// The end of the stack lies here, or a page that is not in memory.
		if (!copy->by_page) {
			copy->by_page = 1;
			return 0;
		}
		if (!copy->absent_left)
			return 1;
		copy->absent_left--;
		if (copy->absent_max == ABSENT_MAX_UNKNOWN)
			copy->end = min(copy->end, chunk->pointer + NEAR_UNKNOWN);
		copy->at = (at | (PAGE - 1)) + 1;
	} else {
		chunk->start = at;
		chunk->size = size;
		if (perf_event_output(copying->ctx, &chunks, CURRENT_CPU, chunk,
				      sizeof(*chunk) - PART + size))
			return 1;
		copying->bytes->written += sizeof(*chunk) - PART + size;
		copy->at = at + size;
		copy->absent_left = copy->absent_max;
	}
	if (!(copy->at & (PART - 1)))
		copy->by_page = 0;
	return 0;
}

// Returns the address at which the kernel's copy of a stack ends: at its first page that is not in
// memory, if there is one.
INLINE u64 end_of_copy(u64 pointer, u64 top)
{
	u64 page = (pointer | (PAGE - 1)) + 1, word;

	for (int i = 0; i < 3; i++, page += PAGE) {
		if (page >= pointer + copied || page >= top)
			break;
		if (probe_read_user(&word, sizeof(word), (void *)page))
			return page;
	}
	// A word may begin in the kernel's copy and end beyond it.
	return pointer + copied - sizeof(u64);
}

// Sets the part to copy by the hint for the thread. Returns 0 if there is none.
INLINE int set_limits(struct copy *copy, struct hint *hint, u32 tid, u64 pointer)
{
	u64 top = hint->top >> THREAD_BITS << TOP_SHIFT, start, gap_start, gap_end;

	copy->next = 0;
	copy->last = 0;
	copy->by_page = 0;
	copy->absent_max = ABSENT_MAX_UNKNOWN;
	copy->at = pointer;
	copy->end = pointer + copied - sizeof(u64) + EXTRA_MAX;
	if ((hint->top & ((1 << THREAD_BITS) - 1)) != tid || (top && pointer >= top))
		return 1;
	start = end_of_copy(pointer, top);
	if (start >= top)
		return 0;
	copy->absent_max = ABSENT_MAX_REQUESTED;
	gap_start = hint->gap_start > start ? hint->gap_start : start;
	gap_end = hint->gap_end;
	if (start < gap_end && hint->gap_start < gap_end && gap_end <= top) {
		if (gap_start - start + top - gap_end <= EXTRA_MAX) {
			copy->at = start;
			copy->end = gap_start;
			copy->next = gap_end;
			copy->last = top;
			return 1;
		}
	} else if (top - start <= EXTRA_MAX) {
		copy->at = start;
		copy->end = top;
		return 1;
	}
	if (!hint->everything) {
		copy->absent_max = ABSENT_MAX_UNKNOWN;
		copy->at = start;
		copy->end = start + NEAR;
	}
	return 1;
}

INLINE void copy_stack(u64 *ctx, u32 tid, void *regs)
{
	u32 slot = tid & (HINT_SLOTS - 1), cpu = get_smp_processor_id(), own = HINT_SLOTS + cpu;
	struct hint *hint = map_lookup(&hints, &slot);
	struct ring_bytes *bytes = map_lookup(&hints, &own);
	struct copy *copy = map_lookup(&copies, &cpu);
	struct copying copying = { .ctx = ctx, .copy = copy, .bytes = bytes };
	u64 pointer = 0, mode = 0;

	if (!hint || !bytes || !copy)
		return;
	probe_read_kernel(&pointer, sizeof(pointer), regs + pointer_offset);
	probe_read_kernel(&mode, sizeof(mode), regs + mode_offset);
	// A thread of the kernel has no stack, and 32-bit stacks are not unwound.
	if ((mode & mode_mask) != mode_user || mode == mode_compat
	    || bytes->written - bytes->read > bytes->room)
		return;
	if (!set_limits(copy, hint, tid, pointer))
		return;
	copy->absent_left = copy->absent_max;
	copy->chunk.thread = tid;
	copy->chunk.pointer = pointer;
	repeat(PARTS_MAX, copy_next, &copying, 0);
}

// Samples of timers.
//
// A timer's interrupt comes late in a virtual machine, and between two threads, or a thread and an idle CPU, one of
// both has fewer samples than its share: a busy server 90 to 93 % of its CPU time, a thread with turns of 20 us
// 86 %, a thread that it preempts 110 %. The time of each thread is known: the sample of a thread that has
// TIMER_SLACK intervals without a sample counts twice, and that of a thread with as many samples beyond its time
// is left out. The samples of one thread keep their proportions.
enum { TIMER_SLACK = 4 };

// The program that copies stacks, if there is one.
struct {
	UINT(type, MAP_PROG_ARRAY);
	UINT(max_entries, 1);
	UINT(key_size, 4);
	UINT(value_size, 4);
} next_program SEC(".maps");

// Returns the number of samples that the sample of a timer counts as: 0 to 2.
INLINE u32 samples_due(struct thread *thread)
{
	struct clock *clock = this_clock();
	u64 from = clock ? clock->switched : 0;
	u64 slack = TIMER_SLACK * timer_period;
	long unsampled;

	if (thread->phase >= PENDING)
		return 1;
	// `on_switched_in` may not have run yet.
	if ((thread->phase == RUNS || thread->phase == ATTACHED) && thread->since > from)
		from = thread->since;
	if (!from)
		return 1;
	unsampled = thread->cpu + difference(ktime_get_ns(), from) - thread->sampled;
	if (unsampled + (long)slack < (long)timer_period)
		return 0;
	return unsampled > (long)(slack + 2 * timer_period) ? 2 : 1;
}

// Current is the thread of which a timer takes a sample; the kernel writes it unless this returns 0.
SEC("perf_event")
int on_timer(void *ctx)
{
	u32 tid, due;
	struct thread *thread = current_thread(&tid);

	if (thread) {
		due = samples_due(thread);
		thread->sampled += due * timer_period;
		if (due == 0)
			return 0;
		if (due == 2) {
			struct note note = { .kind = NOTE_TWO_SAMPLES, .tid = tid };
			perf_event_output(ctx, &notes, CURRENT_CPU, &note, sizeof(note));
		}
	}
	tail_call(ctx, &next_program, 0);
	return 1;
}

// A thread that is switched out.
struct switched {
	u64 now;
	u64 run_delay;
	u64 last_arrival;  // the time at which it was switched in, by the clock of the scheduler
	u32 tid;
	u32 state;
	u32 preempted;
};

// Adds the time of a thread since its last switch, which it has spent on a CPU. Global, so that the verifier
// follows its paths once, not for each one that leads here: that took 4 ms.
__attribute__((noinline)) int account(struct bpf_raw_tracepoint_args *ctx, struct thread *thread,
				      struct switched *switched)
{
	u32 found, is_unseen, is_dead;
	u64 total, waited = 0, end;

	if (!thread || !switched)
		return 0;
	is_dead = switched->state & 0x80;  // TASK_DEAD: it is never switched in again
	end = end_time;
	if (switched->now > end) {
		// A thread that ends before `on_task` has reported it.
		if (!is_dead)
			return 0;
		switched->now = end;
	}
	if (thread->phase >= PENDING) {
		if (is_dead)
			forget(switched->tid);
		return 0;
	}
	// As in `on_switched_in`.
	switched->now = max(switched->now, thread->since);
	total = switched->now - thread->since;
	if (thread->phase != RUNS) {
		// The first part of its life, or of the recording, of which no switch was seen.
		waited = min(difference(switched->run_delay, thread->run_delay), total);
		found = thread->phase == CREATED ? hits(&thread->runnable_draw, waited, runnable_period) : 0;
		if (found) {
			struct note note = { .kind = NOTE_RUNNABLE, .tid = switched->tid,
					     .begin = thread->since, .end = thread->since + waited,
					     .runnable = waited, .hits = found };
			perf_event_output(ctx, &notes, CURRENT_CPU, &note, sizeof(note));
		}
	}
	// A thread that waited when it was found, or has been switched in since then: the offset of the clocks
	// is too large by less than OFFSET_NS.
	is_unseen = thread->phase == ATTACHED
		    && (thread->state || has_arrived_since(thread->since + OFFSET_NS, switched->last_arrival));
	if (thread->phase == WAITS || is_unseen) {
		// The end of its wait was not seen: `on_switched_in` is detached before this program. The
		// wait goes on in the books, for the short time until all programs are detached.
		if (!is_dead)
			return 0;
		thread->runnable += waited;
		thread->blocked += total - waited;
	} else {
		thread->runnable += waited;
		thread->cpu += total - waited;
	}
	thread->since = switched->now;
	thread->run_delay = switched->run_delay;
	thread->state = switched->preempted ? 0 : switched->state;
	thread->woken = 0;
	// Another CPU may wake it from now on. The compiler must not move the phase before the rest.
	__asm__ volatile("" ::: "memory");
	thread->phase = WAITS;
	if (is_dead) {
		struct note note = { .kind = NOTE_TIMES, .tid = switched->tid, .begin = thread->begin,
				     .end = switched->now, .cpu = thread->cpu,
				     .runnable = thread->runnable, .blocked = thread->blocked };
		perf_event_output(ctx, &notes, CURRENT_CPU, &note, sizeof(note));
		forget(switched->tid);
	}
	return 0;
}

// Current is the thread that is switched out.
SEC("raw_tp/sched_switch")
int on_switch(u64 *ctx)
{
	struct switched switched = { .preempted = (u32)ctx[0] & 1, .state = ctx[3] };
	struct task_struct *task = get_current_task_btf();
	struct thread *thread;

	// Also for a task that is not followed: the next one may be.
	switched.now = time_of_switch(task, switched.state && !switched.preempted);
	thread = followed(task, &switched.tid);
	if (!thread)
		return 0;
	switched.run_delay = task->sched_info.run_delay;
	switched.last_arrival = task->sched_info.last_arrival;
	return account((void *)ctx, thread, &switched);
}

// Current is the waker, or the thread that an interrupt has stopped.
SEC("raw_tp/sched_waking")
int on_waking(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct wake wake = {};
	struct thread *thread;

	probe_read_kernel(&wake.tid, sizeof(wake.tid), __builtin_preserve_access_index(&task->pid));
	thread = find(wake.tid);
	if (!thread || (thread->phase != WAITS && thread->phase != ATTACHED))
		return 0;
	// Once it is woken, it waits for a CPU.
	if (!thread->state || thread->woken || end_time != NEVER)
		return 0;
	wake.since = thread->since;
	wake.until = ktime_get_ns();
	thread->woken = wake.until;
	wake.hits = hits(&thread->blocked_draw, difference(wake.until, wake.since), blocked_period);
	thread->wake_hits = wake.hits;
	if (!wake.hits)
		return 0;
	probe_read_kernel(&wake.tgid, sizeof(wake.tgid), __builtin_preserve_access_index(&task->tgid));
	perf_event_output(ctx, &wakes, CURRENT_CPU, &wake, sizeof(wake));
	return 0;
}

#define READ(to, from) probe_read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(from)))

// Notes the file that a task has open with the first argument of its system call, while it is in that: another
// file may have the number when the sample is read.
INLINE void identify(struct task_struct *task, struct wait *wait)
{
	u32 descriptor = wait->argument, max = 0;
	struct files_struct *files = 0;
	struct fdtable *table = 0;
	struct file **open = 0, *file = 0;
	struct inode *inode = 0;
	unsigned short mode = 0;

	READ(files, task->files);
	READ(table, files->fdt);
	READ(max, table->max_fds);
	if (descriptor >= max)
		return;
	READ(open, table->fd);
	probe_read_kernel(&file, sizeof(file), &open[descriptor]);
	READ(inode, file->f_inode);
	READ(wait->inode, inode->i_ino);
	READ(mode, inode->i_mode);
	wait->mode = mode;
}

// Current is the thread that was switched in; interrupts are enabled, and its memory can be read.
SEC("raw_tp/sched_exit_tp")
int on_switched_in(u64 *ctx)
{
	struct thread *thread;
	struct task_struct *task;
	struct clock *clock;
	struct wait wait;
	u64 total, blocked, arrived, run_delay, end, beyond, mode = 0;
	u32 tid, phase;
	void *regs;

	if (!(ctx[0] & 1))
		return 0;
	task = get_current_task_btf();
	thread = followed(task, &tid);
	if (!thread)
		return 0;
	phase = thread->phase;
	if (phase != WAITS && phase != ATTACHED)
		return 0;
	clock = this_clock();
	if (!clock)
		return 0;
	wait.until = clock->switched;
	// The kernel's own account of the last time at which it was switched in.
	arrived = by_our_clock(clock, task->sched_info.last_arrival);
	// `on_switch` is not attached yet, has no clock, or did not run for the task before this one: a
	// virtual machine was seen to run no program at switches from threads of its supervisor.
	if (wait.until < thread->since || wait.until < arrived)
		wait.until = ktime_get_ns();
	// The time of the switch from it is some us too late if the scheduler had just read its clock, and had not
	// when the offset was read. No time is counted twice.
	wait.until = max(wait.until, thread->since);
	// A wait that goes on at the end ends there, also if the thread runs before `on_task` has reported it.
	end = end_time;
	beyond = difference(wait.until, end);
	if (end != NEVER && !__sync_bool_compare_and_swap(&thread->phase, phase, RUNS))
		return 0;
	wait.since = thread->since;
	wait.state = thread->state;
	total = difference(wait.until - beyond, thread->since);
	// The kernel's own account of the time from its wake-up on, up to the time of its clock.
	run_delay = task->sched_info.run_delay;
	wait.runnable = difference(run_delay, thread->run_delay);
	if (arrived)
		wait.runnable += difference(wait.until, arrived);
	wait.runnable = min(difference(wait.runnable, beyond), total);
	wait.until -= beyond;
	// The state of an attached thread is older than its last switch: it may have blocked since.
	if (!thread->state && phase == WAITS)
		wait.runnable = total;
	// The wait and its wake-up have one length and one draw.
	if (thread->woken)
		wait.runnable = total - min(difference(thread->woken, thread->since), total);
	blocked = total - wait.runnable;
	wait.blocked_hits = thread->woken ? thread->wake_hits
					  : hits(&thread->blocked_draw, blocked, blocked_period);
	wait.runnable_hits = hits(&thread->runnable_draw, wait.runnable, runnable_period);
	thread->runnable += wait.runnable;
	thread->blocked += blocked;
	thread->since = wait.until;
	thread->run_delay = run_delay;
	thread->phase = RUNS;
	if (!wait.blocked_hits && !wait.runnable_hits)
		return 0;
	if (task->exit_state) {
		// Its id may be released already: the sample would have none.
		struct note note = { .kind = NOTE_RUNNABLE, .tid = tid, .end = wait.until,
				     .begin = wait.until - wait.runnable, .runnable = wait.runnable,
				     .hits = wait.runnable_hits };
		if (wait.runnable_hits)
			perf_event_output(ctx, &notes, CURRENT_CPU, &note, sizeof(note));
		return 0;
	}
	wait.call = KERNEL_THREAD;
	wait.argument = wait.inode = wait.mode = 0;
	regs = task_pt_regs(task);
	probe_read_kernel(&mode, sizeof(mode), regs + mode_offset);
	if ((mode & mode_mask) == mode_user) {
		probe_read_kernel(&wait.call, sizeof(wait.call), regs + call_offset);
		probe_read_kernel(&wait.argument, sizeof(wait.argument), regs + argument_offset);
		if (mode == mode_compat && (int)wait.call >= 0)
			wait.call |= COMPAT_CALL;
		identify(task, &wait);
	}
	if (copied)
		copy_stack(ctx, tid, regs);
	perf_event_output(ctx, &samples, CURRENT_CPU, &wait, sizeof(wait));
	return 0;
}

// Current is the parent; the child does not run yet. The tracepoint `sched_process_fork` does not see the
// workers of io_uring.
SEC("raw_tp/task_newtask")
int on_fork(u64 *ctx)
{
	struct task_struct *child = (void *)ctx[0];
	struct thread new = { .phase = CREATED };
	u32 parent;
	int tid = 0;
	struct thread *thread = current_thread(&parent);

	if (!thread || thread->phase == PENDING || end_time != NEVER)
		return 0;
	probe_read_kernel(&tid, sizeof(tid), __builtin_preserve_access_index(&child->pid));
	new.begin = new.since = ktime_get_ns();
	add_thread(tid, &new);
	return 0;
}

// Current has executed another image.
SEC("raw_tp/sched_process_exec")
int on_exec(u64 *ctx)
{
	u32 tid, before = ctx[1];
	struct task_struct *task = get_current_task_btf();
	struct thread *thread = followed(task, &tid), *old;
	struct thread moved;
	u64 now, total, waited;

	if (before != tid) {
		// It was not the first thread of its process, and has taken its id: the stream has another task
		// from now on.
		old = find(before);
		if (!old)
			return 0;
		moved = *old;
		forget(before);
		if (moved.phase < PENDING) {
			now = min(ktime_get_ns(), end_time);
			total = difference(now, moved.since);
			waited = 0;
			if (moved.phase != RUNS)
				waited = min(difference(task->sched_info.run_delay, moved.run_delay), total);
			struct note note = { .kind = NOTE_TIMES, .tid = before, .begin = moved.begin,
					     .end = now, .cpu = moved.cpu + total - waited,
					     .runnable = moved.runnable + waited, .blocked = moved.blocked };
			perf_event_output(ctx, &notes, CURRENT_CPU, &note, sizeof(note));
			moved.begin = moved.since = now;
			moved.run_delay = task->sched_info.run_delay;
			moved.cpu = moved.runnable = moved.blocked = moved.sampled = 0;
			moved.phase = RUNS;
		}
		add_thread(tid, &moved);
		return 0;
	}
	if (!thread || thread->phase != PENDING)
		return 0;
	moved = *thread;
	moved.begin = moved.since = min(ktime_get_ns(), end_time);
	moved.run_delay = task->sched_info.run_delay;
	moved.phase = RUNS;
	add_thread(tid, &moved);
	return 0;
}

// Current exits. Only where switches are not always seen: `on_switch` forgets it later.
SEC("raw_tp/sched_process_exit")
int on_exit(u64 *ctx __attribute__((unused)))
{
	forget(get_current_task_btf()->pid);
	return 0;
}

// A followed thread as the recorder reads it, see `Progress::read` in src/perf/waits/record.rs.
// Registers and kernel stack follow once for each wait.
struct progress {
	u32 tid;
	u32 tgid;
	u32 state;
	u32 has_stack;
	u64 now;
	u64 run_delay;
	u64 arrivals;  // how often it was switched in
	struct thread thread;
};

#define REGISTER_BYTES 288  // room for `register_bytes` on every architecture
#define KERNEL_FRAMES 64

struct capture {
	struct progress progress;
	unsigned char registers[REGISTER_BYTES];
	u64 kernel_bytes;
	u64 kernel[KERNEL_FRAMES];
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct capture);
} captures SEC(".maps");

// The shortest wait of which the stack is reported before its end.
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} capture_after SEC(".maps");

// What `on_task` does with the threads: it reports them or their names, begins or ends a window in which
// waits are measured, follows all threads of the processes of which the first thread is known, and reports
// the ids of the new ones, or reports the threads at the end of the measurement, for the last time.
enum { REPORTS = 0, OPENS = 1, CLOSES = 2, NAMES = 3, FOLLOWS = 4, ENDS = 5 };

// The name of a thread, see `read_names` in src/perf/waits/data.rs.
struct name {
	u32 tid;
	u32 tgid;
	char comm[16];
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} window SEC(".maps");

// True if a task runs, or another one is about to take its place.
INLINE int is_on_cpu(struct task_struct *task)
{
	unsigned char is_on = 0;

	// Kernels without CONFIG_SMP do not have the field: only the recorder runs now. It is 0 or 1, in
	// four bytes, since Linux 7 in one: the loader refuses a load of another size.
	if (__builtin_preserve_field_info(task->on_cpu, FIELD_EXISTS))
		probe_read_kernel(&is_on, sizeof(is_on), __builtin_preserve_access_index(&task->on_cpu));
	return is_on;
}

SEC("iter/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct thread *thread;
	struct capture *capture;
	u64 *shortest, *edge, arrivals;
	u32 tid, first = 0, is_new, is_waiting, phase, size = register_bytes;
	int is_running;
	long bytes;

	if (!task)
		return 0;
	edge = map_lookup(&window, &first);
	if (!edge)
		return 0;
	tid = task->pid;
	thread = find(tid);
	// Before its phase: if it is switched in from now on, the number differs.
	arrivals = *(volatile u64 *)&task->sched_info.pcount;
	is_new = thread ? thread->phase == FOUND : *edge == FOLLOWS && find(task->tgid);
	if (is_new) {
		if (task->exit_state)
			return 0;
		struct thread found = { .phase = ATTACHED };
		found.begin = found.since = ktime_get_ns();
		found.run_delay = task->sched_info.run_delay;
		// One that is about to wait, or to find that it need not, counts as running.
		is_running = is_on_cpu(task);
		found.state = is_running ? 0 : task->__state;
		// It waits for a CPU. If it gets none before the end, the kernel's account does not show it.
		if (!is_running && !found.state)
			found.phase = WAITS;
		// It may run on another CPU, and be switched from now on.
		add_thread(tid, &found);
		// No program has seen that it got one in between.
		if (found.phase == WAITS && is_on_cpu(task)) {
			thread = find(tid);
			if (thread)
				__sync_bool_compare_and_swap(&thread->phase, WAITS, RUNS);
		}
		// Its last switch may have been before.
		if (*(volatile int *)&task->exit_state)
			forget(tid);
		if (*edge == FOLLOWS)
			seq_write(seq, &tid, sizeof(tid));
		return 0;
	}
	if (!thread || thread->phase == PENDING || *edge == FOLLOWS)
		return 0;
	if (*edge == NAMES) {
		struct name name = { .tid = tid, .tgid = task->tgid };
		probe_read_kernel(name.comm, sizeof(name.comm),
				  __builtin_preserve_access_index(&task->comm));
		seq_write(seq, &name, sizeof(name));
		return 0;
	}
	if (*edge == OPENS) {
		// The programs for switches are attached already, so that no switch is missed from now on.
		thread->since = ktime_get_ns();
		thread->run_delay = task->sched_info.run_delay;
		thread->state = task->__state;
		is_running = is_on_cpu(task);
		// An exchange orders all accesses: it is measured before the task is looked at again.
		__sync_lock_test_and_set(&thread->phase, is_running ? RUNS : WAITS);
		// No program has seen a switch of the task in between.
		if (is_on_cpu(task) != is_running) {
			thread->state = task->__state;
			__sync_bool_compare_and_swap(&thread->phase, is_running ? RUNS : WAITS,
						     is_running ? WAITS : RUNS);
		}
		return 0;
	}
	if (*edge == CLOSES) {
		// From now on, `on_switched_in` does not write this wait. The kernel calls again for a thread
		// for which the buffer had no room.
		if (!__sync_bool_compare_and_swap(&thread->phase, WAITS, CLOSED)
		    && thread->phase != CLOSED)
			return 0;
	}
	phase = thread->phase;
	// From now on, no other program measures it. The kernel calls again for a thread for which the buffer had no
	// room.
	if (*edge == ENDS)
		phase = __sync_fetch_and_or(&thread->phase, ENDED) & ~ENDED;
	capture = map_lookup(&captures, &first);
	shortest = map_lookup(&capture_after, &first);
	if (!capture || !shortest)
		return 0;
	capture->progress.tid = tid;
	capture->progress.tgid = task->tgid;
	capture->progress.state = task->__state;
	capture->progress.run_delay = task->sched_info.run_delay;
	capture->progress.arrivals = arrivals;
	capture->progress.thread = *thread;
	capture->progress.now = min(ktime_get_ns(), end_time);
	capture->progress.thread.phase = phase == CLOSED ? WAITS : phase;
	is_waiting = capture->progress.thread.phase == WAITS
		     || (capture->progress.thread.phase == ATTACHED && capture->progress.state != 0);
	// It has been woken since: its stack would be another one than that of the wait.
	if (is_on_cpu(task)
	    || (capture->progress.state
		&& capture->progress.run_delay != capture->progress.thread.run_delay))
		is_waiting = 0;
	capture->progress.has_stack = is_waiting
		&& capture->progress.thread.captured != capture->progress.thread.since
		&& capture->progress.now - capture->progress.thread.since >= *shortest;
	if (!capture->progress.has_stack) {
		seq_write(seq, &capture->progress, sizeof(capture->progress));
		return 0;
	}
	if (size > REGISTER_BYTES)
		return 0;
	probe_read_kernel(capture->registers, size, task_pt_regs(task));
	bytes = get_task_stack(task, capture->kernel, sizeof(capture->kernel), 0);
	capture->kernel_bytes = bytes > 0 ? bytes : 0;
	// It has run since: its stack is that of a later wait. Its account of waits for a CPU may be the same:
	// the scheduler does not read its clock again if a wake-up has requested the switch.
	if (*(volatile u64 *)&task->sched_info.pcount != arrivals) {
		capture->progress.has_stack = 0;
		seq_write(seq, &capture->progress, sizeof(capture->progress));
		return 0;
	}
	// Full: the kernel calls again for this thread, with an empty buffer.
	if (seq_write(seq, capture, sizeof(*capture)) == 0)
		thread->captured = capture->progress.thread.since;
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
