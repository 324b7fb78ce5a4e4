#!/usr/bin/env python3
"""A second reader of nprof streams, written from nprof-format(5) alone.

usage: reader.py [file ...]

Prints the canonical text of a stream's records, without checksums. The last line on standard
error is the verdict: complete (exit status 0), truncated or damaged (3), or refused (2). For
several files it prints one text after another, each followed by a comment with its verdict.
It serves for comparison, not for speed: it keeps the whole stream in memory, and converts
fields of the binary form to text, which it checks and makes canonical like the text of a line.
"""

import pathlib, re, struct, sys

MAGIC = b"\x89NPF\r\n\x1a\n"
HEADER = struct.Struct("<8sBBBBIQIQQI")
VERDICTS = ["complete", "truncated", "damaged"]  # from best to worst
LIMIT_ID, LIMIT_STRING, LIMIT_FRAMES, LIMIT_GROUPS = 1 << 26, 1 << 16, 1 << 16, 4096
LIMIT_PAYLOAD, LIMIT_BODY, LIMIT_LINE = 1 << 20, (1 << 20) - 4, 4 << 20
LIMIT_CODE, LIMIT_ROWS = 1 << 16, 1 << 18

class Damage(Exception): """The bytes are no record."""
class Refused(Exception): """Not a stream, or one that needs a newer reader."""

def need(found, why):
    if not found:
        raise Damage(why)
    return found
CRC_TABLE = range(256)
for _ in range(8):
    CRC_TABLE = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in CRC_TABLE]
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF

def header_at(data, at):
    """Returns the fields of the valid header at an offset, if there is one."""
    fields = HEADER.unpack(data[at:at + HEADER.size].ljust(HEADER.size, b"\0"))
    is_good = fields[0] == MAGIC and fields[-1] == crc32c(data[at:at + HEADER.size - 4])
    return fields if is_good and fields[5] <= LIMIT_PAYLOAD else None
def begins(data):
    """True if a block, a segment in text or a comment begins here, or the input ends."""
    return MAGIC.startswith(data[:8]) or b"@nprof\t".startswith(data[:7]) or data[:1] in b"#\n"
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
LINE = re.compile("[a-z][^\x00-\x08\n-\x1f\x7f-\x9f\udc80-\udcff]*")
def escaped(raw):
    text = raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return CONTROL.sub(lambda control: repr(control[0].encode())[2:-1], text)
def spelled(raw):
    return {b"": "-", b"-": "\\x2d"}.get(raw) or re.sub("@nprof$", r"\\x40nprof", escaped(raw))
def unescaped(text):
    need(re.fullmatch(r"([^\\]|\\[\\tnr]|\\x[0-9a-f]{2})*", text), f"{text!r} is no string")
    raw = text.encode().decode("unicode_escape").encode("latin-1")
    need(len(raw) <= LIMIT_STRING, "a string that is too long")
    return raw
def line_of(raw):
    """Returns the text of a line, or of a body in the form of a line."""
    text = raw.decode("utf-8", "replace")
    need(len(raw) <= LIMIT_LINE and text.encode() == raw, "a line too long, or not UTF-8")
    need(not CONTROL.search(text.replace("\t", "")), "a control character in a line")
    return text

# Checks of fields: each takes the text of a field and returns its canonical text.
def pattern(expression):
    return lambda field: need(re.fullmatch(expression, field), f"{field!r}: not {expression}")[0]
def number(low=0, high=(1 << 64) - 1):
    digits = pattern("0|[1-9][0-9]{0,19}")
    return lambda field: need(low <= int(digits(field)) <= high and field, f"{field} is too high")
def choice(words, first=0):
    words = dict(enumerate(words.split(), first))
    def check(field):
        need(field[:1] == "?" or field in words.values(), f"{field!r} is not one of {words}")
        return words.get(int(number(first, 255)(field[1:])), field) if field[0] == "?" else field
    return check
def frame_flags(field):
    parts = need(re.fullmatch("([uk](?:,ra)?)(?:,(.+))?", field), f"{field!r} are no flags")
    return parts[1] + ("," + MARKS(parts[2]) if parts[2] else "")
def group(field):
    parts = field.split(",")
    need(len(parts) == 4, f"{field!r} is no function,file,line,column")
    return ",".join(check(part) for check, part in zip((REF, REF, SHORT, SHORT), parts))
def rows(field):
    """Checks the rows of code: their offsets ascend."""
    last, size = 0, 0
    for offset, *others in [] if field == "-" else [row.split(",") for row in field.split(";")]:
        group(",".join(others))
        need(int(SHORT(offset)) >= last, "rows that do not ascend")
        numbers = [int(offset) - last, *map(int, others)]
        size += sum(max(1, (value.bit_length() + 6) // 7) for value in numbers)
        last = int(offset)
    need(size <= LIMIT_ROWS, "too many rows")
    return field
def hexadecimal(limit):
    digits = pattern("-|([0-9a-f]{2})+")
    return lambda field: need(len(field) <= 2 * limit and digits(field), "too many bytes")
def pair(field):
    key, sign, value = field.partition("=")
    need(re.fullmatch("[a-z0-9_.]+", key) and sign, f"{field!r} is no key=value")
    return key + "=" + escaped(unescaped(value))

class Body:
    """The fields in a part of a payload, and the state of a block between records."""
    def __init__(self, data, time):
        self.data, self.at, self.end = data, 0, len(data)
        self.last_time, self.last_sample = time, ["0", "0", "-", "0"]
    def take(self, size):
        need(size <= self.end - self.at, "a field or record longer than what it is in")
        self.at += size
        return self.data[self.at - size:self.at]
    def byte(self):
        return self.take(1)[0]
    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        need(byte < 0x80 and value < 1 << 64 and (byte or not shift), "a varint that is too long")
        return value
    def number(self):
        return str(self.varint())
    def time(self):
        coded = self.varint()
        self.last_time = self.last_time + (coded >> 1 ^ -(coded & 1)) & (1 << 64) - 1
        return str(self.last_time)
    def flags(self):
        flags, mark = self.byte(), self.byte()
        return {0: "u", 1: "k", 2: "u,ra", 3: "k,ra"}.get(flags, "") + (f",?{mark}" if mark else "")
    def rows(self):
        size = self.varint()
        need(size <= LIMIT_ROWS, "too many rows")
        body, last, found = Body(self.take(size), 0), 0, []
        while body.at < body.end:
            last += body.varint()
            found.append(",".join([str(last), *(body.number() for _ in range(4))]))
        return ";".join(found) or "-"
    def sample(self):
        given, time, node = int(GIVEN(str(self.byte()))), self.time(), FIELD["ref"][0](self)
        for bit, name in enumerate(["ref", "ref", "cpu", "number"]):
            if given >> bit & 1:
                self.last_sample[bit] = FIELD[name][0](self)
        *others, weight = self.last_sample
        return [time, *others, node, weight, self.number() if given & 16 else "1"]
    def fields(self, kind):
        word, *names = LAYOUT.get(kind, [f"?{kind}"])
        fields = self.sample() if word == "S" else [FIELD[name][0](self) for name in names]
        while word == "N" and self.at < self.end:
            fields.append(self.number())
        if word == "Y":
            fields += [FIELD["group"][0](self) for _ in range(self.varint())]
        rest = self.take(self.end - self.at)
        heads = (is_head(rest[match.start():]) for match in re.finditer(b"@nprof\t", rest))
        is_line = kind == TEXT_LINE and LINE.fullmatch(rest.decode("utf-8", "surrogateescape"))
        if is_line and not any(heads):
            return line_of(rest).split("\t")
        if kind not in LAYOUT:
            return [word, rest.hex()]
        rest = line_of(rest).split("\t") if rest else []
        need(kind in KEYS or rest == [pair(extra) for extra in rest], "extras escaped without need")
        return [word] + fields + rest
    def records(self):
        while self.at < len(self.data):
            self.end = len(self.data)
            kind, size = self.byte(), self.varint()
            self.take(size)
            required(kind, LAYOUT)
            self.at, self.end = self.at - size, self.at
            yield kind, self.fields(kind)

ID, REF, GIVEN = number(1, LIMIT_ID), number(0, LIMIT_ID), number(0, 31)
CPU, SHORT, NUMBER = number(0, (1 << 32) - 2), number(0, (1 << 32) - 1), number()
HEXADECIMAL = pattern("0x(0|[1-9a-f][0-9a-f]{0,15})")
MARKS = choice("stack-truncated no-unwind-info unwind-failed max-depth unmapped no-stack "
               "page-absent 32-bit other-stack", 1)
FIELD = {  # how to take a field from a body, and its check
    "id": (Body.number, ID), "ref": (Body.number, REF),
    "short": (Body.number, SHORT), "number": (Body.number, NUMBER),
    "time": (Body.time, NUMBER),
    "cpu": (lambda body: str(body.varint() - 1).replace("-1", "-"),
            lambda field: field if field == "-" else CPU(field)),
    "offset": (lambda body: hex(body.varint()), HEXADECIMAL),
    "string": (lambda body: spelled(body.take(body.varint())),
               lambda field: spelled(b"" if need(field, "empty") == "-" else unescaped(field))),
    "build": (lambda body: body.take(body.varint()).hex() or "-", pattern("-|([0-9a-f]{2}){1,64}")),
    "image": (lambda body: f"?{body.byte()}", choice("elf kernel module vdso anon jit")),
    "flags": (Body.flags, frame_flags),
    "change": (lambda body: f"?{body.byte()}", choice("comm exec exit times")),
    "cause": (lambda body: f"?{body.byte()}", choice("ring throttle recorder damage multiplex")),
    "status": (lambda body: f"?{body.byte()}", choice(
        "named no-symbol stripped no-image mismatch unreadable restricted anonymous")),
    "code": (lambda body: body.take(body.varint()).hex() or "-", hexadecimal(LIMIT_CODE)),
    "rows": (Body.rows, rows),
    "group": (lambda body: ",".join(body.number() for _ in range(4)), group),
}
HEAD, END, TEXT_LINE = 1, 4, 111
LAYOUT = {HEAD: "@nprof", 2: "@event", 3: "@epoch", END: "@end", 5: "@run", 6: "@run_end", 64: "@step",
          8: "I id image build string", 9: "T id time short short ref string", 11: "N id ref",
          10: "F id ref offset flags", 32: "S time ref ref cpu ref number number",
          33: "X time ref change string", 34: "L time ref cpu ref number cause",
          65: "U id string string", 66: "D id string", 67: "Y id status", 68: "@naming",
          69: "C id offset string code rows rows"}
LAYOUT = {kind: words.split() for kind, words in LAYOUT.items()}
KINDS = {word: kind for kind, (word, *_) in LAYOUT.items()}
# The keys of pairs; those with a star are required, and those with a # are numbers.
KEYS = {
    HEAD: "run* clock time# utc# host os arch cpu cpus# page# command service service_version",
    2: "id* name requested unit measure period# frequency# scope unwind fallback capture duty exact_ns# scaled overhead_ns#", 3: "number*",
    END: "reason status# time# samples* records* lost* lost_others# lost_records# unseen# late# incomplete#"
       " stitched# task_ns# sampled_ns# wall_ns# runnable_ns# blocked_ns# recorder_ns# recorder_bytes#", 64: "tool version command naming_options",
    68: "image kind build_id named* unnamed* unnamed_by_status reason remedy"}
KEYS |= {5: KEYS[HEAD], 6: "run* " + KEYS[END]}

def required(kind, known=()):
    if not 64 <= kind <= 127 and kind not in known:
        raise Refused(f"records of kind {kind}")
def limited(body, width=1):
    need(len(body.encode()) <= LIMIT_BODY * width, "a record that is too long")
    return body
def ordered(kind, pairs):
    """Returns the pairs of a record in their order, after checking them."""
    values, known = dict(field.split("=", 1) for field in pairs), []
    need(len(values) == len(pairs), "a key that is given twice")
    for key in KEYS[kind].split():
        value = values.pop(key.strip("*#"), None)
        need(value is not None or key[-1] != "*", f"no {key}")
        if value is not None and key[-1] in "*#":
            {"run*": HEXADECIMAL, "id*": ID}.get(key, NUMBER)(value)
        is_default = not value or (key, value) == ("measure", "count")
        known += [] if is_default else [key.strip("*#") + "=" + value]
    return known + [key + "=" + value for key, value in values.items()]
def canonical(fields):
    """Returns a record's kind and text, from the fields of either spelling; the word is the first."""
    word, *fields = fields
    if re.match("[a-z]", word):
        return TEXT_LINE, limited("\t".join([word] + fields))
    if word not in KINDS:
        need(word[:1] == "?", f"{word!r} is no word of a kind")
        kind = int(NUMBER(word[1:]))
        required(kind)
        need(len(fields) == 1, "a body that is not one field")
        body = limited(pattern("([0-9a-f]{2})*")(fields[0]), 2)
        known = Body(bytes.fromhex(body), 0).fields(kind)  # kept by a reader that did not know the kind
        return (kind, word + "\t" + body) if known[0] == word else canonical(known)
    kind = KINDS[word]
    if kind == HEAD:
        major, _, minor = "".join(fields[:1]).partition(".")
        if number(0, 255)(minor) and number(0, 255)(major) != "1":
            raise Refused(f"version {major}.{minor}")
        word, fields = "@nprof\t1.1", fields[1:]
    checks = [FIELD[name][1] for name in LAYOUT[kind][1:]]
    need(len(fields) >= len(checks), "fields are missing")
    rest = fields[len(checks):]
    groups = [field for field in rest if "=" not in field] if word == "Y" else []
    checks += [ID] * len(rest) if word == "N" else [group] * len(groups)
    extras = len(checks)
    checks += [pair] * (len(fields) - extras)
    fields = [check(field) for check, field in zip(checks, fields)]
    need(len(groups) <= LIMIT_GROUPS, "too many groups")
    if word == "N":
        need(1 <= len(rest) <= LIMIT_FRAMES, "too many frames, or none")
        need(int(fields[1]) < int(fields[0]) <= LIMIT_ID - len(rest) + 1, "nodes that cannot be")
    fields = ordered(kind, fields) if kind in KEYS else fields
    limited("\t".join(fields[extras:]))  # all fields but extras and pairs are short
    return kind, "\t".join([word] + fields)
def is_head(raw):
    try:
        return canonical(line_of(raw).split("\t"))[0] == HEAD
    except (Damage, Refused):
        return False

class Stream:
    """Reads a stream, prints its records and determines the verdict."""
    BEGINNING = re.compile(re.escape(MAGIC) + b"|@nprof\t")
    CHECKED = re.compile(b"(?:#crc\t|(@end\t.*)\tcrc=)0x(0|[1-9a-f][0-9a-f]{0,7})")
    PROMISE = b"\tcheck=crc32c"
    def __init__(self, data):
        self.data, self.verdict = data, "complete"
        self.open = self.begun = self.after_block = False  # a segment; the first of them
        self.run = self.number = self.samples = self.records = 0  # read, or of the next block
        self.lines, self.promised = bytearray(), False  # not checked yet; if the end must
    def note(self, verdict, at, why, after=None):
        """Reports damage at an offset; returns the offset to continue at."""
        print(f"reader.py: offset {at}: {why}", file=sys.stderr)
        self.verdict = max(self.verdict, verdict, key=VERDICTS.index)
        return after
    def read(self):
        words, is_stream, at = tuple(word.encode() + b"\t" for word in KINDS), False, 0
        while at < len(self.data) or not self.data:
            start = self.data[at:at + 8]
            joined = None if begins(start) else self.segment(at, at + 8)
            joined = joined if joined and begins(self.data[at:joined]) else None
            if not is_stream and start[:1] not in (b"#", b"\n"):
                is_stream = begins(start) or start.startswith(words) or joined
                if not (start and is_stream):
                    raise Refused("not an nprof stream")
            if MAGIC.startswith(start):
                at = self.block(at)
            elif joined:
                at = self.note("truncated", at, "a beginning that is cut off", joined)
            elif self.after_block and not begins(start):
                at = self.note("damaged", at, "this cannot follow a block", self.beginning(at))
            else:
                at = self.line(at)
        if self.open or not self.begun:
            self.note("truncated", at, "the input ends before a segment does")
    def find(self, at, end, is_wanted):
        """Returns the first match between two offsets, if there is one."""
        starts = (match.start() for match in self.BEGINNING.finditer(self.data, at + 1, end + 7))
        return next((at for at in starts if at < end and is_wanted(at)), None)
    def beginning(self, at):
        """Returns the offset of the next magic or segment in text, or the end of the input."""
        return self.find(at, len(self.data), lambda at: self.data[at] == MAGIC[0] or
                         self.data[at - 1:at] == b"\n") or len(self.data)
    def segment(self, at, end):
        """Returns the offset of a segment that begins inside a line: the text before it was cut off."""
        def is_segment(at):
            header, line_end = header_at(self.data, at), self.data.find(b"\n", at)
            return header[7] == 0 if header else line_end > 0 and is_head(self.data[at:line_end])
        return self.find(at, end, is_segment)
    def line(self, at):
        """Reads the line at an offset; returns the offset to continue at."""
        end = self.data.find(b"\n", at)
        raw, other = self.data[at:end], self.segment(at, end) if end >= 0 else len(self.data)
        if other:
            return self.note("truncated", at, "a line that is cut off", other)
        joined = raw.endswith(MAGIC[:5]) and len(raw) > 5
        try:
            record = self.checked(at, raw)
            if record:
                self.after_block = False
                self.record(at, *canonical(line_of(record).split("\t")))
            need(not joined, "a comment that was cut off")
        except Damage as error:
            return self.note("damaged", at, error, end - 5 if joined else end + 1)
        return end + 1
    def checked(self, at, raw):
        """Returns the record in a line, or None for a comment. Checks the checksums in both."""
        told, is_head = self.CHECKED.fullmatch(raw), raw.startswith(b"@nprof\t")
        if told and int(told[2], 16) != crc32c(self.lines + (told[1] or b"")):
            self.note("damaged", at, "the checksum of the lines is wrong")
        elif not told and self.promised and raw.startswith(b"@end\t"):
            self.note("damaged", at, "an end without the checksum that was promised")
        self.promised = raw.endswith(self.PROMISE) if is_head else self.promised
        if is_head or told and not told[1]:
            self.lines.clear()
        if raw[:1] in b"#":
            return b""
        self.lines += raw + b"\n"
        return told[1] if told else raw.removesuffix(self.PROMISE) if is_head else raw
    def block(self, at):
        """Reads the block at an offset; returns the offset to continue at."""
        self.after_block = True
        header, start, last = header_at(self.data, at), at + HEADER.size, len(self.data)
        if not header:
            other = self.segment(at, start) or (last if start > last else None)
            return (self.note("truncated", at, "a header that is cut off", other) if other else
                    self.note("damaged", at, "a bad header", self.beginning(at)))
        _, major, _, must, _, size, run, number, samples, time, _ = header
        if major != 1 or must:
            raise Refused(f"version {major}, flags {must:#x}")
        end, is_whole, checked = start + size + 4, True, self.data[at:start + size]
        if self.data[start + size:end] != struct.pack("<I", crc32c(checked)):
            is_whole, behind = False, header_at(self.data, end)
            goes_on = behind and behind[6:8] == (run, number + 1)
            other = None if goes_on else self.segment(at, end)
            block = last < end and self.find(at, end, lambda at: header_at(self.data, at))
            if not other and (block or end <= last):
                after = block or (end if begins(self.data[end:end + 8]) else self.beginning(at))
                return self.note("damaged", at, "a bad checksum, or another block in it", after)
            end = self.note("truncated", at, "a block that is cut off", other or last)
            if end < start:
                return end
        payload = self.data[start:min(end, start + size)]
        self.expect(at, run, number, samples)
        try:
            for index, (kind, fields) in enumerate(Body(payload, time).records()):
                need(kind != HEAD or (number, index) == (0, 0), "a head that is not the first")
                fields[1:1] = ["1.1"] if kind == HEAD else []
                self.record(at, *canonical(fields))
        except (Damage, Refused) as error:
            if is_whole and isinstance(error, Refused):
                raise
            self.note("damaged" if is_whole else "truncated", at, error)
        return end
    def expect(self, at, run, number, samples):
        if number == 0 or run != self.run:
            self.close(at)
        if number and (run, number) != (self.run, self.number):
            self.note("damaged", at, f"block {number} of {run:#x} where another should be")
            self.open = True
        elif number and samples != self.samples:
            self.note("damaged", at, f"{samples} samples should be before, not {self.samples}")
        self.run, self.number, self.samples = run, number + 1, samples
    def close(self, at):
        self.open = self.open and self.note("truncated", at, "a segment without its end", False)
    def record(self, at, kind, text):
        if kind == HEAD:
            self.close(at)
            self.begun, self.samples, self.records = True, 0, 0
        elif not self.open:
            self.note("damaged", at, "a record outside of a segment")
        self.open = kind != END
        sys.stdout.buffer.write(text.encode() + b"\n")
        self.records += kind not in (HEAD, END) and kind < 64
        self.samples += text.startswith("S\t")
        counts = f"\tsamples={self.samples}\trecords={self.records}\tlost="
        if kind == END and counts not in text:
            self.note("damaged", at, f"an end that disagrees with {counts}")

def main():
    status = 0
    for name in sys.argv[1:] or ["/dev/stdin"]:
        stream = Stream(pathlib.Path(name).read_bytes())
        try:
            stream.read()
        except Refused as error:
            stream.verdict = f"refused: {error}"
        if len(sys.argv) > 2:
            sys.stdout.buffer.write(f"# {stream.verdict}\n".encode())
        print(stream.verdict, file=sys.stderr)
        status = max(status, {"complete": 0, "truncated": 3, "damaged": 3}.get(stream.verdict, 2))
    return status

if __name__ == "__main__":
    sys.exit(main())
