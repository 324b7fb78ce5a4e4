#!/usr/bin/env python3
"""Simulates a day of hosts from recordings of real programs, and prints the bytes of a sample in the files of
nprof-export, and the times of the queries in DuckDB.

    simulate.py [--hosts N] [--hours N] [--busy CPUS] [--window SECONDS] [--jobs N]
                SQL-DIRECTORY DIRECTORY RECORDING...

Each recording, which nprof-symbolize has named, is a service. A host runs one of them and samples it at 19 Hz.
Nine of ten samples have the stacks of the recording, in its proportions; one of ten has a stack that begins as
one of them and ends as another (20,000 for each service, by Zipf's law), since a day has more stacks than a
short recording. Hosts differ in their load, by a factor and by the hour, and in the proportions of stacks. Half
of the hosts have version 1.1, in which the function with the most self time takes a fifth more. The tools are in PATH.
"""

import argparse
import collections
import multiprocessing
import os
import pathlib
import resource
import subprocess
import time

import duckdb
import numpy

RATE = 19
RARE = 20_000
START = 1_795_305_600 * 10**9


class Service:
    """The stacks of a recording."""

    def __init__(self, recording, generator):
        self.name = pathlib.Path(recording).stem
        text = subprocess.run(['nprof-format', 'text', recording], stdout=subprocess.PIPE, check=True).stdout
        self.definitions, self.parents, self.frames = [], {0: 0}, {}
        names, functions = {}, {}
        counts = collections.Counter()
        for line in text.decode('utf-8', 'surrogateescape').splitlines():
            fields = line.split('\t')
            if fields[0] in ('I', 'F', 'D', 'U', 'Y'):
                self.definitions.append(line)
                if fields[0] == 'U':
                    names[fields[1]] = fields[2]
                elif fields[0] == 'Y' and len(fields) > 3:
                    # The innermost call comes first.
                    functions[int(fields[1])] = fields[3].split(',')[0]
            elif fields[0] == 'N':
                first, parent, *frames = map(int, fields[1:])
                for id, frame in enumerate(frames, first):
                    self.parents[id], self.frames[id] = parent, frame
                    parent = id
            elif fields[0] == 'S' and fields[2] == '1':
                counts[int(fields[5])] += int(fields[7])
            assert not line.startswith('@epoch'), 'the recording is too long'
        counts.pop(0, None)
        leaves, weights = zip(*sorted(counts.items()))
        rare = self.recombine(list(leaves), generator)
        zipf = 1 / numpy.arange(1, len(rare) + 1)
        self.leaves = numpy.array(list(leaves) + rare)
        frequent = numpy.array(weights) / sum(weights)
        self.shares = numpy.concatenate([0.9 * frequent, 0.1 * zipf / zipf.sum()])
        self.recorded = len(leaves)
        own = [functions.get(self.frames[leaf]) for leaf in self.leaves]
        times = collections.Counter()
        for function, share in zip(own, self.shares):
            times[function] += share
        del times[None]
        [(hottest, _)] = times.most_common(1)
        self.slowed = names[hottest]
        self.slower = numpy.array([function == hottest for function in own])

    def path(self, node):
        nodes = []
        while node:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def recombine(self, leaves, generator):
        """Adds nodes for the callers of a stack with the callees that another has of the same frame."""
        by_frame, found = collections.defaultdict(list), {}
        paths = [self.path(leaf) for leaf in leaves]
        for path in paths:
            for place, node in enumerate(path[:-1]):
                by_frame[self.frames[node]].append((path, place))
        children = {(parent, self.frames[node]): node for node, parent in self.parents.items() if node}
        for _ in range(20 * RARE):
            path = paths[generator.integers(len(paths))]
            node = path[generator.integers(len(path))]
            others = by_frame.get(self.frames[node])
            if others is None:
                continue
            other, place = others[generator.integers(len(others))]
            for next in other[place + 1:]:
                key = (node, self.frames[next])
                if key not in children:
                    children[key] = len(self.parents)
                    self.parents[children[key]], self.frames[children[key]] = node, key[1]
                node = children[key]
            found[node] = None
            if len(found) == RARE:
                break
        return list(found)

    def nodes(self):
        return [f'N\t{node}\t{self.parents[node]}\t{frame}' for node, frame in sorted(self.frames.items())]


def stream(host, service, hours, busy, window, generator):
    """Yields the parts of the stream of a host, and at last its number of samples."""
    version = '1.1' if host % 2 else '1.0'
    nodes = service.nodes()
    yield (f'@nprof\t1.1\trun={host + 1:#x}\tclock=monotonic\ttime=0\tutc={START}\thost=host{host}\tcommand=system'
           f'\tservice={service.name}\tservice_version={version}\n'
           f'@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency={RATE}\n'
           f'T\t1\t0\t7\t7\t0\t{service.name}\n')
    yield '\n'.join(service.definitions + nodes) + '\n'
    shares = service.shares * generator.lognormal(0, 0.5, len(service.shares))
    shares[service.slower] *= 1.2 if version == '1.1' else 1
    shares /= shares.sum()
    recorded, rare = shares[:service.recorded], numpy.cumsum(shares[service.recorded:])
    load = busy * generator.lognormal(-0.32, 0.8)
    total = sums = 0
    # The samples of a window have its beginning as their time, as the export sums them anyway.
    for second in range(0, hours * 3600, window):
        by_day = 1 + 0.5 * numpy.sin(2 * numpy.pi * second / 86400)
        mean = load * by_day * window * RATE
        counts = generator.poisson(mean * recorded)
        [frequent] = counts.nonzero()
        drawn = generator.random(generator.poisson(mean * rare[-1])) * rare[-1]
        others, of_others = numpy.unique(numpy.searchsorted(rare, drawn), return_counts=True)
        leaves = service.leaves[numpy.concatenate([frequent, service.recorded + others])].tolist()
        counts = numpy.concatenate([counts[frequent], of_others]).tolist()
        time = second * 10**9 + 1
        yield ''.join([f'S\t{time}\t1\t1\t0\t{leaf}\t{n * 10**9 // RATE}\t{n}\n'
                       for leaf, n in zip(leaves, counts)])
        total, sums = total + sum(counts), sums + len(counts)
    definitions = sum(line[0] in 'IF' for line in service.definitions)
    yield f'@end\tsamples={sums}\trecords={sums + definitions + len(nodes) + 2}\tlost=0\n'
    yield int(total)


def simulate(host):
    """Exports the day of a host. Returns its samples, the CPU time of the export, and that of the simulation."""
    args, services = simulated
    before = [cpu_time(resource.RUSAGE_CHILDREN), cpu_time(resource.RUSAGE_SELF)]
    # Two hosts with both versions of each service.
    service = services[host // 2 % len(services)]
    export = subprocess.Popen(['nprof-export', '--to', 'parquet', '--window', f'{args.window}s',
                               '-o', args.directory], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    for part in stream(host, service, args.hours, args.busy, args.window, numpy.random.default_rng([2, host])):
        if isinstance(part, str):
            export.stdin.write(part.encode('utf-8', 'surrogateescape'))
    _, message = export.communicate()
    assert export.returncode == 0, message
    after = [cpu_time(resource.RUSAGE_CHILDREN), cpu_time(resource.RUSAGE_SELF)]
    return part, after[0] - before[0], after[1] - before[1]


def cpu_time(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def queries(sql, work, service):
    connection = duckdb.connect()
    connection.execute(f"set file_search_path = '{work}'")
    for script in ['views', 'calls']:
        connection.execute((sql / f'{script}.sql').read_text())
    connection.execute(f"create view compared as select '{service}' as service, 'cpu-clock' as event,"
                       " '1.0' as base, '1.1' as new")
    for script in ['flat', 'paths', 'diff']:
        wall, cpu = time.monotonic(), cpu_time(resource.RUSAGE_SELF)
        rows = connection.execute((sql / f'{script}.sql').read_text()).fetchall()
        print(f'{script}: {len(rows)} rows, {time.monotonic() - wall:.1f} s,'
              f' {cpu_time(resource.RUSAGE_SELF) - cpu:.1f} s of CPU time; first row {rows[0] if rows else None}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--hosts', type=int, default=200)
    parser.add_argument('--hours', type=int, default=24)
    parser.add_argument('--busy', type=float, default=1)
    parser.add_argument('--window', type=int, default=60, help='seconds')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('sql', type=pathlib.Path)
    parser.add_argument('directory', type=pathlib.Path)
    parser.add_argument('recordings', nargs='+')
    args = parser.parse_args()
    generator = numpy.random.default_rng(1)
    services = [Service(recording, generator) for recording in args.recordings]
    for service in services:
        print(f'{service.name}: {len(service.leaves)} stacks, version 1.1 is slower in {service.slowed}')
    global simulated
    simulated = args, services
    # The processes are forks, which have the services.
    with multiprocessing.get_context('fork').Pool(args.jobs) as pool:
        done = pool.map(simulate, range(args.hosts), chunksize=1)
    total = sum(samples for samples, _, _ in done)
    sizes = collections.Counter()
    for path in args.directory.rglob('*.parquet'):
        sizes[path.relative_to(args.directory).parts[0]] += path.stat().st_size
    print(f'{total} samples, {sum(sizes.values()) / 1e9:.3f} GB, {sum(sizes.values()) / total:.3f} bytes a sample:',
          ', '.join(f'{table} {size / total:.3f}' for table, size in sorted(sizes.items())))
    print(f'CPU time: export {sum(own for _, own, _ in done):.0f} s, simulation'
          f' {sum(own for _, _, own in done) + cpu_time(resource.RUSAGE_SELF):.0f} s')
    queries(args.sql, args.directory, services[0].name)


main()
