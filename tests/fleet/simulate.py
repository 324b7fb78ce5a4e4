#!/usr/bin/env python3
"""Simulates hosts of one service, and prints the bytes of a sample in the files of nprof-export.

    simulate.py HOSTS HOURS SAMPLES-PER-SECOND DIRECTORY WINDOW...      the tools are in PATH

A host draws stacks from 20,000 with Zipf's law, which is about that of real services: the profile of one
is flat in its tail. Hosts differ in which of the stacks are frequent.
"""

import bisect
import collections
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import sys

STACKS, FRAMES, DEPTH = 20_000, 8_000, 24
START = 1_795_305_600 * 10**9


def tree(generator):
    """Returns nodes (parent, frame), and the leaf of each stack."""
    nodes, leaves = [], []
    for _ in range(STACKS):
        # A stack shares most callers with an earlier one.
        parent = generator.choice(leaves) if leaves else 0
        for _ in range(generator.randrange(DEPTH)):
            parent = nodes[parent - 1][0] if parent else 0
        for _ in range(generator.randrange(1, DEPTH // 2)):
            nodes.append((parent, generator.randrange(1, FRAMES + 1)))
            parent = len(nodes)
        leaves.append(parent)
    return nodes, leaves


def head(host, hour, nodes):
    utc = START + hour * 3600 * 10**9
    yield f'@nprof\t1.1\trun={hash((host, hour)) & (2**63 - 1):#x}\tclock=monotonic\ttime=0\tutc={utc}' \
          f'\thost=host{host}\tcommand=system\tservice=api\tservice_version=1.0'
    yield '@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=19'
    yield 'I\t1\telf\t00112233445566778899aabbccddeeff00112233\t/opt/api'
    yield 'T\t1\t0\t7\t7\t0\tapi'
    yield from (f'F\t{id}\t1\t{id * 64:#x}\tu,ra' for id in range(1, FRAMES + 1))
    yield from (f'N\t{id}\t{parent}\t{frame}' for id, (parent, frame) in enumerate(nodes, 1))


def samples(generator, order, leaves, cumulative, rate):
    for minute in range(60):
        drawn = collections.Counter(
            order[bisect.bisect(cumulative, generator.random() * cumulative[-1])]
            for _ in range(60 * rate))
        for index, (stack, count) in enumerate(sorted(drawn.items())):
            time = minute * 60 * 10**9 + index
            yield f'S\t{time}\t1\t1\t0\t{leaves[stack]}\t{count * 10**9 // 19}\t{count}', count


def main():
    hosts, hours, rate = map(int, sys.argv[1:4])
    work, windows = pathlib.Path(sys.argv[4]), sys.argv[5:]
    generator = random.Random(1)
    nodes, leaves = tree(generator)
    cumulative = list(itertools.accumulate(1 / rank for rank in range(1, STACKS + 1)))
    total, in_streams = 0, 0
    work.mkdir(exist_ok=True)
    for host in range(hosts):
        order = list(range(STACKS))
        # Every host has some stacks that are frequent elsewhere only.
        for _ in range(STACKS // 50):
            a, b = generator.randrange(STACKS), generator.randrange(STACKS)
            order[a], order[b] = order[b], order[a]
        for hour in range(hours):
            lines = list(head(host, hour, nodes))
            records = len(lines) - 1
            count = 0
            for line, number in samples(generator, order, leaves, cumulative, rate):
                lines.append(line)
                count, records, total = count + 1, records + 1, total + number
            lines.append(f'@end\tsamples={count}\trecords={records}\tlost=0')
            stream = work / 'stream'
            stream.write_text('\n'.join(lines) + '\n')
            for window in windows:
                subprocess.run(['nprof-export', '--to', 'parquet', '--window', window, '-o', work / window, stream],
                               check=True, stderr=subprocess.DEVNULL)
            in_streams += 1
    for window in windows:
        sizes = collections.Counter()
        for path in (work / window).rglob('*.parquet'):
            sizes[path.relative_to(work / window).parts[0]] += path.stat().st_size
        print(f'{window}: {total} samples in {in_streams} files per table,'
              f' {sum(sizes.values()) / total:.2f} bytes a sample:',
              ', '.join(f'{table} {size / total:.2f}' for table, size in sorted(sizes.items())))
    os.remove(work / 'stream')


main()
