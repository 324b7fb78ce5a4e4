//! Tables of every version, damaged tables, and the tables of real programs against their DWARF.

use std::collections::HashSet;
use std::process::Command;
use std::rc::Rc;

use nprof_object::{FileOffset, ImageAddress, Segment};
use object::Endianness;

use super::GoTable;
use super::header::Version;
use crate::dwarf::tests::program::{ALL, Program};
use crate::dwarf::{Call, Dwarf, Section};
use crate::elf::headers::{Compression, Headers};

const VERSIONS: [Version; 4] = [Version::Go1_2, Version::Go1_16, Version::Go1_18, Version::Go1_20];

/// The address of the first byte of the file.
const BASE: u64 = 0x40_0000;

/// The address of the text, which the file does not have.
const TEXT: u64 = 0x50_0000;

/// The file offset of the module data, of the table and of the trees of inlined calls.
const MODULE: usize = 0x40;
const TABLE: usize = 0x200;
const TREES: usize = 0x600;

/// A program with the functions `main.f` at `TEXT` and `main.g` at `TEXT + 0x20`. At `0x30` to
/// `0x38`, `main.g` has an inlined call of `main.h`, at the line of the instruction at `call`.
struct GoProgram {
    version: Version,
    /// The distance of the inlined call from the start of `main.g`.
    call: u32,
    /// True if the header has the address of the text.
    has_text: bool,
    /// True if the addresses of the module data are in relocations.
    is_relocated: bool,
}

impl GoProgram {
    fn new(version: Version) -> Self {
        Self { version, call: 0xf, has_text: true, is_relocated: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { version, call, .. } = *self;
        let is_old = version == Version::Go1_2;
        let header_bytes = match version {
            Version::Go1_2 => 16 + 5 * 8 + 4,
            Version::Go1_16 => 64,
            Version::Go1_18 | Version::Go1_20 => 72,
        };
        let mut table = vec![0; header_bytes];
        let names = if is_old { 0 } else { table.len() };
        let name_at = |table: &mut Vec<u8>, name: &str| {
            table.extend_from_slice(name.as_bytes());
            table.push(0);
            (table.len() - names - name.len() - 1) as u32
        };
        name_at(&mut table, "go");
        let [f, g, h] = ["main.f", "main.g", "main.h"].map(|name| name_at(&mut table, name));
        align(&mut table);
        let paths = if is_old { 0 } else { table.len() };
        let path_of = |table: &mut Vec<u8>, path: &str| {
            let at = table.len() - paths;
            table.extend_from_slice(path.as_bytes());
            table.push(0);
            at as u32
        };
        let [a, b] = ["/src/a.go", "/src/b.go"].map(|path| path_of(&mut table, path));
        align(&mut table);
        // Before Go 1.16, file 0 is the number of files.
        let units = table.len();
        put(&mut table, &[u32::MAX, a, b]);
        let values = if is_old { 0 } else { table.len() };
        table.push(0);
        let values_at = |table: &mut Vec<u8>, list: &[(u32, i32)]| {
            let at = table.len() - values;
            table.extend_from_slice(&encoded(list));
            at as u32
        };
        let f_files = values_at(&mut table, &[(0x18, 1)]);
        let f_lines = values_at(&mut table, &[(8, 10), (0x18, 11)]);
        let g_files = values_at(&mut table, &[(0x10, 1), (0x18, 2), (0x40, 1)]);
        let g_lines = values_at(&mut table, &[(0xf, 20), (0x10, 22), (0x18, 300), (0x40, 21)]);
        let g_inlined = values_at(&mut table, &[(0x10, -1), (0x18, 0), (0x40, -1)]);
        align(&mut table);
        let records = table.len();
        let list_at = if is_old { 16 } else { records };
        let origin = if is_old { 0 } else { records };
        if !is_old {
            table.resize(records + version.list_bytes(2) as usize + 4, 0);
            align(&mut table);
        }
        let mut list = Vec::new();
        for (start, name, files, lines, inlined) in
            [(0, f, f_files, f_lines, 0), (0x20, g, g_files, g_lines, g_inlined)]
        {
            align(&mut table);
            list.push((start, (table.len() - origin) as u64));
            if version >= Version::Go1_18 {
                put(&mut table, &[start as u32]);
            } else {
                table.extend_from_slice(&(TEXT + start).to_le_bytes());
            }
            put(&mut table, &[name, 0, 0, 0, files, lines, 3]);
            match version {
                Version::Go1_2 => {}
                Version::Go1_16 | Version::Go1_18 => put(&mut table, &[0]),
                Version::Go1_20 => put(&mut table, &[0, 9]),
            }
            put(&mut table, &[4 << 24, 0, 0, inlined]);
            let tree = if inlined == 0 { u32::MAX } else { 0x10 };
            if version < Version::Go1_18 {
                table.resize(table.len().next_multiple_of(8), 0);
                let address = if inlined == 0 { 0 } else { BASE + TREES as u64 + 0x10 };
                let data = [0, 0, 0, address];
                data.iter().for_each(|word| table.extend_from_slice(&word.to_le_bytes()));
            } else {
                put(&mut table, &[u32::MAX, u32::MAX, u32::MAX, tree]);
            }
        }
        list.push((0x60, 0));
        let base = if version >= Version::Go1_18 { 0 } else { TEXT };
        let mut numbers: Vec<u64> =
            list.iter().flat_map(|&(start, record)| [base + start, record]).collect();
        numbers.pop();
        let width = version.number_bytes();
        for (index, number) in numbers.iter().enumerate() {
            let at = list_at + index * width;
            table[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
        let (magic, words): (u8, Vec<usize>) = match version {
            Version::Go1_2 => (0xfb, vec![2]),
            Version::Go1_16 => (0xfa, vec![2, 2, names, units, paths, values, records]),
            Version::Go1_18 | Version::Go1_20 => {
                let text = if self.has_text { TEXT as usize } else { 0 };
                let magic = if version == Version::Go1_18 { 0xf0 } else { 0xf1 };
                (magic, vec![2, 2, text, names, units, paths, values, records])
            }
        };
        table[..8].copy_from_slice(&[magic, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
        for (index, word) in words.iter().enumerate() {
            table[8 + index * 8..16 + index * 8].copy_from_slice(&word.to_le_bytes());
        }
        if is_old {
            table[56..60].copy_from_slice(&(units as u32).to_le_bytes());
        }
        assert!(TABLE + table.len() <= TREES, "{:#x}", table.len());

        let mut file = vec![0; TREES + 0x200];
        file[TABLE..TABLE + table.len()].copy_from_slice(&table);
        let entry: Vec<u32> = match version {
            Version::Go1_20 => vec![0, h, call, 7],
            _ => vec![0xffff, 2, 20, h, call],
        };
        let mut tree = Vec::new();
        put(&mut tree, &entry);
        file[TREES + 0x10..TREES + 0x10 + tree.len()].copy_from_slice(&tree);
        let trees_word = if version == Version::Go1_20 { 40 } else { 38 };
        let words = [
            (0, BASE + TABLE as u64),
            (1, BASE + (TABLE + names) as u64),
            (22, TEXT),
            (trees_word, BASE + TREES as u64),
        ];
        for (index, (word, value)) in words.into_iter().enumerate() {
            if self.is_relocated {
                let place = BASE + (MODULE + 8 * word) as u64;
                let entry = [place, 8, value].map(u64::to_le_bytes).concat();
                let at = TREES + 0x80 + 24 * index;
                file[at..at + 24].copy_from_slice(&entry);
            } else {
                let at = MODULE + 8 * word;
                file[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        file
    }

    fn headers(&self) -> Headers {
        let segment = Segment {
            offset: FileOffset(0),
            size: (TREES + 0x200) as u64,
            address: ImageAddress(BASE),
            executable: false,
        };
        let relocations = crate::elf::headers::Section {
            name: b".rela.dyn".to_vec(),
            kind: object::elf::SHT_RELA.0,
            executable: false,
            grouped: false,
            address: BASE + TREES as u64 + 0x80,
            size: 4 * 24,
            offset: Some(TREES as u64 + 0x80),
            link: 0,
            entry_size: 24,
            compression: Compression::None,
        };
        let go = crate::elf::headers::Section {
            name: b".go.buildinfo".to_vec(),
            kind: 1,
            ..relocations.clone()
        };
        Headers {
            is_64: true,
            endian: Endianness::Little,
            machine: object::elf::EM_X86_64.0,
            segments: [segment].into_iter().collect(),
            sections: if self.is_relocated { vec![relocations, go] } else { Vec::new() },
            build_id: Vec::new(),
            debug_link: None,
        }
    }

    fn table(&self) -> Option<GoTable> {
        GoTable::read(&Section::Memory(self.bytes().into()), &self.headers())
    }
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

fn put(bytes: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

/// Encodes values up to these distances.
fn encoded(list: &[(u32, i32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut end, mut value) = (0, -1);
    for &(next_end, next) in list {
        let difference: i32 = next - value;
        for mut number in [((difference << 1) ^ (difference >> 31)).cast_unsigned(), next_end - end]
        {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        (end, value) = (next_end, next);
    }
    bytes.push(0);
    bytes
}

/// Describes the calls at a distance from the start of the text.
fn calls(table: &GoTable, distance: u64) -> Vec<String> {
    table.calls(ImageAddress(TEXT + distance)).iter().map(described).collect()
}

fn described(call: &Call) -> String {
    let text = |bytes: &Option<std::sync::Arc<[u8]>>| {
        String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
    };
    format!("{} {}:{}", text(&call.function), text(&call.file), call.line)
}

#[test]
fn tables_of_all_versions_have_names_lines_and_inlined_calls() {
    for version in VERSIONS {
        let table = GoProgram::new(version).table().expect("a table");
        assert_eq!(calls(&table, 0), ["main.f /src/a.go:10"], "{version:?}");
        assert_eq!(calls(&table, 0x17), ["main.f /src/a.go:11"], "{version:?}");
        assert_eq!(calls(&table, 0x18), [""; 0], "{version:?}: padding");
        assert_eq!(calls(&table, 0x5f), ["main.g /src/a.go:21"], "{version:?}");
        assert_eq!(calls(&table, 0x60), [""; 0], "{version:?}: the end");
        let inlined: &[&str] = match version {
            // The layout of trees differs between Go 1.9 and 1.15.
            Version::Go1_2 => &["main.g /src/b.go:300"],
            _ => &["main.h /src/b.go:300", "main.g /src/a.go:22"],
        };
        assert_eq!(calls(&table, 0x30), inlined, "{version:?}");
    }
}

#[test]
fn address_of_the_text_comes_from_the_module_data() {
    for is_relocated in [false, true] {
        for version in [Version::Go1_18, Version::Go1_20] {
            let program = GoProgram { has_text: false, is_relocated, ..GoProgram::new(version) };
            let table = program.table().expect("a table");
            assert_eq!(calls(&table, 0x37), ["main.h /src/b.go:300", "main.g /src/a.go:22"]);
        }
    }
}

#[test]
fn cycle_of_inlined_calls_ends() {
    for version in &VERSIONS[1..] {
        // The call of main.h is inside of main.h.
        let table = GoProgram { call: 0x12, ..GoProgram::new(*version) }.table().expect("a table");
        assert_eq!(calls(&table, 0x30).len(), super::table::MAX_CALLS);
    }
}

#[test]
fn damaged_tables_give_wrong_answers_at_worst() {
    let mut random = fastrand::Rng::with_seed(16);
    for version in VERSIONS {
        let program = GoProgram::new(version);
        let (whole, headers) = (program.bytes(), program.headers());
        for round in 0..4000 {
            let mut bytes = whole.clone();
            if round % 4 == 0 {
                bytes.truncate(random.usize(..bytes.len()));
            } else {
                for _ in 0..=round % 3 {
                    let at = random.usize(TABLE..bytes.len());
                    bytes[at] = *random.choice(&[0, 1, 0x7f, 0x80, 0xff]).expect("one of five");
                }
            }
            let Some(table) = GoTable::read(&Section::Memory(bytes.into()), &headers) else {
                continue;
            };
            for distance in 0..0x70 {
                table.calls(ImageAddress(TEXT + distance));
            }
            assert!(table.bytes() < 4 << 20, "{}", table.bytes());
        }
    }
}

/// A program with inlined calls, methods, closures, and much of the standard library.
const SOURCE: &str = r#"package main

import (
	"fmt"
	"os"
	"sort"
)

type shape interface{ area() int }
type square struct{ side int }
type rect struct{ w, h int }

func (s square) area() int { return s.side * s.side }
func (r *rect) area() int  { return r.w * r.h }

func twist(a uint64) uint64 { return a*6364136223846793005 + 1442695040888963407 }
func mix(a uint64) uint64   { return twist(a) ^ a<<7 }

//go:noinline
func burn(n int) (sum uint64) {
	for i := 0; i < n; i++ {
		sum = mix(sum + uint64(i))
	}
	return sum
}

func main() {
	shapes := []shape{square{3}, &rect{2, len(os.Args)}}
	sort.Slice(shapes, func(i, j int) bool { return shapes[i].area() < shapes[j].area() })
	done := make(chan uint64)
	go func() { done <- burn(len(os.Args)) }()
	fmt.Println(<-done, shapes[0].area())
}
"#;

#[test]
fn stripped_program_has_the_names_and_lines_of_its_dwarf() {
    if Command::new("go").arg("version").output().is_err() {
        println!("SKIPPED stripped_program_has_the_names_and_lines_of_its_dwarf: no go");
        return;
    }
    let directory = Rc::new(tempfile::tempdir().unwrap());
    let at = directory.path();
    std::fs::write(at.join("main.go"), SOURCE).unwrap();
    for (output, flags) in [("prog", ""), ("stripped", "-s -w")] {
        let mut build = Command::new("go");
        build.args(["build", "-ldflags", flags, "-o", output, "main.go"]).current_dir(at);
        // Neither settings nor the network of this machine.
        build.env("GOCACHE", at.join("cache")).env("GOFLAGS", "").env("GOTOOLCHAIN", "local");
        build.env("GO111MODULE", "off").env("CGO_ENABLED", "0").env("GOENV", "off");
        let output = build.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let bytes = std::fs::read(at.join("stripped")).unwrap();
    let headers = Headers::read(&bytes[..]).unwrap();
    assert!(!headers.has_dwarf() && !headers.has_symbols());
    let table = GoTable::read(&Section::Memory(bytes.into()), &headers).expect("a table");
    let program = Program::open(Rc::clone(&directory));
    let text = program.text.clone();
    let dwarf = Dwarf::load(Box::new(program), 1 << 30).unwrap();
    let (mut all, mut equal) = (0, 0);
    let mut functions = HashSet::new();
    for address in text {
        let expected = dwarf.calls(address, ALL, None).calls;
        let found = table.calls(ImageAddress(address));
        let [expected, found] = [&expected, &found].map(|calls| {
            // DWARF puts the directory of the compilation before this word.
            let described = |call| described(call).replace("./<autogenerated>", "<autogenerated>");
            calls.iter().map(described).collect::<Vec<_>>()
        });
        all += 1;
        equal += usize::from(expected == found);
        // Go 1.19 has no DWARF for calls inlined into wrappers, and shortens names of generics.
        let outermost = expected.last().filter(|name| name.starts_with("main."));
        if let Some(function) = outermost.filter(|name| !name.contains("<autogenerated>")) {
            assert_eq!(found, expected, "{address:#x}");
            functions.insert(function.split(' ').next().unwrap().to_owned());
        }
    }
    assert!(equal * 1000 > all * 995, "{equal} of {all} addresses");
    for name in
        ["main.main", "main.burn", "main.square.area", "main.(*rect).area", "main.main.func1"]
    {
        assert!(functions.contains(name), "{name}: {functions:?}");
    }
}

/// A search without a bound would take half an hour.
#[test]
fn search_in_a_huge_file_ends() {
    let directory = tempfile::tempdir().unwrap();
    let huge = std::fs::File::create_new(directory.path().join("huge")).unwrap();
    huge.set_len(1 << 41).unwrap();
    drop(huge);
    let huge = std::fs::File::open(directory.path().join("huge")).unwrap();
    let file = Section::File { file: Rc::new(huge), start: 0, size: 1 << 41 };
    let program = GoProgram::new(Version::Go1_20);
    let part = Segment {
        address: ImageAddress(BASE),
        offset: FileOffset(0),
        size: 1 << 41,
        executable: false,
    };
    // Without sections, any segment may have the table.
    let headers = Headers { segments: [part].into_iter().collect(), ..program.headers() };
    assert!(GoTable::read(&file, &headers).is_none());
}

/// Each of them is read from the file, and copies the bytes after it if they are in memory.
#[test]
fn search_among_false_headers_ends() {
    let magic = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let bytes = magic.repeat(4 << 20);
    let part = Segment {
        address: ImageAddress(BASE),
        offset: FileOffset(0),
        size: bytes.len() as u64,
        executable: false,
    };
    let program = GoProgram::new(Version::Go1_20);
    // Segments that overlap: each would be searched.
    let headers =
        Headers { segments: std::iter::repeat_n(part, 1000).collect(), ..program.headers() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("false");
    std::fs::write(&path, &bytes).unwrap();
    let file = Rc::new(std::fs::File::open(&path).unwrap());
    let file = Section::File { file, start: 0, size: bytes.len() as u64 };
    assert!(GoTable::read(&file, &headers).is_none());
}
