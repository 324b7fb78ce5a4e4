// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Declarations of the kernel for the programs of this folder: types, constants and helpers of
// include/uapi/linux/bpf.h, by their numbers.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define HIDDEN __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))

// A map in the form of BTF: see "BTF-style maps" in Documentation/bpf/btf.rst of Linux.
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PROG_ARRAY = 3,
	MAP_PERF_EVENT_ARRAY = 4,
	MAP_PERCPU_ARRAY = 6
};
enum { NO_PREALLOC = 1, MMAPABLE = 1 << 10 };
enum { ANY = 0, NOEXIST = 1 };
static const u64 CURRENT_CPU = 0xffffffff;

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static u32 (*get_prandom_u32)(void) = (void *)7;
static u32 (*get_smp_processor_id)(void) = (void *)8;
static long (*tail_call)(void *ctx, void *programs, u32 index) = (void *)12;
static u64 (*get_current_pid_tgid)(void) = (void *)14;
static u64 (*perf_event_read)(void *map, u64 flags) = (void *)22;
static long (*perf_event_output)(void *ctx, void *map, u64 flags, void *data, u64 size) = (void *)25;
static long (*probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*seq_write)(void *seq, const void *data, u32 size) = (void *)127;
static long (*get_task_stack)(void *task, void *to, u32 size, u64 flags) = (void *)141;
static struct task_struct *(*get_current_task_btf)(void) = (void *)158;
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;
static struct pt_regs *(*task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*repeat)(u32 count, void *function, void *context, u64 flags) = (void *)181;
