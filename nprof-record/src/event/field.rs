//! Fields that samples take their weight from: `NAME*FIELD`. Pure.
//!
//! | form                               | field                                        |
//! |------------------------------------|----------------------------------------------|
//! | `syscalls:sys_exit_write*ret`      | of a tracepoint, by its file `format`        |
//! | `uprobe:/bin/sh:0x1234*di`         | a register, by its name in perf(1)           |

use nprof_stream::Measure;
use nprof_unwind::arch;

/// The place of the value that is the weight of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightField {
    /// A field of the data of a tracepoint (PERF_SAMPLE_RAW).
    Traced(TracedField),
    /// A user register (PERF_SAMPLE_REGS_USER), by its position in [`arch::NUMBERS`].
    Register(usize),
}

/// An integer in the data of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TracedField {
    offset: usize,
    /// 1, 2, 4 or 8.
    size: usize,
    is_signed: bool,
}

impl TracedField {
    /// Returns its value in the data of a tracepoint; unsigned ones beyond the range are negative.
    /// None if the data is too short.
    pub(crate) fn value(self, data: &[u8]) -> Option<i64> {
        let end = self.offset.checked_add(self.size)?;
        let bytes = data.get(self.offset..end)?;
        let mut word = [0; 8];
        word.get_mut(..self.size)?.copy_from_slice(bytes);
        let value = i64::from_le_bytes(word);
        let unused = 64 - 8 * self.size as u32;
        Some(if self.is_signed { value << unused >> unused } else { value })
    }
}

/// Splits the name of an event that is weighed by a field from the name of the field.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    // The path of a probe may contain a star, but an offset follows it.
    let (event, field) = name.rsplit_once('*')?;
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (!field.is_empty() && is_name(field)).then_some((event, field))
}

/// Returns the register with this name.
///
/// # Errors
///
/// If there is none, with the names of all.
pub(crate) fn register(name: &str) -> Result<WeightField, String> {
    let at = arch::NAMES.iter().position(|&known| known == name);
    at.map(WeightField::Register)
        .ok_or_else(|| format!("no register {name:?}; there are {}", arch::NAMES.join(", ")))
}

/// Returns the field with this name in the file `format` of a tracepoint.
///
/// # Errors
///
/// If there is no such integer, with the names of all.
pub(crate) fn traced(format: &str, name: &str) -> Result<WeightField, String> {
    let fields: Vec<_> = format.lines().filter_map(parse_line).collect();
    let found = fields.iter().find(|(known, _)| *known == name);
    found.map(|(_, field)| WeightField::Traced(*field)).ok_or_else(|| {
        // The first fields are the same in all tracepoints.
        let own = fields.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("common_"));
        let own: Vec<_> = own.collect();
        if own.is_empty() {
            return format!("no field {name:?}; none of its fields is a number");
        }
        format!("no field {name:?} that is a number; there are {}", own.join(", "))
    })
}

/// Parses a line such as `field:long ret; offset:16; size:8; signed:1;`, with tabs between the parts.
/// None if it is not the field of an integer.
fn parse_line(line: &str) -> Option<(&str, TracedField)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    let is_signed = parts.next()?.strip_prefix("signed:")? == "1";
    let name = declaration.rsplit([' ', '*']).next()?;
    let is_number = [1, 2, 4, 8].contains(&size)
        && !name.ends_with(']')
        && !declaration.contains("__data_loc")
        && !declaration.contains("__rel_loc");
    is_number.then_some((name, TracedField { offset, size, is_signed }))
}

/// System calls that return a number of bytes.
const RETURN_BYTES: [&str; 23] = [
    "copy_file_range",
    "getdents64",
    "getrandom",
    "pread64",
    "preadv",
    "preadv2",
    "process_vm_readv",
    "process_vm_writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readlink",
    "readv",
    "recvfrom",
    "recvmsg",
    "sendfile64",
    "sendmsg",
    "sendto",
    "splice",
    "tee",
    "write",
    "writev",
];

/// Returns the measure of a field: bytes where they are known from the names, else a count.
pub(crate) fn measure(event: &str, field: &str) -> Measure {
    let is_returned = field == "ret"
        && event
            .strip_prefix("syscalls:sys_exit_")
            .is_some_and(|call| RETURN_BYTES.contains(&call));
    let is_length = field.contains("bytes") || field == "len";
    if is_returned || is_length { Measure::Bytes } else { Measure::Count }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sys_exit_write\nID: 839\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n\
        \tfield:const void * ptr;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[8];\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:u8 small;\toffset:44;\tsize:1;\tsigned:0;\n\
        \tfield:s16 short;\toffset:45;\tsize:2;\tsigned:1;\n\
        \nprint fmt: \"0x%lx\", REC->ret\n";

    #[test]
    fn traced_fields_are_read_with_their_sign() {
        let mut data = [0xff; 48];
        data[16..24].copy_from_slice(&77i64.to_le_bytes());
        data[44] = 0x80;
        let value = |name, data: &[u8]| match traced(FORMAT, name).expect(name) {
            WeightField::Traced(field) => field.value(data),
            WeightField::Register(_) => None,
        };
        assert_eq!(value("ret", &data), Some(77));
        assert_eq!(value("ret", &data[..20]), None, "the data ends in the field");
        assert_eq!(value("small", &data), Some(0x80));
        assert_eq!(value("short", &data), Some(-1));
        assert_eq!(value("__syscall_nr", &data), Some(-1));
        assert_eq!(value("ptr", &data), Some(-1), "beyond the range of weights");
    }

    #[test]
    fn unknown_field_is_reported_with_all_numbers() {
        for name in ["no", "comm[8]", "name", "char[]"] {
            let error = traced(FORMAT, name).expect_err(name);
            assert!(error.ends_with("there are __syscall_nr, ret, ptr, small, short"), "{error}");
        }
        let error = traced("format:\n", "ret").expect_err("there is no field");
        assert!(error.contains("none of its fields"), "{error}");
        assert!(register("rdi").is_err_and(|error| error.contains("di, bp")));
    }

    #[test]
    fn name_is_split_at_last_star_before_a_word() {
        assert_eq!(split("a:b*ret"), Some(("a:b", "ret")));
        assert_eq!(split("uprobe:/a*b:0x10*di"), Some(("uprobe:/a*b:0x10", "di")));
        for name in ["uprobe:/a*b:0x10", "a:b*", "cycles", "a:b*c d"] {
            assert_eq!(split(name), None, "{name}");
        }
    }

    #[test]
    fn bytes_are_known_by_name() {
        assert_eq!(measure("syscalls:sys_exit_write", "ret"), Measure::Bytes);
        assert_eq!(measure("syscalls:sys_exit_futex", "ret"), Measure::Count);
        assert_eq!(measure("kmem:kmalloc", "bytes_alloc"), Measure::Bytes);
        assert_eq!(measure("uprobe:/a:0x10", "di"), Measure::Count);
    }
}
