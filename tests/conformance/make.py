#!/usr/bin/env python3
"""Writes the vectors that are binary, or that an editor would change.

usage: python3 -B make.py

Every one is built here byte by byte from nprof-format(5); none is the output of a tool. It is
run by hand; what it writes below vectors/ is kept in the repository. A vector NN-name.nprof
has the text that its records are in NN-name.txt, a vector too, or else in NN-name.expected;
a vector NN-name.txt that is not the text of its own records has that in NN-name.expected.
"""

import pathlib
import struct

from reader import MAGIC, crc32c

VECTORS = pathlib.Path(__file__).parent / "vectors"


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def zigzag(difference):
    """Encodes a time as the signed difference to the previous one."""
    return varint(difference << 1 if difference >= 0 else -difference * 2 - 1)


def string(raw):
    return varint(len(raw)) + raw


def record(kind, *body):
    body = b"".join(part if isinstance(part, bytes) else varint(part) for part in body)
    return bytes([kind]) + varint(len(body)) + body


def sample(difference, *given, flags=31):
    """Encodes a sample with the fields event, task, cpu + 1, weight and count, or those in flags."""
    return record(32, flags, zigzag(difference), 0, *given)


def block(number, samples, *records, run=1, time=0, magic=MAGIC, major=1, minor=1, must=0, may=0,
          size=None):
    payload = b"".join(records)
    header = magic + struct.pack("<BBBBIQIQQ", major, minor, must, may,
                                len(payload) if size is None else size, run, number, samples, time)
    header += struct.pack("<I", crc32c(header))
    return header + payload + struct.pack("<I", crc32c(header + payload))


def flipped(data, at):
    """Flips one bit of a byte."""
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


def write(name, data, lines=None):
    """Writes a vector and, given lines, its text."""
    path = VECTORS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if lines is not None:
        is_vector = name.startswith("complete") and name.endswith(".nprof")
        text = ".txt" if is_vector else ".expected"
        path.with_suffix(text).write_bytes("".join(line + "\n" for line in lines).encode())


# A stream of three blocks, and its lines; most defective vectors are variants of it.

HEAD = record(1, b"run=0x1")
EVENT = record(2, b"id=1\tname=cpu-clock")
TASK = record(9, 1, zigzag(100), 10, 10, 0, string(b"a"))
NO_SAMPLES = record(4, b"samples=0\trecords=0\tlost=0")
BLOCKS = [
    block(0, 0, HEAD, EVENT, TASK, sample(0, 1, 1, 0, 5, 1)),
    block(1, 1, sample(10, 1, 1, 0, 5, 1), sample(10, flags=0), time=100),
    block(2, 3, sample(10, 1, 1, 0, 5, 1), record(4, b"samples=4\trecords=6\tlost=0"), time=120),
]
LINES = [
    ["@nprof\t1.1\trun=0x1", "@event\tid=1\tname=cpu-clock", "T\t1\t100\t10\t10\t0\ta",
     "S\t100\t1\t1\t-\t0\t5\t1"],
    ["S\t110\t1\t1\t-\t0\t5\t1", "S\t120\t1\t1\t-\t0\t5\t1"],
    ["S\t130\t1\t1\t-\t0\t5\t1", "@end\tsamples=4\trecords=6\tlost=0"],
]
STREAM, TEXT = b"".join(BLOCKS), sum(LINES, [])
EMPTY, EMPTY_TEXT = block(0, 0, HEAD, NO_SAMPLES), ["@nprof\t1.1\trun=0x1",
                                                    "@end\tsamples=0\trecords=0\tlost=0"]


def spelled(lines):
    return "".join(line + "\n" for line in lines).encode()


def checked(lines, every=1024, promise=True):
    """Returns a segment in text with its checksums."""
    data, since = b"", b""
    for at, line in enumerate(lines[:-1]):
        line += "\tcheck=crc32c" if promise and at == 0 else ""
        since += line.encode() + b"\n"
        data += line.encode() + b"\n"
        if at % every == every - 1:
            data += f"#crc\t{crc32c(since):#x}\n".encode()
            since = b""
    end = lines[-1].encode()
    return data + end + f"\tcrc={crc32c(since + end):#x}\n".encode()


def segment(records, *body):
    """Returns a segment of one block, with a number of records in its end record."""
    samples = sum(part[0] == 32 for part in body)
    end = record(4, f"samples={samples}\trecords={records}\tlost=0".encode())
    return block(0, 0, HEAD, *body, end)


def segment_text(records, *lines):
    samples = sum(line.startswith("S\t") for line in lines)
    return [EMPTY_TEXT[0], *lines, f"@end\tsamples={samples}\trecords={records}\tlost=0"]


def complete():
    write("complete/40-three-blocks.nprof", STREAM, TEXT)
    write("complete/41-fields-left-out.nprof", segment(
        7, sample(5, flags=0), sample(1, 7, flags=1), sample(1, 8, flags=2),
        sample(1, 2, flags=4), sample(1, 9, flags=8), sample(1, 3, flags=16),
        sample(1, flags=0)), segment_text(
        7, "S\t5\t0\t0\t-\t0\t0\t1", "S\t6\t7\t0\t-\t0\t0\t1", "S\t7\t7\t8\t-\t0\t0\t1",
        "S\t8\t7\t8\t1\t0\t0\t1", "S\t9\t7\t8\t1\t0\t9\t1", "S\t10\t7\t8\t1\t0\t9\t3",
        "S\t11\t7\t8\t1\t0\t9\t1"))
    write("complete/42-times-of-all-kinds-count.nprof", segment(
        5, record(9, 1, zigzag(100), 10, 10, 0, string(b"a")), sample(-10, 0, 0, 1, 0, 0),
        record(33, zigzag(20), 1, 2, string(b"0")), record(34, zigzag(-5), 0, 0, 0, 1, 1),
        record(34, zigzag(0), 0, 0, 0, 9, 4)),
        segment_text(5, "T\t1\t100\t10\t10\t0\ta", "S\t90\t0\t0\t0\t0\t0\t0", "X\t110\t1\texit\t0",
                     "L\t105\t0\t-\t0\t1\tthrottle", "L\t105\t0\t-\t0\t9\tmultiplex"))
    write("complete/43-largest-numbers.nprof", segment(
        2, record(32, 24, varint((1 << 64) - 1), 0, (1 << 64) - 1, (1 << 64) - 1),
        record(10, 1 << 26, 1 << 26, (1 << 64) - 1, 3, b"\xff")), segment_text(
        2, "S\t9223372036854775808\t0\t0\t-\t0\t18446744073709551615\t18446744073709551615",
        "F\t67108864\t67108864\t0xffffffffffffffff\tk,ra,?255"))
    write("complete/44-empty-block.nprof",
          block(0, 0, HEAD) + block(1, 0) + block(2, 0, NO_SAMPLES), EMPTY_TEXT)
    write("complete/45-flags-to-be-ignored.nprof", block(0, 0, HEAD, NO_SAMPLES, minor=9, may=255),
          EMPTY_TEXT)
    write("complete/46-mixed-spellings.nprof", STREAM + spelled(EMPTY_TEXT) + EMPTY
          + spelled(TEXT) + STREAM, TEXT + EMPTY_TEXT * 2 + TEXT * 2)
    write("complete/47-mark-in-a-string.nprof", segment(1, record(66, 1, string(MAGIC)), record(
        9, 1, zigzag(0), 0, 0, 0, string(EMPTY))), segment_text(
        1, "D\t1\t\\x89NPF\\r\\n\\x1a\\n", "T\t1\t0\t0\t0\t0\t" + "".join(
            {9: "\\t", 10: "\\n", 13: "\\r"}.get(byte) or (
                chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in EMPTY)))
    write("complete/48-optional-kinds.nprof", segment(
        0, record(111, "x-note\té -".encode()), record(112), record(127, b"\0\n"),
        record(107, b"ab")), segment_text(0, "x-note\té -", "?112\t", "?127\t000a", "?107\t6162"))
    write("complete/49-epoch-and-extras.nprof", block(0, 0, HEAD, record(8, 1, 2, 0, string(
        b"ext4"), b"base=0xff\tx=a=b")) + block(1, 0, record(3, b"number=1"), record(
            67, 1, 1, 1, 0, 0, 0, 0, b"by=\\xff"), record(
                4, b"samples=0\trecords=2\tlost=0")),
        segment_text(2, "I\t1\tmodule\t-\text4\tbase=0xff\tx=a=b", "@epoch\tnumber=1",
                     "Y\t1\tno-symbol\t0,0,0,0\tby=\\xff"))


    many = segment_text(0, *["D\t1\ta"] * 1100)
    write("complete/50-checksum.txt", checked(TEXT), TEXT)
    write("complete/51-checksum-in-the-middle.txt", checked(many), many)
    write("complete/52-checksums-where-the-lines-are-all-checked.txt", checked(
        many[:1024] + many[-1:]), many[:1024] + many[-1:])
    write("complete/53-checksum-that-was-not-promised.txt", checked(TEXT, promise=False), TEXT)
    write("complete/54-checksum-of-lines-and-not-of-comments.txt", checked(TEXT).replace(
        b"T\t", b"# a comment\n\n#crc 0x0\nT\t"), TEXT)
    write("complete/55-checksums-of-some-segments.txt", checked(TEXT) + checked(EMPTY_TEXT)
          + spelled(TEXT) + checked(TEXT, every=2), TEXT + EMPTY_TEXT + TEXT + TEXT)
    write("complete/56-checksums-around-binary.nprof", checked(TEXT) + STREAM + checked(TEXT),
          TEXT * 3)
    # A name that ends in @nprof looks like a line that was cut off before the head of another segment,
    # so text escapes it. Lines of other kinds are recognized by their kind.
    name, note = string(b"a@nprof"), b"x-note@nprof\t1.1\trun=0x1"
    write("complete/58-names-that-end-like-a-head.nprof", segment(
        1, record(65, 1, name, string(b"1.1"), b"run=0x1"), record(9, 1, 0, 1, 1, 0, name),
        record(111, note)), segment_text(
            1, "U\t1\ta\\x40nprof\t1.1\trun=0x1", "T\t1\t0\t1\t1\t0\ta\\x40nprof",
            "?111\t" + note.hex()))
    write("complete/59-bodies-of-kind-111-that-are-no-lines.nprof", segment(
        0, record(111), record(111, b"X-note"), record(111, b"x\n"), record(111, b"x\xff")),
        segment_text(0, "?111\t", "?111\t582d6e6f7465", "?111\t780a", "?111\t78ff"))
    write("complete/60-empty-values.nprof", segment(
        1, record(64, b"tool=\tversion=1\tx="), record(2, b"id=1\tname="),
        record(66, 1, string(b"a"), b"y=")), segment_text(
            1, "@step\tversion=1\tx=", "@event\tid=1", "D\t1\ta\ty="))
    write("complete/61-blocks-without-records.nprof", EMPTY + block(1, 0) + block(0, 0) + STREAM,
          EMPTY_TEXT + TEXT)
    write("complete/62-comments-then-binary.nprof", b"# a comment\n\n#\n" + EMPTY, EMPTY_TEXT)
    write("complete/63-run-of-the-blocks-is-not-the-head's.nprof", block(
        0, 0, HEAD, run=9) + block(1, 0, NO_SAMPLES, run=9), EMPTY_TEXT)
    write("complete/64-merged.nprof", segment(
        3, record(5, b"run=0x2\ttime=1\tutc=9\tlater=1"),
        record(9, 1, 0, 1, 1, 0, string(b"a"), b"run=0x2"),
        record(6, b"run=0x2\treason=exit\tsamples=0\trecords=1\tlost=0\tstitched=0")),
        segment_text(3, "@run\trun=0x2\ttime=1\tutc=9\tlater=1", "T\t1\t0\t1\t1\t0\ta\trun=0x2",
                     "@run_end\trun=0x2\treason=exit\tsamples=0\trecords=1\tlost=0\tstitched=0"))
    write("complete/65-naming.nprof", segment(
        0, record(68, b"image=/a\\nb\tkind=elf\tbuild_id=0a\tnamed=3\tunnamed=4\tunnamed_by_status=stripped 4"
                  b"\tremedy=apt install a-dbg\tlater=1")), segment_text(
            0, "@naming\timage=/a\\nb\tkind=elf\tbuild_id=0a\tnamed=3\tunnamed=4"
               "\tunnamed_by_status=stripped 4\tremedy=apt install a-dbg\tlater=1"))
    write("complete/57-epoch-that-is-not-first.nprof", segment(
        3, EVENT, record(3, b"number=1"), EVENT), segment_text(
            3, LINES[0][1], "@epoch\tnumber=1", LINES[0][1]))
    write("complete/66-lost-samples-of-others-and-lost-records.nprof", block(0, 0, HEAD, record(
        34, zigzag(5), 0, 0, 0, 3, 0, b"others=7"), record(34, zigzag(0), 0, 0, 0, 0, 0, b"records=9"),
        record(4, b"samples=0\trecords=2\tlost=3\tlost_others=7\tlost_records=9\tunseen=2\tlate=0")),
        [EMPTY_TEXT[0], "L\t5\t0\t-\t0\t3\tring\tothers=7", "L\t5\t0\t-\t0\t0\tring\trecords=9",
         "@end\tsamples=0\trecords=2\tlost=3\tlost_others=7\tlost_records=9\tunseen=2\tlate=0"])
    times = b"wall=9\tcpu=2\trunnable=3\tblocked=4"
    ends = "\ttask_ns=2\twall_ns=9\trunnable_ns=3\tblocked_ns=4"
    write("complete/67-times-of-a-task.nprof", block(0, 0, HEAD, TASK, record(
        33, zigzag(9), 1, 3, 0, times), record(
            4, b"samples=0\trecords=2\tlost=0" + ends.encode())), [
                EMPTY_TEXT[0], LINES[0][2], "X\t109\t1\ttimes\t-\t" + times.decode(),
                "@end\tsamples=0\trecords=2\tlost=0" + ends])
    # Rows: offset, function, file, line, column; the offset is the distance from the row before.
    rows, callees = bytes([0, 1, 1, 7, 2, 0, 2, 1, 9, 0, 3, 2, 1, 10, 0]), bytes([3, 3, 0, 0, 0])
    load = "load=0x0:0x400000:0x628:r,0x1000:0x401000:0x175:x"
    write("complete/69-load-segments-executed-file-and-start-line.nprof", segment(
        2, record(8, 1, 0, string(b"\x0a"), string(b"/a"), load.encode()),
        record(9, 1, zigzag(0), 1, 1, 0, string(b"a"), b"exe=/a"),
        record(65, 1, string(b"f"), 0, b"line=7"), record(65, 2, string(b"f"), 0, b"line=9")),
        segment_text(2, "I\t1\telf\t0a\t/a\t" + load, "T\t1\t0\t1\t1\t0\ta\texe=/a",
                     "U\t1\tf\t-\tline=7", "U\t2\tf\t-\tline=9"))
    md5 = "md5=d41d8cd98f00b204e9800998ecf8427e"
    write("complete/71-source-files-of-one-path.nprof", segment(
        0, record(66, 1, string(b"/a.h"), md5.encode()), record(66, 2, string(b"/a.h"))),
        segment_text(0, "D\t1\t/a.h\t" + md5, "D\t2\t/a.h"))
    write("complete/68-code.nprof", segment(
        0, record(69, 1, 0x1140, string(b"x86_64"), string(b"\x90\x90\x90\xc3"), string(rows),
                  string(callees)),
        record(69, 2, 0, string(b""), string(b""), string(b""), string(b""), b"x=1")),
        segment_text(0, "C\t1\t0x1140\tx86_64\t909090c3\t0,1,1,7,2;0,2,1,9,0;3,2,1,10,0\t3,3,0,0,0",
                     "C\t2\t0x0\t-\t-\t-\t-\tx=1"))


def truncated():
    second, third = len(BLOCKS[0]), len(BLOCKS[0] + BLOCKS[1])
    for name, size, lines in [
            ("10-in-the-first-mark", 5, []),
            ("11-in-the-first-header", 20, []),
            ("12-in-the-first-payload", second - 10, LINES[0][:3]),
            ("13-between-blocks", second, LINES[0]),
            ("14-in-a-mark", second + 3, LINES[0]),
            ("15-in-a-header", third + 47, LINES[0] + LINES[1]),
            ("16-behind-a-header", third + 48, LINES[0] + LINES[1]),
            ("17-behind-the-length-of-a-record", third + 50, LINES[0] + LINES[1]),
            ("18-in-a-payload", len(STREAM) - 8, LINES[0] + LINES[1] + LINES[2][:1]),
            ("19-before-a-trailer", len(STREAM) - 4, TEXT),
            ("20-in-a-trailer", len(STREAM) - 1, TEXT)]:
        write(f"truncated/{name}.nprof", STREAM[:size], lines)
    write("truncated/21-next-segment.nprof", EMPTY + STREAM[:60], EMPTY_TEXT + TEXT[:1])
    write("truncated/22-next-mark.nprof", EMPTY + STREAM[:1], EMPTY_TEXT)
    write("truncated/23-then-a-segment.nprof", BLOCKS[0] + EMPTY, LINES[0] + EMPTY_TEXT)
    write("truncated/24-then-text.nprof", BLOCKS[0] + spelled(EMPTY_TEXT), LINES[0] + EMPTY_TEXT)
    write("truncated/25-line.txt", spelled(TEXT)[:-1], TEXT[:-1])
    write("truncated/26-lines-then-binary.nprof", spelled(TEXT[:-1]) + EMPTY,
          TEXT[:-1] + EMPTY_TEXT)
    write("truncated/27-in-the-first-word.txt", b"@npr", [])
    # The magic alone does not begin a block: a string may contain it.
    marked = block(1, 1, record(66, 1, string(MAGIC)), record(66, 2, string(b"abc" * 20)))
    write("truncated/28-mark-in-a-block-that-is-cut-off.nprof", BLOCKS[0] + marked[:-9],
          LINES[0] + ["D\t1\t\\x89NPF\\r\\n\\x1a\\n"])
    write("truncated/29-required-kind-in-a-block-that-is-cut-off.nprof", BLOCKS[0] + block(
        1, 1, sample(10, 1, 1, 0, 5, 1), record(12, b"a"), time=100)[:-4], LINES[0] + LINES[1][:1])
    write("truncated/30-no-record-in-a-block-that-is-cut-off.nprof", BLOCKS[0] + block(
        1, 1, sample(10, 1, 1, 0, 5, 1), record(10, 0, 0, 0, 0, 0), bytes(9), time=100)[:-7],
        LINES[0] + LINES[1][:1])
    joined_to_something()
    write("truncated/31-checked-lines.txt", spelled(checked(TEXT).decode().split("\n")[:-2]),
          TEXT[:-1])


def joined_to_something():
    """Writes streams that were cut off anywhere and are followed by another one."""
    first, second, _ = BLOCKS
    # The first block of the other segment ends where the block that was cut off would end.
    block_0 = block(0, 0, HEAD, run=2)
    chance = block(1, 1, sample(10, 1, 1, 0, 5, 1),
                   record(66, 1, string(b"a" * len(block_0))), time=100)
    chance = chance[:-len(block_0)] + block_0 + block(1, 0, NO_SAMPLES, run=2)
    text, both = spelled(EMPTY_TEXT), LINES[0] + LINES[1]
    lines = spelled(TEXT[:1] + ["U\t1\ta\t-", "U\t2\tname"])[:-1]
    for name, data, before in [
            ("32-block-then-binary", first + second[:-9] + EMPTY, LINES[0] + LINES[1][:1]),
            ("33-block-then-text", first + second[:-9] + text, LINES[0] + LINES[1][:1]),
            ("34-trailer-then-binary", first + second[:-1] + EMPTY, both),
            ("35-trailer-then-text", first + second[:-3] + text, both),
            ("36-header-then-binary", first + second[:20] + EMPTY, LINES[0]),
            ("37-header-then-text", first + second[:47] + text, LINES[0]),
            ("38-mark-then-binary", first + second[:7] + EMPTY, LINES[0]),
            ("39-mark-then-text", first + second[:6] + text, LINES[0]),
            ("40-first-mark-then-text", first[:6] + text, []),
            ("41-first-mark-then-binary", first[:1] + EMPTY, []),
            ("42-block-that-ends-where-another-does", first + chance, LINES[0] + LINES[1][:1]),
            ("43-line-then-binary", spelled(TEXT)[:-9] + EMPTY, TEXT[:-1]),
            ("44-line-then-text", spelled(TEXT)[:-9] + text, TEXT[:-1]),
            ("45-name-then-binary", lines + EMPTY, TEXT[:1] + ["U\t1\ta\t-"]),
            ("46-name-then-text", lines + text, TEXT[:1] + ["U\t1\ta\t-"]),
            ("47-line-of-no-known-kind-then-text", spelled(TEXT) + b"x-no" + text, TEXT),
            ("48-comment-then-binary", spelled(TEXT) + b"# a comm" + EMPTY, TEXT),
            ("49-comment-then-text", spelled(TEXT) + b"# a comm" + text, TEXT),
            ("50-head-then-text", spelled(TEXT)[:15] + text, []),
            ("51-word-of-a-head-then-text", EMPTY + b"@np" + text, EMPTY_TEXT),
            ("52-first-word-then-binary", b"@n" + EMPTY, []),
            ("53-checked-end-then-text", checked(TEXT)[:-1] + text, TEXT[:-1])]:
        write(f"truncated/{name}.nprof", data, before + EMPTY_TEXT)


def damaged():
    first, second, third = BLOCKS
    around, ends = LINES[0] + LINES[2], LINES[0] + LINES[1]
    for name, data, lines in [
            ("20-payload-flipped", first + flipped(second, 60) + third, around),
            ("21-trailer-flipped", first + flipped(second, len(second) - 1) + third, around),
            ("22-header-flipped", first + flipped(second, 30) + third, around),
            ("23-mark-flipped", first + flipped(second, 1) + third, around),
            ("24-mark-through-a-text-filter", first + second.replace(b"\r\n", b"\n") + third,
             around),
            ("25-first-header-flipped", flipped(first, 20) + second + third,
             LINES[1] + LINES[2]),
            ("26-last-block-flipped", first + second + flipped(third, 60), ends),
            ("27-block-missing", first + third, around),
            ("28-first-block-missing", second + third, LINES[1] + LINES[2]),
            ("29-block-twice", first + second + second + third,
             ends + LINES[1] + LINES[2]),
            ("30-bytes-between-blocks", first + b"junk\n" + second + third, TEXT),
            ("31-block-cut-then-a-later-one", first + second[:-9] + third, around),
            ("32-length-beyond-the-limit", first + block(1, 1, size=(1 << 20) + 1) + third,
             around),
            ("33-samples-before-disagree", first + block(
                1, 2, sample(10, 1, 1, 0, 5, 1), sample(10, flags=0), time=100) + third, TEXT),
            ("34-other-run-between", first + block(1, 0, sample(
                7, 1, 1, 0, 5, 1), run=2) + EMPTY, LINES[0] + ["S\t7\t1\t1\t-\t0\t5\t1"]
             + EMPTY_TEXT),
            ("35-binary-behind-the-end", EMPTY + bytes(100) + EMPTY, EMPTY_TEXT * 2),
            ("36-line-cut-then-a-later-block", spelled(TEXT)[:-9] + third, TEXT[:-1] + LINES[2]),
            ("37-block-0-without-records", block(0, 0) + block(1, 0, sample(7, 1, 1, 0, 5, 1))
             + EMPTY, ["S\t7\t1\t1\t-\t0\t5\t1"] + EMPTY_TEXT),
            ("38-counts-disagree", block(0, 0, HEAD, sample(0, 0, 0, 0, 0, 0), NO_SAMPLES),
             [EMPTY_TEXT[0], "S\t0\t0\t0\t-\t0\t0\t0", EMPTY_TEXT[1]])]:
        write(f"damaged/{name}.nprof", data, lines)
    # Malformed records. The segment continues in the next block.
    for number, (name, bad) in enumerate([
            ("record-longer-than-its-block", b"\x20\x20\x00"),
            ("field-longer-than-its-record", record(66, 1, 9, b"a.c")),
            ("record-without-its-fields", record(9, 1)),
            ("varint-longer-than-needed", record(66, b"\x81\x00", string(b"a"))),
            ("varint-of-11-bytes", record(10, 1, 0, b"\x80" * 10 + b"\x00", 0, 0)),
            ("varint-of-65-bits", record(10, 1, 0, b"\xff" * 9 + b"\x02", 0, 0)),
            ("length-longer-than-needed", b"\x42\x83\x00\x01\x01a"),
            ("sample-with-unknown-fields", record(32, b"\x20\x00\x00")),
            ("frame-with-unknown-flags", record(10, 1, 0, 0, 4, 0)),
            ("image-0", record(8, 0, 0, 0, 0)),
            ("event-0", record(2, b"id=0\tname=x")),
            ("event-without-id", record(2, b"name=x")),
            ("image-too-high", record(8, (1 << 26) + 1, 0, 0, 0)),
            ("node-too-high", record(11, 1 << 26, 0, 1, 1)),
            ("node-under-itself", record(11, 3, 3, 1)),
            ("node-without-frames", record(11, 3, 0)),
            ("node-of-frame-0", record(11, 3, 0, 0)),
            ("build-id-too-long", record(8, 1, 0, string(bytes(65)), 0)),
            ("extras-not-utf8", record(66, 1, string(b"a"), b"x=\xff")),
            ("extras-without-value", record(66, 1, string(b"a"), b"x")),
            ("pairs-with-a-control-character", record(64, b"tool=a\n"))], 40):
        write(f"damaged/{number}-{name}.nprof", block(0, 0, HEAD, bad) + block(1, 0, NO_SAMPLES),
              EMPTY_TEXT)
    for number, (name, bad) in enumerate([
            ("rows-of-code-that-are-cut-off", record(69, 1, 0, 0, 0, string(bytes([0, 1, 1, 7])), 0)),
            ("row-of-code-too-far", record(69, 1, 0, 0, 0, string(
                varint((1 << 32) - 1) + bytes(4) + bytes([1, 0, 0, 0, 0])), 0)),
            ("code-too-long", record(69, 1, 0, 0, string(bytes((1 << 16) + 1)), 0, 0))], 95):
        write(f"damaged/{number}-{name}.nprof", block(0, 0, HEAD, bad) + block(1, 0, NO_SAMPLES),
              EMPTY_TEXT)
    write("damaged/98-rows-of-code-that-descend.txt", spelled(
        EMPTY_TEXT[:1] + ["C\t1\t0x0\t-\t-\t2,0,0,0,0;1,0,0,0,0\t-"] + EMPTY_TEXT[1:]), EMPTY_TEXT)
    # Times and omitted fields of samples refer to the previous record: no record after the malformed
    # one in the same block is reliable.
    joined = block(1, 1, record(66, 1, string(EMPTY)))
    longer = block(1, 1, sample(10, 1, 1, 0, 5, 1), size=1 << 19)
    twice = block(0, 0, sample(10, 1, 1, 0, 5, 1), time=100)
    for name, data, lines in [
            ("61-segment-in-a-block-with-a-wrong-checksum", first + flipped(
                joined, len(joined) - 1) + third, around),
            ("62-comment-behind-a-block-with-a-wrong-checksum", first + flipped(
                second, 60) + b"# comment\n" + third, around),
            ("63-length-too-high-then-a-block", first + longer + third, around),
            ("64-comment-cut-then-a-later-block", spelled(TEXT) + b"# a comm" + third,
             TEXT + LINES[2]),
            ("65-extras-escaped-without-need", block(0, 0, HEAD, record(66, 1, string(b"a"), b"x=\\x41"))
             + block(1, 0, NO_SAMPLES), EMPTY_TEXT),
            ("66-block-0-without-a-head", first + twice, LINES[0] + LINES[1][:1]),
            ("67-head-that-is-not-first", block(0, 0, HEAD, NO_SAMPLES, HEAD) + block(
                1, 0, sample(10, 1, 1, 0, 5, 1)), EMPTY_TEXT + ["S\t10\t1\t1\t-\t0\t5\t1"]),
            ("69-text-of-no-segment-behind-a-block", first + spelled(
                TEXT[1:3]) + second + third, TEXT)]:
        write(f"damaged/{name}.nprof", data, lines)
    write("damaged/68-records-behind-one-that-is-none.nprof", block(
        0, 0, HEAD, record(9, 0, zigzag(1000), 1, 1, 0, 0), sample(5, flags=0)) + block(
            1, 1, NO_SAMPLES), EMPTY_TEXT)
    for name, raw in [("70-control-character", b"a\x1bb"),
                      ("71-c1-control-character", b"a\xc2\x85"),
                      ("72-not-utf8", b"a\xffb"), ("73-lines-end-in-crlf", b"a\r")]:
        write(f"damaged/{name}.txt", spelled(EMPTY_TEXT[:1]) + b"T\t1\t1\t1\t1\t0\t" + raw + b"\n"
              + spelled(EMPTY_TEXT[1:]), EMPTY_TEXT)
    write("damaged/74-line-that-begins-like-a-mark.txt", spelled(TEXT[:1]) + b"\x89\n\x89NPF\r\n"
          + spelled(TEXT[1:]), TEXT)
    write("damaged/75-lines-that-hold-no-strings.txt", spelled(TEXT[:1])
          + b"D\t1\ta\tx=\x1b\n@step\ttool=\xff\nx-note\t\xff\nx-note\t\x9b\x01\n"
          + spelled(TEXT[1:]), TEXT)
    many = segment_text(0, *["D\t1\ta"] * 1100)
    good, text = checked(TEXT), checked(many)
    changed = many[:7] + ["D\t1\tb"] + many[8:]
    for name, data, lines in [
            ("80-checksum-wrong-at-the-end", good[:-2] + bytes([good[-2] ^ 1]) + b"\n", TEXT),
            ("81-checksum-wrong-in-the-middle", text.replace(b"#crc\t0x", b"#crc\t0x1"), many),
            ("82-checksum-promised-and-absent", good[:good.index(b"\tcrc=")] + b"\n", TEXT),
            ("83-digit-flipped", good.replace(b"S\t100\t", b"S\t101\t"),
             [line.replace("S\t100\t", "S\t101\t") for line in TEXT]),
            ("84-line-changed-before-the-middle", text.replace(b"a\nD", b"b\nD", 7).replace(
                b"b\nD", b"a\nD", 6), changed),
            ("85-annotation-missing", checked(TEXT[:2] + ["D\t1\ta"] + TEXT[2:]).replace(
                b"D\t1\ta\n", b""), TEXT),
            ("86-checksum-in-the-middle-missing", b"".join(
                line for line in text.splitlines(True) if line[:1] != b"#"), many),
            ("87-lines-exchanged", checked(TEXT[:1] + ["D\t1\ta", "D\t1\tb"] + TEXT[1:]).replace(
                b"a\nD\t1\tb", b"b\nD\t1\ta"), TEXT[:1] + ["D\t1\tb", "D\t1\ta"] + TEXT[1:]),
            ("89-checksum-of-no-lines", b"#crc\t0x0\n#crc\t0x1\n" + good, TEXT),
            ("88-wrong-checksum-that-was-not-promised", checked(TEXT, promise=False).replace(
                b"cpu-clock", b"cpu-clack"), [
                    line.replace("cpu-clock", "cpu-clack") for line in TEXT])]:
        write(f"damaged/{name}.txt", data, lines)


def refused():
    for name, data in [
            ("10-major-version", block(0, 0, HEAD, NO_SAMPLES, major=2)),
            ("11-major-version-0", block(0, 0, HEAD, NO_SAMPLES, major=0)),
            ("12-flag-to-be-known", block(0, 0, HEAD, NO_SAMPLES, must=1)),
            ("13-flag-to-be-known-later", BLOCKS[0] + block(1, 1, must=128)),
            ("14-required-kind", block(0, 0, HEAD, record(12, b"a"), NO_SAMPLES)),
            ("15-required-kind-63", block(0, 0, HEAD, record(63), NO_SAMPLES)),
            ("24-kind-0", block(0, 0, HEAD, record(0), NO_SAMPLES)),
            ("25-kind-128", block(0, 0, HEAD, record(128), NO_SAMPLES)),
            ("26-kind-255", block(0, 0, HEAD, record(255, b"a"), NO_SAMPLES)),
            ("16-second-segment", EMPTY + block(0, 0, HEAD, NO_SAMPLES, major=2)),
            ("17-first-mark-through-a-text-filter", STREAM.replace(b"\r\n", b"\n")),
            ("18-lf-became-crlf", STREAM.replace(b"\n", b"\r\n")),
            ("19-seven-bits", bytes(byte & 127 for byte in STREAM)),
            ("27-cut-off-then-a-major-version", BLOCKS[0] + BLOCKS[1][:-9] + block(
                0, 0, HEAD, NO_SAMPLES, major=2)),
            ("20-png", b"\x89PNG\r\n\x1a\n" + STREAM[8:]),
            ("21-perf-data", b"PERFILE2" + bytes(96)),
            ("22-zeros", bytes(100)),
            ("23-text-in-utf-16", "\ufeff@nprof\t1.1\n".encode("utf-16-le"))]:
        write(f"refused/{name}.nprof", data)


if __name__ == "__main__":
    complete()
    truncated()
    damaged()
    refused()
