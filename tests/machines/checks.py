"""The checks: each is a script that a machine runs, and a function that judges its files on the host.

A judge returns a short text for the table, or raises an AssertionError with the reason.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Callable

from results import Results

CHECKS = []


@dataclass
class Check:
    """A check of one machine."""

    name: str
    script: str
    judge: Callable[[Results], str]
    # The architecture that the check needs, or None for all.
    arch: str | None = None
    # The purpose of the machines that run it.
    purpose: str = ""


def check(script, **facts):
    """Registers a judge with its script. The name of the check is that of the function."""

    def register(judge):
        CHECKS.append(Check(judge.__name__.replace("_", "-"), script, judge, **facts))
        return judge

    return register


def loops(results, stream="s.nprof", event=None, truth="truth", least=300, musl=False):
    """Judges a recording of a program with known loops: complete stacks, coverage, names, shares."""
    report = results.report(stream)
    stat = results.stat(stream)
    (recorded,) = report["events"]
    assert event is None or recorded["event"] == event, f"the event is {recorded['event']}"
    complete, coverage = float(stat["complete_percent"]), covered(results, stat, recorded)
    assert recorded["samples"] >= least, f"only {recorded['samples']} samples"
    # The recorder analyzes the code of musl, which has no unwind tables. While it does so on another processor, the
    # emulator, which runs one at a time, once let that of the program wait for 0.4 s.
    least_coverage = 75 if musl else 95
    assert complete >= 99, f"{complete} % of the stacks are complete: {recorded['incomplete']}"
    assert least_coverage <= coverage <= 105, f"coverage {coverage} %"
    shares(report["rows"], results.truth(truth))
    return f"{recorded['event']}: {recorded['samples']} samples, {complete:.1f} % complete, coverage {coverage:.1f} %"


def covered(results, stat, recorded):
    """Returns the share of what happened that the samples represent, in per cent: of CPU time, or of the count of a
    counter that the kernel does not sample."""
    if recorded["unit"] == "ns":
        return float(stat["coverage_percent"])
    counted = results.text(f"{recorded['event']}.count")
    assert counted, f"{recorded['event']} was not counted"
    return 100 * recorded["weight"] / int(counted)


def shares(rows, truth):
    """Compares the shares of functions in a report with the program's own."""
    whole = sum(truth.values())
    rows = {row["function"]: row for row in rows}
    for name, ns in truth.items():
        assert name in rows, f"{name} is not in the report"
        # The program's own clock does not see the start and the end of the program: shares are those among the
        # parts.
        parts = sum(rows[part]["total"] for part in truth if part in rows)
        share, known = 100 * rows[name]["total"] / parts, 100 * ns / whole
        # Interrupts of the clock and of other machines add to chance: 2 points.
        margin = rows[name]["total_margin"] + 2
        assert abs(share - known) <= margin, f"{name}: {share:.1f} % instead of {known:.1f} %, margin {margin:.1f}"


# Next to the recorder, the kernel counts the cycles of the program, without sampling them.
RECORD = "nprof-record -o s.nprof -- counted cycles.count 0 {} > truth"


@check(RECORD.format("loops-c"))
def default_event_c(results):
    """The default event: cycles on machines with counters, otherwise the CPU clock."""
    return loops(results, event=results.default_event)


@check(RECORD.format("loops-cpp"))
def default_event_cpp(results):
    return loops(results, event=results.default_event)


@check(RECORD.format("loops-rust"))
def default_event_rust(results):
    return loops(results, event=results.default_event)


@check(RECORD.format("loops-static"))
def default_event_static(results):
    return loops(results, event=results.default_event)


@check(RECORD.format("loops-musl"))
def default_event_musl(results):
    return loops(results, event=results.default_event, musl=True)


@check(f"""
echo 0 > /sys/devices/system/cpu/cpu1/online
{RECORD.format("loops-cpp")}
echo 1 > /sys/devices/system/cpu/cpu1/online
nprof-record -e cpu-clock -o leaves.nprof -- loops-cpp > leaves & recorder=$!
sleep 1
echo 0 > /sys/devices/system/cpu/cpu1/online
wait $recorder
echo 1 > /sys/devices/system/cpu/cpu1/online
""")  # fmt: skip
def processors_may_be_offline(results):
    """One is from the start, another time it goes offline while it is recorded."""
    loops(results, "leaves.nprof", truth="leaves")
    return loops(results, event=results.default_event)


@check("""
counted cycles.count 0 loops-c > usual
nprof-record -e cycles -e cycles/u -e cycles/k -e instructions -e instructions/u -e instructions/k \\
    -e stalled-cycles-frontend -e stalled-cycles-frontend/u -e stalled-cycles-backend -e stalled-cycles-backend/u \\
    -o s.nprof -- loops-c > truth 2> message
""", arch="arm64")
def counters_that_take_turns(results):
    """More events than counters: samples and estimated losses together represent what was counted."""
    events = {(event["event"], event["scope"]): event for event in results.report("s.nprof")["events"]}
    assert "more events than counters" in results.text("message"), results.text("message")
    cycles = events["cycles", "user+kernel"]
    lost = cycles["lost"].get("multiplex", 0)
    assert lost > 0, f"no sample of cycles is missing: {cycles['lost']}"
    # The interrupts of ten events are in the program's own CPU time, too, but not in that of the run that was counted.
    usual, recorded = [sum(results.truth(name).values()) for name in ("usual", "truth")]
    counted = int(results.text("cycles.count")) * recorded / usual
    represented = 100 * cycles["weight"] * (1 + lost / cycles["samples"]) / counted
    assert 80 <= represented <= 120, f"samples and losses represent {represented:.1f} % of the cycles"
    return f"{cycles['samples']} samples, {lost} missing, together {represented:.1f} % of the cycles"


@check("""
nprof-record -e cycles -e instructions -o s.nprof -- \\
    counted cycles.count 0 counted instructions.count 1 loops-c > truth
status=0
nprof-record -e branch-misses -o /dev/null -- true 2> refusal || status=$?
echo $status > absent
""", arch="arm64")
def several_counters(results):
    """Each represents its own count, in frequency mode; one that the processor lacks is refused by name."""
    report = results.report("s.nprof")
    texts = []
    for recorded in report["events"]:
        name, coverage = recorded["event"], covered(results, {}, recorded)
        assert 90 <= coverage <= 110, f"{name}: coverage {coverage:.1f} %"
        shares([row for row in report["rows"] if row["event"] == name], results.truth())
        texts.append(f"{name}: {recorded['samples']} samples, coverage {coverage:.1f} %")
    assert len(texts) == 2, texts
    refusal = results.text("refusal")
    assert results.text("absent") == "125\n" and "branch-misses" in refusal, refusal
    return "; ".join(texts)


@check("""
nprof-record -e cpu-clock -o system.nprof -- loops-c > truth
limited without-bpf nprof-record -e cpu-clock -o s.nprof -- loops-c > truth
""")
def without_bpf(results):
    loops(results, "system.nprof")
    return loops(results)


@check("""
chmod 777 .
for level in -1 0 1 2 3 4; do
    echo $level > /proc/sys/kernel/perf_event_paranoid
    status=0
    limited user nprof-record -e cpu-clock -o level$level.nprof -- loops-c \\
        2> level$level.message > level$level.truth || status=$?
    echo $level $status >> levels
done
echo 2 > /proc/sys/kernel/perf_event_paranoid
""")
def paranoid_levels_of_a_user(results):
    """From level 3 on Debian's kernels refuse users without rights; the message names the setting."""
    statuses = dict(line.split() for line in results.lines("levels"))
    texts = []
    for level, status in statuses.items():
        message = results.text(f"level{level}.message")
        if int(level) > 2 and status != "0":
            assert status == "125" and "perf_event_paranoid" in message, f"level {level}: {status}: {message}"
            texts.append(f"{level} refused")
            continue
        assert status == "0", f"level {level}: status {status}: {message}"
        report = results.report(f"level{level}.nprof")
        texts.append(f"{level} {report['events'][0]['scope']}")
        loops(results, f"level{level}.nprof", truth=f"level{level}.truth")
    return ", ".join(texts)


@check("""
umount /sys/kernel/tracing
nprof-record -l > list
nprof-record -e cpu-clock -o s.nprof -- loops-c > truth
mount -t tracefs tracefs /sys/kernel/tracing
""")
def without_tracefs(results):
    assert "sched:sched_switch" in results.text("list"), "the recorder found no tracepoints"
    return loops(results)


@check("""
echo 25 > /proc/sys/kernel/perf_cpu_time_max_percent
echo 500 > /proc/sys/kernel/perf_event_max_sample_rate
nprof-record -e cpu-clock -o s.nprof -- loops-c > truth 2> message
status=0
nprof-record -F 997 -e cpu-clock -o /dev/null -- true 2> refusal || status=$?
echo $status > refused
echo 100000 > /proc/sys/kernel/perf_event_max_sample_rate
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent
""")
def default_rate_is_below_the_limit(results):
    assert "249 samples per second" in results.text("message"), results.text("message")
    assert results.text("refused") == "125\n", results.text("refusal")
    return loops(results, least=200)


@check("""
nprof-record -l > list
grep ' available' list | grep -v -e ' feature ' -e ' tracepoint ' -e '^wakes ' -e '^[^ ]*[A-Z]' > events
while read -r name rest; do
    status=0
    nprof-record -q -e "$name" -o /dev/null -- true < /dev/null > message 2>&1 || status=$?
    echo "$name $status $(tr '\\n' ' ' < message)" >> opened
done < events
""")
def listed_events_can_be_opened(results):
    """All events that -l calls available, without tracepoints and placeholders such as PATH."""
    opened = [line.split(maxsplit=2) for line in results.lines("opened")]
    failed = [" ".join(words) for words in opened if words[1] != "0"]
    assert not failed, "; ".join(failed)
    features = [line.split()[0] for line in results.lines("list") if " feature " in line and " available" in line]
    return f"{len(opened)} events; {', '.join(features)}"


@check("nprof-record -e wall -o s.nprof -- waits > truth")
def waiting(results):
    return waits(results, "s.nprof")


@check("limited without-bpf nprof-record -e wall -o s.nprof -- waits > truth")
def waiting_without_bpf(results):
    return waits(results, "s.nprof")


def waits(results, stream, truth="truth"):
    """Judges the waits of a program: at least nine tenths of each are found, and no more than there are."""
    report = results.report(stream)
    for name, ns in results.truth(truth).items():
        weight = sum(row["total"] for row in report["rows"] if row["function"] == name and row["event"] != "cpu-clock")
        assert 0.9 * ns <= weight <= 1.1 * ns, f"{name}: {weight} ns of {ns}"
    text = results.format_text(stream)
    captures = sorted(set(re.findall(r"capture=(\S+)", text)))
    waited = sum(event["samples"] for event in report["events"] if event["event"] == "blocked")
    return f"{', '.join(captures) or 'no capture='}, {waited} waits"


@check("nprof-record -e heap:1 -o s.nprof -- heap > truth")
def memory_is_exact_with_period_1(results):
    return exact(results, "heap.alloc", "heap.live")


@check("nprof-record -e heap:1 -o s.nprof -- blocks > truth")
def memory_of_threads_is_exact_with_period_1(results):
    """The operators of C++, in threads."""
    return exact(results, "heap.alloc", "heap.live")


@check("nprof-record -e heap:64k -o s.nprof -- blocks > truth")
def memory_is_sampled(results):
    """Amounts within 3.5 standard deviations of the sampling, which chance exceeds in one of 2000."""
    report = results.report("s.nprof")
    sums = {(row["event"], row["function"]): row["total"] for row in report["rows"]}
    for name, *amounts in (line.split() for line in results.lines("truth")):
        for event, known in zip(("heap.alloc", "heap.live"), map(int, amounts)):
            # A sample for each 64 KiB, at a random byte: their number has a Poisson distribution.
            found, deviation = sums.get((event, name), 0), (known * 65536) ** 0.5
            assert abs(found - known) <= 3.5 * deviation, f"{event} {name}: {found} of {known}"
    samples = {event["event"]: event["samples"] for event in report["events"]}
    return f"{samples['heap.alloc']} samples of allocations, {samples['heap.live']} of live blocks"


@check("nprof-record -e heap:1 -o s.nprof -- heap-musl > truth")
def memory_with_musl(results):
    """The same library with another C library, which has no unwind tables."""
    return exact(results, "heap.alloc", "heap.live")


@check("nprof-record -e fd -o s.nprof -- files > truth")
def descriptors_are_exact(results):
    return exact(results, "fd.open", "fd.live")


def exact(results, all_event, last_event):
    """Compares amounts by function, of all and of those left at the end, with the program's own."""
    report = results.report("s.nprof")
    sums = {(row["event"], row["function"]): row["total"] for row in report["rows"]}
    for line in results.lines("truth"):
        name, *known = line.split()
        found = [sums.get((event, name), 0) for event in (all_event, last_event)]
        assert found == [int(amount) for amount in known], f"{name}: {found} instead of {', '.join(known)}"
    complete = float(results.stat("s.nprof")["complete_percent"])
    assert complete == 100, f"{complete} % of the stacks are complete"
    return "equal the program's"


NEEDS_VERSION = "refused, with the kernel version that is needed"


def counts_calls(results):
    """True if the kernel can count calls of programs, and the recorder did; otherwise it must say so."""
    if results.kernel_before(6, 6):
        assert results.text("recorded") == "125\n", "a kernel without uprobe_multi was accepted"
        assert "6.6" in results.text("message"), results.text("message")
        return False
    assert results.text("recorded") == "0\n", results.text("message")
    return True


@check("""
nprof-symbolize --entries '^(often|seldom|recursive|adds|reads|floats)$' /programs/calls > list
status=0
nprof-record --calls list -o s.nprof -- calls > truth 2> message || status=$?
echo $status > recorded
""")
def calls_are_exact(results):
    """Where the kernel has links to many uprobes, since Linux 6.6; before, the recorder says so."""
    if not counts_calls(results):
        return NEEDS_VERSION
    report = results.report("s.nprof", "--by", "function")
    sums = {row["function"]: row["self"] for row in report["rows"] if row["event"] == "calls"}
    for name, count in results.truth().items():
        assert sums.get(name) == count, f"{name}: {sums.get(name)} calls instead of {count}"
    return "equal the program's"


@check("""
nprof-record -e calls:1 -o s.nprof -- calls-instrumented > truth
nprof-record -e calls:1 -o pg.nprof -- calls-pg > pg-truth
""")
def calls_of_instrumented_functions_are_exact(results):
    """With the hooks of -finstrument-functions and of -pg."""
    for stream, truth in [("s.nprof", "truth"), ("pg.nprof", "pg-truth")]:
        rows = results.report(stream, "--by", "function")["rows"]
        sums = {row["function"]: row["self"] for row in rows}
        for name, count in results.truth(truth).items():
            assert sums.get(name) == count, f"{stream}: {name}: {sums.get(name)} calls instead of {count}"
    return "equal the program's"


def counted_by_routine(results, event):
    """Returns the sums of an event by function, and the numbers that the program printed."""
    rows = results.report("s.nprof", "--by", "function")["rows"]
    return {row["function"]: row["self"] for row in rows if row["event"] == f"{event}.exact"}, results.truth()


@check("""
nprof-symbolize --entries '^(few|many)$' /programs/routines > list
status=0
nprof-record --calls list --calls-event page-faults -o s.nprof -- routines > truth 2> message || status=$?
echo $status > recorded
""")
def page_faults_of_routines_are_exact(results):
    if not counts_calls(results):
        return NEEDS_VERSION
    sums, truth = counted_by_routine(results, "page-faults")
    for name in ["few", "many"]:
        assert sums.get(name) == truth[name], f"{name}: {sums.get(name)} page faults instead of {truth[name]}"
    return "equal the program's"


@check("""
nprof-symbolize --entries '^(inner|outer)$' /programs/routines > list
nprof-record --calls list --calls-event instructions -o s.nprof -- routines > truth
""", arch="arm64", purpose="one processor")
def instructions_of_routines_are_exact(results):
    """Those of all rounds, which are equal, and at most 30 of each call besides."""
    sums, truth = counted_by_routine(results, "instructions")
    each = {sums.get(name, 0) // truth[name] for name in ["inner", "outer"]}
    besides = {name: sums.get(name, 0) % truth[name] / truth[f"calls.{name}"] for name in ["inner", "outer"]}
    assert len(each) == 1 and 0 not in each, f"{sums}"
    assert max(besides.values()) <= 30, f"{sums}"
    return f"{each.pop()} for each round; for each call " + ", ".join(f"{besides[name]:g} ({name})" for name in besides)


@check("""
case $(uname -m) in x86_64) prefix=x64;; *) prefix=arm64;; esac
status=0
nprof-symbolize --entries "^__${prefix}_sys_getppid\\$" '[kernel]' > list 2> refusal || status=$?
echo $status > listed
[ $status = 0 ] || exit 0
nprof-record --calls list -o s.nprof -- calls > truth 2> message
nprof-symbolize -o there.nprof s.nprof
nprof-record --calls list -o cpus.nprof -- sh -c 'for i in 1 2 3 4 5 6 7 8; do calls > /dev/null & done; wait'
nprof-symbolize --entries '^(vfs|do|sys|ksys|__x64_sys)_' '[kernel]' > many 2> refused
nprof-record --calls many -o many.nprof -- calls > truth 2> many-message
""")
def calls_of_the_kernel_are_exact(results):
    """Where the kernel has probes of many functions; elsewhere, the message names the option that it lacks."""
    if results.text("listed") != "0\n":
        refusal = results.text("refusal")
        assert "CONFIG_FPROBE" in refusal or "CONFIG_KPROBES" in refusal, refusal
        return "refused, with the option that the kernel lacks"
    rows = json.loads(results.tool("nprof-flat", "--format", "json", "there.nprof"))["rows"]
    rows = {row["function"]: row for row in rows if row["event"] == "calls"}
    (name,) = [name for name in rows if name.endswith("_sys_getppid")]
    assert rows[name]["self"] == 500, f"{rows[name]['self']} of 500 calls"
    # Some calls have stacks, which go on in the program.
    system_calls = [name for name in rows if "do_syscall_64" in name or "el0_svc" in name]
    assert system_calls, f"no callers: {list(rows)}"
    # The shell calls the function, too.
    rows = json.loads(results.tool("nprof-flat", "--format", "json", "--by", "thread", "cpus.nprof"))["rows"]
    counts = [row["self"] for row in rows if row["event"] == "calls" and "calls" in row["thread"]]
    assert counts == [500] * 8, f"{counts} calls of eight processes, each of 500"
    functions = len(results.lines("many")) - 1
    rows = results.report("many.nprof")["rows"]
    assert any(row["event"] == "calls" and row["self"] >= 500 for row in rows), "many functions: no calls"
    return f"500 of 500 calls, and of 8 processes; {functions} functions at once: {results.lines('many-message')[-1]}"


@check("""
grep -o '^virtio_blk' /proc/modules > module || true
nprof-record -e cpu-clock -o s.nprof -- dd if=/dev/zero of=/dev/null bs=1M count=100 2> dd
nprof-symbolize --code -o code.nprof s.nprof 2> message
if [ -s module ]; then
    echo 3 > /proc/sys/vm/drop_caches
    # The function is called by an interrupt, in any thread.
    nprof-record -a -e kprobe:virtblk_done:1 -o m.nprof & recorder=$!
    sleep 5
    dd if=/dev/vda of=/dev/null bs=64k count=64 2> dd
    kill -TERM $recorder
    wait $recorder || true
    nprof-symbolize --code -o module.nprof m.nprof 2>> message
fi
""", arch="amd64")  # fmt: skip
def code_of_the_kernel_is_that_in_memory(results):
    """All samples of functions of the kernel and its modules are at instructions, which the kernel has patched."""
    texts = []
    for stream, image in [("code.nprof", "[kernel]"), ("module.nprof", "[virtio_blk]")]:
        if not (results.folder / stream).exists():
            continue
        flat = json.loads(results.tool("nprof-flat", "--format", "json", "--by", "image,function", stream))
        known = {row["function"]: row["self_samples"] for row in flat["rows"] if row["image"] == image}
        known = {function: samples for function, samples in known.items() if samples}
        report = json.loads(results.tool("nprof-annotate", "--format", "json", "-n", "0", stream))
        rows = [row for row in report["rows"] if row["image"] == image]
        found = {}
        for row in rows:
            found[row["function"]] = found.get(row["function"], 0) + row["self_samples"]
        assert found and found == known, f"{image}: samples at instructions {found}, of functions {known}"
        # The file of the kernel has a call of it at the start of each function.
        assert not any(row["callee"] == "__fentry__" for row in rows), f"{image}: code of the file, not of memory"
        texts.append(f"{image}: {len(found)} functions, {sum(found.values())} samples at {len(rows)} instructions")
    return "; ".join(texts)


@check("""
case $(uname -m) in x86_64) prefix=x64;; *) prefix=arm64;; esac
status=0
nprof-record -e kprobe:__${prefix}_sys_getppid:1 -o s.nprof -- calls > truth 2> message || status=$?
echo $status > recorded
""")
def kprobe_counts_exactly(results):
    assert results.text("recorded") == "0\n", results.text("message")
    (event,) = results.report("s.nprof")["events"]
    assert event["samples"] == 500, f"{event['samples']} of 500 calls"
    return "500 of 500 calls"


@check("nprof-record -e sched:sched_process_exit:1 -o s.nprof -- storm 200 2 > truth")
def tracepoint_counts_exactly(results):
    (event,) = results.report("s.nprof")["events"]
    # The program itself, its two workers and their processes.
    assert event["samples"] == 203, f"{event['samples']} exits of 203"
    return "203 of 203 exits"


# At a frequency at which the recorder, on an emulated processor, can unwind stacks of this size as they come.
@check("nprof-record -F 31 -o s.nprof -- deep")
def deep_stacks_are_completed(results):
    stat, report = results.stat("s.nprof"), results.report("s.nprof")
    complete = float(stat["complete_percent"])
    rows = {row["function"]: row["total_percent"] for row in report["rows"]}
    assert complete >= 99, f"{complete} % of the stacks are complete: {report['events'][0]['incomplete']}"
    assert rows["main"] >= 95, f"main has {rows['main']} %"
    return f"{stat['samples']} samples, {complete:.1f} % complete, {stat['stitched_percent']} % by breakpoints"


@check("""
nprof-record --user-only -e cpu-clock -o s.nprof -- loops-cpp > truth
nprof-symbolize s.nprof > there.nprof
nprof-flat --format json there.nprof > there.json
""")
def symbols_equal_those_of_the_machine(results):
    """A stream that was symbolized in the machine has the records of the same stream symbolized here.

    Samples of a counter may be taken in the kernel, after its entry: it has names in the machine only.
    """

    def records(stream):
        lines = results.format_text(stream).splitlines()
        # The step has the command line, and the checksum covers it.
        lines = [line for line in lines if not line.startswith(("@step", "#crc"))]
        # The vDSO is a part of the kernel of the machine, and has names there only.
        fields = [line.split("\t") for line in lines]
        images = {words[1] for words in fields if words[0] == "I" and words[2] == "vdso"}
        frames = {words[1] for words in fields if words[0] == "F" and words[2] in images}
        def is_of_vdso(words):
            return words[0] == "Y" and words[1] in frames or words[0] == "@naming" and "kind=vdso" in words

        lines = [line for line, words in zip(lines, fields) if not is_of_vdso(words)]
        return [re.sub(r"\tcrc=\S+", "", line) if line.startswith("@end") else line for line in lines]

    here, there = records(results.symbolized("s.nprof")), records("there.nprof")
    different = [pair for pair in zip(here, there) if pair[0] != pair[1]]
    assert len(here) == len(there) and not different, f"{len(here)} and {len(there)} records: {different[:1]}"
    return f"{len(here)} records"


@check("nprof-record -q -e cpu-clock -o s.nprof -- storm 8000 32 > truth", purpose="many processes")
def short_processes(results):
    """Eight thousand processes from 32 workers: none is missing, and nothing is lost.

    The emulator interrupts the processors of this machine for longer than a period of the clock, for which the kernel
    takes one sample: the coverage cannot be judged.
    """
    stat, truth = results.stat("s.nprof"), results.truth()
    events = {event["event"]: event for event in results.report("s.nprof")["events"]}
    assert int(stat["tasks"]) >= truth["processes"], f"{stat['tasks']} tasks"
    assert stat["lost_records"] == "0" and stat["lost"] == "0", f"lost {stat['lost']}, records {stat['lost_records']}"
    assert events["cpu-clock"]["samples"] >= 100, f"{events['cpu-clock']['samples']} samples"
    return f"{stat['tasks']} tasks, {events['cpu-clock']['samples']} samples of cpu-clock"


@check("""
cat /sys/kernel/security/lockdown > level
nprof-record -l > list 2>&1
nprof-record -e cpu-clock -o s.nprof -- loops-c > truth 2> message
nprof-record -e wall -o w.nprof -- waits > waits 2>> message
nprof-record -e heap:1 -o h.nprof -- heap > heap 2>> message
nprof-symbolize --entries '^often$' /programs/calls > entries
status=0
nprof-record --calls entries -o c.nprof -- calls > calls 2> refusal || status=$?
echo $status > recorded
""", purpose="locked down")
def records_on_a_locked_down_kernel(results):
    """A kernel that shows none of its memory: time and waiting are recorded, the cause of the rest is named."""
    assert "[confidentiality]" in results.text("level"), results.text("level")
    found = [loops(results), waits(results, "w.nprof", "waits")]
    if results.text("recorded") == "0\n":
        rows = results.report("c.nprof", "--by", "function")["rows"]
        counts = {row["function"]: row["self"] for row in rows if row["event"] == "calls"}
        assert counts == {"often": 20000}, counts
        found.append("20000 of 20000 calls")
    else:
        assert results.text("recorded") == "125\n" and "locked down" in results.text("refusal"), results.text("refusal")
        found.append("calls refused")
    return "; ".join(found)
