//! The crate addr2line as oracle: the same frames at each address of programs of all kinds.
//!
//! Known differences, none of which is compared:
//! - a C++ function without linkage name has its scopes and parameters here, and only its own name
//!   in addr2line (gimli-rs/addr2line#181);
//! - addr2line has no column where the line is 0;
//! - a part of a function that was split off and inlined into it is a call of its own in addr2line;
//! - units that dwz made partial are confused by addr2line before DWARF 5, which has no type for
//!   them; the frames of the program before dwz are the oracle there;
//! - addr2line counts code that `--gc-sections` dropped from address 0, which no address of
//!   `.text` here is near enough to.

use std::sync::Arc;

use gimli::{EndianSlice, RunTimeEndian};

use super::program::{ALL, C, CXX, Program, RUST, Sections, run};
use crate::dwarf::{Call, Dwarf, ROOM_BYTES};
use crate::names::demangle::{NameStyle, demangle};

type Slice = EndianSlice<'static, RunTimeEndian>;

/// A frame: function, file, line, column.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    function: Option<String>,
    file: Option<String>,
    line: u32,
    column: u32,
}

/// Loads sections for gimli; their memory lasts as long as the tests.
fn load(sections: &Sections, is_split: bool) -> gimli::Dwarf<Slice> {
    let load = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
        let name = if is_split { id.dwo_name() } else { Some(id.name()) };
        let bytes = name.and_then(|name| sections.0.get(name)).cloned().unwrap_or_default();
        Ok(EndianSlice::new(bytes.to_vec().leak(), RunTimeEndian::Little))
    };
    gimli::Dwarf::load(load).unwrap()
}

/// addr2line's context of a program.
struct Oracle<'a> {
    program: &'a Program,
    context: addr2line::Context<Slice>,
    package: Option<gimli::DwarfPackage<Slice>>,
}

impl<'a> Oracle<'a> {
    fn new(program: &'a Program) -> Self {
        let mut dwarf = load(&program.main, false);
        if let Some(shared) = &program.supplementary {
            dwarf.set_sup(load(shared, false));
        }
        let context = addr2line::Context::from_dwarf(dwarf).unwrap();
        let package = Sections::read(&program.path(b"prog.dwp"));
        let empty = EndianSlice::new(&[], RunTimeEndian::Little);
        let package = package.map(|package| {
            let load = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
                let bytes = id.dwo_name().and_then(|name| package.0.get(name)).cloned();
                let bytes = bytes.unwrap_or_default().to_vec().leak();
                Ok(EndianSlice::new(bytes, RunTimeEndian::Little))
            };
            gimli::DwarfPackage::load(load, empty).unwrap()
        });
        Self { program, context, package }
    }

    fn split(&self, wanted: &addr2line::SplitDwarfLoad<Slice>) -> Option<Arc<gimli::Dwarf<Slice>>> {
        if let Some(package) = &self.package {
            return package.find_cu(wanted.dwo_id, &wanted.parent).unwrap().map(Arc::new);
        }
        let path = self.program.path(wanted.path.as_ref()?.slice());
        let mut split = load(&Sections::read(&path)?, true);
        split.make_dwo(&wanted.parent);
        Some(Arc::new(split))
    }

    fn frames(&self, address: u64) -> Vec<Frame> {
        let mut lookup = self.context.find_frames(address);
        let mut found = loop {
            match lookup {
                addr2line::LookupResult::Output(found) => break found.unwrap(),
                addr2line::LookupResult::Load { load, continuation } => {
                    use addr2line::LookupContinuation;
                    lookup = continuation.resume(self.split(&load));
                }
            }
        };
        let mut frames = Vec::new();
        while let Some(frame) = found.next().unwrap() {
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: frame.function.map(|name| name.raw_name().unwrap().into_owned()),
                file: location.and_then(|at| at.file).map(str::to_owned),
                line: location.and_then(|at| at.line).unwrap_or(0),
                column: location.and_then(|at| at.column).unwrap_or(0),
            });
        }
        frames
    }
}

/// Leaves out a frame that `ours` does not have if it is only the place of a part that was inlined into
/// its own function: the declaration, a line with the name that is no statement.
fn joined_parts<'f>(ours: &[Frame], theirs: &'f [Frame]) -> Vec<&'f Frame> {
    let mut joined: Vec<&Frame> = Vec::new();
    for frame in theirs {
        let next = ours.get(joined.len()).map(|next| (next.line, next.column));
        let is_next = next == Some((frame.line, frame.column));
        let inner = joined.last().and_then(|inner| inner.function.as_ref());
        let is_repeated = inner.is_some() && inner == frame.function.as_ref();
        if is_next || !is_repeated || !is_declaration(frame) {
            joined.push(frame);
        }
    }
    joined
}

/// True if the line of a frame declares its function.
fn is_declaration(frame: &Frame) -> bool {
    let linkage = frame.function.clone().unwrap_or_default();
    let name = demangle(linkage.as_bytes(), NameStyle::Short);
    let name = String::from_utf8_lossy(&name).into_owned();
    let own = name.rsplit("::").next().unwrap_or_default();
    let source = std::fs::read_to_string(frame.file.as_deref().unwrap_or_default());
    let source = source.unwrap_or_default();
    let line = source.lines().nth((frame.line as usize).wrapping_sub(1)).unwrap_or_default();
    line.contains(own) && !line.trim_end().ends_with(';')
}

fn frames(dwarf: &Dwarf, address: u64) -> Vec<Frame> {
    let found = dwarf.calls(address, ALL, None);
    assert_eq!(found.fault, None, "{address:#x}");
    frames_of(&found.calls)
}

fn frames_of(calls: &[Call]) -> Vec<Frame> {
    let text = |bytes: &Arc<[u8]>| String::from_utf8_lossy(bytes).into_owned();
    let frames = calls.iter().map(|call| Frame {
        function: call.function.as_ref().map(text),
        file: call.file.as_ref().map(text),
        line: call.line,
        column: if call.line == 0 { 0 } else { call.column },
    });
    frames.collect()
}

/// True if `ours` is `theirs` with scopes before it and parameters after it.
fn is_qualified(ours: &str, theirs: &str) -> bool {
    let mut places = ours.match_indices(theirs).map(|(at, _)| (&ours[..at], &ours[at..]));
    places.any(|(before, from)| {
        let after = &from[theirs.len()..];
        (before.is_empty() || before.ends_with("::"))
            && (after.is_empty() || after.starts_with('('))
    })
}

/// Checks that frames are the same, apart from the known differences.
fn assert_same(what: &str, address: u64, ours: &[Frame], theirs: &[Frame]) {
    let is_same = |(ours, theirs): (&Frame, &Frame)| {
        let is_same_name = match (&ours.function, &theirs.function) {
            (Some(ours), Some(theirs)) => ours == theirs || is_qualified(ours, theirs),
            (ours, theirs) => ours == theirs,
        };
        is_same_name
            && (&ours.file, ours.line, ours.column) == (&theirs.file, theirs.line, theirs.column)
    };
    let joined = joined_parts(ours, theirs);
    let are_same = ours.len() == joined.len() && ours.iter().zip(joined).all(is_same);
    assert!(are_same, "{what}, {address:#x}: {ours:#?}, addr2line: {theirs:#?}");
}

/// Compares a program with addr2line. Returns the number of frames.
fn compare(what: &str, program: &Program) -> usize {
    let oracle = Oracle::new(program);
    let dwarf = Dwarf::load(Box::new(program.clone()), ROOM_BYTES).unwrap();
    let mut count = 0;
    for address in program.addresses() {
        let ours = frames(&dwarf, address);
        assert_same(what, address, &ours, &oracle.frames(address));
        count += ours.len();
    }
    count
}

/// Compares programs compiled with flags.
fn compare_all(name: &str, source: &str, compiler: &str, all_flags: &[&str]) {
    for flags in all_flags {
        let command = format!("{compiler} {flags} -o @/prog {name}");
        let program = Program::compile(name, source, &[&command]);
        let count = compare(&command, &program);
        assert!(count * 2 > program.addresses().count(), "{command}: {count} frames");
    }
}

#[test]
fn matches_addr2line_in_c() {
    let flags = [
        "-O2 -gdwarf-2",
        "-O2 -gdwarf-3",
        "-O2 -gdwarf-4",
        "-O2 -gdwarf-5",
        "-O0 -g",
        "-O2 -g1",
        "-O2 -g -flto",
        "-O2 -g -ffunction-sections -no-pie",
        "-O2 -gdwarf-4 -gsplit-dwarf",
        "-O2 -gdwarf-5 -gsplit-dwarf",
    ];
    compare_all("a.c", C, "gcc", &flags);
}

#[test]
fn matches_addr2line_in_cxx() {
    let flags = [
        "-gdwarf-2",
        "-gdwarf-3",
        "-gdwarf-4",
        "-gdwarf-5",
        "-g1",
        "-gdwarf-4 -fdebug-types-section",
        "-gdwarf-5 -fdebug-types-section",
        "-gdwarf-4 -gsplit-dwarf",
        "-gdwarf-5 -gsplit-dwarf",
    ];
    compare_all("a.cc", CXX, "g++ -std=c++17 -O2", &flags);
    compare_all("a.cc", CXX, "g++ -std=c++17 -O0", &["-g"]);
}

#[test]
fn matches_addr2line_in_rust() {
    compare_all("a.rs", RUST, "rustc -O", &["-g", "-C debuginfo=1"]);
    compare_all("a.rs", RUST, "rustc", &["-g"]);
}

#[test]
fn matches_addr2line_in_packages_of_split_units() {
    // dwp of binutils 2.40 does not list units of DWARF 5.
    let compile = "g++ -std=c++17 -O2 -gdwarf-4 -gsplit-dwarf -o @/prog a.cc";
    let commands = [compile, "dwp -e @/prog -o @/prog.dwp", "rm @/prog-a.dwo"];
    let program = Program::compile("a.cc", CXX, &commands);
    let count = compare(compile, &program);
    assert!(count > 1000, "{count} frames");
}

/// gcc gives each type unit a section of its own, before the one with the code.
#[test]
fn finds_code_of_dwo_files_that_begin_with_type_units() {
    let flags = ["-gdwarf-5 -gsplit-dwarf -fdebug-types-section"];
    compare_all("a.cc", CXX, "g++ -std=c++17 -O2", &flags);
}

#[test]
fn dwz_changes_no_frame() {
    for version in [2, 3, 4, 5] {
        let compile = format!("g++ -std=c++17 -O2 -gdwarf-{version} -o @/prog a.cc");
        let program = Program::compile("a.cc", CXX, &[&compile]);
        // dwz writes a shared file for two programs or more.
        let directory = program.directory.path();
        run(directory, "cp @/prog @/other");
        run(directory, "dwz -m @/shared @/prog @/other");
        let packed = Program::open(program.directory.clone());
        assert!(packed.main.size() < program.main.size());
        assert!(packed.supplementary.is_some());
        let oracle = Oracle::new(&program);
        let dwarf = Dwarf::load(Box::new(packed.clone()), ROOM_BYTES).unwrap();
        for address in program.addresses() {
            let ours = frames(&dwarf, address);
            assert_same(&format!("dwz of {compile}"), address, &ours, &oracle.frames(address));
        }
        let missing = Program { supplementary: None, ..packed };
        keeps_lines_without_the_shared_file(&missing, &oracle);
    }
}

/// Checks that each frame has its line, and that missing names are reported.
fn keeps_lines_without_the_shared_file(program: &Program, oracle: &Oracle<'_>) {
    let dwarf = Dwarf::load(Box::new(program.clone()), ROOM_BYTES).unwrap();
    let (mut nameless, mut lines) = (0, 0);
    for address in program.addresses() {
        let found = dwarf.calls(address, ALL, None);
        let theirs = oracle.frames(address);
        let theirs = joined_parts(&frames_of(&found.calls), &theirs);
        assert_eq!(found.calls.len(), theirs.len(), "{address:#x}");
        let mut is_nameless = false;
        for (ours, theirs) in found.calls.iter().zip(theirs) {
            assert_eq!(ours.line, theirs.line, "{address:#x}");
            is_nameless |= ours.function.is_none() && theirs.function.is_some();
            lines += usize::from(ours.line > 0 && ours.file.is_some());
        }
        nameless += usize::from(is_nameless);
        assert!(!is_nameless || found.fault.is_some_and(|fault| fault.is_absence()));
    }
    assert!(nameless > 100 && lines > 1000, "{nameless} without names, {lines} lines");
}

/// `-g1` has no parameters, so that names have none either.
#[test]
fn names_have_no_parentheses_where_there_are_no_parameters() {
    let names = |flags: &str| {
        let compile = format!("g++ -std=c++17 -O2 {flags} -o @/prog a.cc");
        let program = Program::compile("a.cc", CXX, &[&compile]);
        let dwarf = Dwarf::load(Box::new(program.clone()), ROOM_BYTES).unwrap();
        let frames = program.addresses().flat_map(|address| frames(&dwarf, address));
        let names: std::collections::BTreeSet<String> =
            frames.filter_map(|frame| frame.function).collect();
        names
    };
    let (without, with) = (names("-g1"), names("-g"));
    assert!(without.contains("weigh"), "{without:?}");
    // Those inside of `<>` are of the compiler.
    assert!(!without.iter().any(|name| name.ends_with(')')), "{without:?}");
    assert!(with.contains("weigh((anonymous namespace)::Item const&)"), "{with:?}");
}
