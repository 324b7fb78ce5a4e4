#!/usr/bin/env python3
"""Compares the queries in sql/ with the reports of nprof, in DuckDB and DataFusion.

    check.py SQL-DIRECTORY          the tools are in PATH
"""

import pathlib
import random
import re
import subprocess
import sys
import tempfile

import datafusion
import duckdb
import pyarrow

SQL = pathlib.Path(sys.argv[1]).resolve()

# Two functions in three windows of a minute, on two threads; a mark, code without a name, and no stack.
STREAM = """\
@nprof|1.1|run={run}|clock=monotonic|time=0|utc=1795305600000000000|host={host}|command=/bin/prog --x\
|service=api|service_version={version}
@event|id=1|name=cpu-clock|unit=ns|measure=cpu-time|period=1000000
@event|id=2|name=faults|unit=count
I|1|elf|00112233445566778899aabbccddeeff00112233|/bin/prog
I|2|kernel|-|[kernel]
I|3|jit|-|f.js
T|1|0|7|7|0|a;b
T|2|0|7|8|0|worker
F|1|1|0x1010|u,ra
F|2|1|0x2020|u
F|3|1|0x3030|u
F|4|2|0x4040|k
F|5|0|0x0|u,max-depth
F|6|3|0x0|u
U|1|main|-
U|2|=f;\\n\\x1b, "<&>|-
U|3|inlined|-
D|1|/src/a.c
Y|1|named|1,1,10,0
Y|2|named|3,1,7,0|2,1,20,0
Y|6|named|2,0,0,0
N|1|0|1|2
N|3|1|3
N|4|0|5|1|4
N|7|1|6
S|1000|1|1|0|2|1000000|1
S|2000|1|2|0|2|{weight}|{count}
S|61000000000|1|1|0|3|1000000|1
S|62000000000|1|1|0|6|3000000|3
S|121000000000|2|1|0|2|1|1
S|122000000000|1|1|0|7|2000000|2
S|123000000000|1|1|0|0|4000000|4
@end|samples=7|records=24|lost=0
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def flat(streams):
    """Returns the rows of nprof-flat."""
    lines = run('nprof-flat', '--format', 'tsv', '-n', '0', *streams).decode().splitlines()
    names = next(line for line in lines if not line.startswith('#')).split('\t')
    wanted = ['event', 'function', 'image', 'self_samples', 'total_samples', 'self', 'total']
    rows = [dict(zip(names, line.split('\t'))) for line in lines if not line.startswith('#')][1:]
    return sorted(tuple(row[name] for name in wanted) for row in rows)


def scripts(*names):
    return [(SQL / f'{name}.sql').read_text() for name in names]


# The view that diff.sql reads.
COMPARED = '''create or replace view compared as
    select 'api' as service, 'cpu-clock' as event, '1.0' as base, '1.1' as new'''


def by_duckdb(directory, query):
    connection = duckdb.connect()
    connection.execute(f"set file_search_path = '{directory}'")
    for script in [*scripts('views', 'calls'), COMPARED]:
        connection.execute(script)
    return connection.execute(query).fetchall()


def statements(script):
    lines = [line for line in script.splitlines() if not line.startswith('--')]
    return [text for text in '\n'.join(lines).split(';') if text.strip()]


def by_datafusion(directory, query):
    context = datafusion.SessionContext()
    for table in ['samples', 'stacks', 'frames', 'symbols', 'runs']:
        # The other queries need no columns of folders.
        folders = [('day', pyarrow.string()), ('service', pyarrow.string())] if table == 'samples' else []
        context.register_parquet(f'{table}_files', f'{directory}/{table}/', table_partition_cols=folders)
    for script in [*scripts('views', 'calls'), COMPARED]:
        # The function that reads files has another name in each engine.
        script = re.sub(r"read_parquet\('(\w+)/[^)]*\)", r'\1_files', script)
        for statement in statements(script):
            context.sql(statement)
    [query] = statements(query)
    rows = context.sql(query).to_pylist()
    return [tuple(row.values()) for row in rows]


ENGINES = {'DuckDB': by_duckdb, 'DataFusion': by_datafusion}


def check_flat(directory, streams, what):
    expected = flat(streams)
    for name, engine in ENGINES.items():
        rows = sorted(tuple(str(value) for value in row) for row in engine(directory, *scripts('flat')))
        different = set(rows) ^ set(expected)
        assert not different, (what, name, sorted(different))
        print(f'{what}: {name}: {len(rows)} rows as nprof-flat')


def export(directory, *streams):
    run('nprof-export', '--to', 'parquet', '-o', directory, *streams)


def check_built(work):
    """A stream with every kind of row, on two hosts with two versions each."""
    streams = []
    for number, (host, version) in enumerate([(h, v) for h in 'abc' for v in ('1.0', '1.1')], 1):
        count = 20 if version == '1.1' else 5
        text = STREAM.format(run=f'{number:#x}', host=host, version=version, count=count,
                             weight=count * 1000000)
        streams.append(work / f'{number}.nprof')
        streams[-1].write_text(text.replace('|', '\t'))
    directory = work / 'built'
    for stream in streams:
        export(directory, stream)
    # The same run again replaces its files.
    export(directory, streams[0])
    check_flat(directory, streams, 'built')
    folded = run('nprof-paths', '--event', 'faults', '--format', 'folded', *streams).decode()
    [paths] = scripts('paths')
    rows = [row for row in by_duckdb(directory, paths) if row[0] == 'faults']
    # nprof-paths begins with the name of the thread, and escapes separators.
    assert rows == [('faults', 'main;=f;\\n\\x1b, "<&>;inlined', 6)], (rows, folded)



def check_namings(work):
    """Hosts that find more or fewer inlined calls of a frame: a query sees those of one host."""
    names = ['Y|1|named|1,0,0,0', 'Y|1|stripped', 'Y|1|named|2,0,3,0|1,0,9,0', 'Y|1|named|3,0,0,0']
    for number, name in enumerate(names, 1):
        text = f'@nprof|1.1|run={number:#x}|service=api\n@event|id=1|name=cycles\nI|1|elf|0011|/bin/prog\n' \
               'F|1|1|0x10|u\nU|1|main|-\nU|2|inlined|-\nU|3|another|-\n' \
               f'{name}\nN|1|0|1\nS|5|1|0|-|1|1|1\n@end|samples=1|records=5|lost=0\n'
        stream = work / f'{number}.names'
        stream.write_text(text.replace('|', '\t'))
        export(work / 'namings', stream)
    for name, engine in ENGINES.items():
        rows = engine(work / 'namings', *scripts('flat'))
        assert rows == [('cycles', 'inlined', 'prog', 4, 4, 4, 4), ('cycles', 'main', 'prog', 0, 4, 0, 4)], (name, rows)
    print('names of several hosts: those with the most inlined calls')


def check_diff(work):
    """Hosts of equal weight, of which the versions differ: shares of all engines are those of nprof-diff."""
    generator = random.Random(1)
    sides = {'1.0': [], '1.1': []}
    for number, version in enumerate(['1.0', '1.1'] * 4, 1):
        a = generator.randrange(100, 200) + (50 if version == '1.1' else 0)
        b = (600 - a) // 3
        head, _, _ = STREAM.format(run=f'{number:#x}', host=f'host{number}', version=version, count=1,
                                   weight=1).partition('S|')
        sums = [(1, 2, a), (2, 3, b), (1, 0, 600 - a - b)]
        lines = [f'S|{at}000|1|{task}|0|{node}|{count}000000|{count}'
                 for at, (task, node, count) in enumerate(sums, 1)]
        stream = work / f'{number}.diff'
        stream.write_text('\n'.join([head + lines[0], *lines[1:], '@end|samples=3|records=20|lost=0', ''])
                          .replace('|', '\t'))
        sides[version].append(stream)
        export(work / 'diff', stream)
    lines = run('nprof-diff', '--format', 'tsv', '-n', '0', '--base', *sides['1.0'], '--new', *sides['1.1']).decode()
    names, *rows = [line.split('\t') for line in lines.splitlines() if not line.startswith('#')]
    rows = [dict(zip(names, row)) for row in rows]
    expected = {row['name']: [float(row[f'total_{side}']) for side in ('base', 'new', 'diff')] for row in rows}
    results = []
    for name, engine in ENGINES.items():
        result = engine(work / 'diff', *scripts('diff'))
        # nprof-diff joins the code of an image without names.
        found = {row[0].replace('prog+0x3030', '[unnamed in prog]'): row for row in result}
        assert found.keys() == expected.keys(), (name, found, expected)
        for function, row in found.items():
            # nprof-diff prints six decimals.
            assert all(abs(a - b) < 1e-6 for a, b in zip(row[2:5], expected[function])), (name, row, expected)
            assert 1 < row[5] < 20 and row[6:] == (4, 4), (name, row)
        print(f'diff: {name}: {len(found)} rows with the shares of nprof-diff')
        results.append({row[:2]: row[2:] for row in result})
    for key, row in results[0].items():
        assert all(abs(a - b) < 1e-9 for a, b in zip(row, results[1][key])), results


def check_recorded(work):
    """A recording of a real program: named before the export, and later by build ID."""
    program = ['perl', '-e', '$x += $_ ** 0.5 for 1 .. 3e6; $h{$_ % 99} .= "a" for 1 .. 1e6']
    recording, named = work / 'x.nprof', work / 'y.nprof'
    run('nprof-record', '-q', '-o', recording, '--', *program)
    named.write_bytes(run('nprof-symbolize', recording))
    export(work / 'named', named)
    check_flat(work / 'named', [named], 'named')
    export(work / 'later', recording)
    check_flat(work / 'later', [recording], 'unnamed')
    rows = by_duckdb(work / 'later', *scripts('unnamed'))
    frames = work / 'frames.txt'
    frames.write_text(''.join(f'{line}\n' for line, in rows))
    names = work / 'names.nprof'
    names.write_bytes(run('nprof-symbolize', frames))
    export(work / 'names', names)
    run('cp', '-r', work / 'names/symbols', work / 'later')
    # A later pass has files of its own.
    assert by_duckdb(work / 'later', *scripts('unnamed'))[0] != rows[0], rows[0]
    check_flat(work / 'later', [named], 'named later')


with tempfile.TemporaryDirectory() as directory:
    check_built(pathlib.Path(directory))
    check_namings(pathlib.Path(directory))
    check_diff(pathlib.Path(directory))
    check_recorded(pathlib.Path(directory))
