//! nprof-symbolize says what addr2line(1) of binutils says, over whole programs.

#![allow(clippy::unwrap_used)] // what cannot be set up is a failed test

mod fixture;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};

use fixture::{Binary, Named, Places, addr2line, names, run_in, sources};

/// A function without spaces, the name of a file, a line.
type Key = (String, String, u32);

/// What two answers have in common however they are spelled.
fn key(named: &Named) -> Key {
    let name = named.name.split(" [clone").next().unwrap_or_default().replace(' ', "");
    let name = name.split(".cold").next().unwrap_or_default().to_owned();
    // Paths differ in `./` and `..`; the file's name tells enough.
    let file = named.file.rsplit('/').next().unwrap_or_default().to_owned();
    (name, file, named.line)
}

/// Whether two names are the same. Where parameters are left out, they are not compared.
fn is_same_name(ours: &str, theirs: &str) -> bool {
    match ours.strip_suffix("(...)") {
        Some(name) => theirs.contains(name),
        None => ours == theirs,
    }
}

/// Whether two answers are the same, but for what addr2line is known to make up, and for
/// symbols that begin at one address.
fn agree(ours: &[Key], theirs: &[Key], symbols: &HashMap<String, u64>) -> bool {
    let is_alias = |a: &str, b: &str| symbols.get(a).is_some_and(|a| symbols.get(b) == Some(a));
    let is_inlined = ours.len() > 1;
    let names = ours.iter().zip(theirs).enumerate().all(|(i, (ours, theirs_here))| {
        // It shows the symbol in place of an inlined function without a linkage name.
        let made_up = i == 0 && is_inlined && theirs.last().is_some_and(|l| l.0 == theirs_here.0);
        let (ours, theirs) = (&ours.0, &theirs_here.0);
        let own_name = ours.strip_suffix(theirs.as_str());
        let is_qualified = own_name.is_some_and(|scopes| scopes.ends_with("::"));
        is_same_name(ours, theirs) || made_up || is_alias(ours, theirs) || is_qualified
    });
    let lines = ours.iter().zip(theirs).all(|(ours, theirs)| {
        // Without debug information it takes the file from the symbol table.
        (&ours.1, ours.2) == (&theirs.1, theirs.2) || theirs.2 == 0
    });
    ours.len() == theirs.len() && names && lines
}

/// Compares at every `step`th address; gives how many of how many agree.
fn agreement(binary: &Binary, step: usize) -> (usize, usize) {
    let addresses = binary.addresses(step);
    let ours = names(&[], Places::of(binary, &addresses));
    let theirs = addr2line(&binary.path, &addresses);
    assert_eq!((ours.len(), theirs.len()), (addresses.len(), addresses.len()));
    let (mut same, mut compared) = (0, 0);
    let mut shown = HashSet::new();
    let symbols = binary.symbols();
    for ((address, (_, ours)), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
        // Between functions there is no function; addr2line takes the one before.
        if ours.iter().all(|named| named.name.is_empty()) {
            continue;
        }
        compared += 1;
        let (ours, theirs): (Vec<_>, Vec<_>) =
            (ours.iter().map(key).collect(), theirs.iter().map(key).collect());
        if agree(&ours, &theirs, &symbols) {
            same += 1;
        } else if shown.insert((ours.clone(), theirs.clone())) {
            println!("{address:#x}\n  ours   {ours:?}\n  theirs {theirs:?}");
        }
    }
    println!("{}: {same} of {compared} agree", binary.path.display());
    assert!(compared * 10 >= addresses.len() * 8, "{compared} of {} named", addresses.len());
    (same, compared)
}

#[test]
fn compiled_programs_of_every_kind() {
    let directory = sources();
    let at = directory.path();
    for (name, command) in [
        ("pie", "g++ -O2 -g -o @/pie @/a.cc"),
        ("fixed", "g++ -O2 -g -no-pie -fomit-frame-pointer -o @/fixed @/a.cc"),
        ("dwarf4", "g++ -O2 -gdwarf-4 -o @/dwarf4 @/a.cc"),
        ("packed", "g++ -O2 -g -gz=zlib -o @/packed @/a.cc"),
        ("c", "gcc -O2 -g -o @/c @/a.c"),
        ("plain", "gcc -O0 -g -o @/plain @/a.c"),
    ] {
        run_in(at, command);
        let (same, all) = agreement(&Binary::read(&at.join(name)), 1);
        assert!(all > 100 && same == all, "{name}: {same} of {all}");
    }
}

#[test]
fn a_static_program_with_a_c_library_without_debug_information() {
    let directory = sources();
    run_in(directory.path(), "gcc -O2 -g -static -o @/static @/a.c");
    let (same, all) = agreement(&Binary::read(&directory.path().join("static")), 67);
    assert!(all > 5000 && same * 1000 >= all * 998, "{same} of {all}");
}

#[test]
fn a_rust_program() {
    let directory = sources();
    run_in(directory.path(), "rustc -O -g -o @/rust @/a.rs");
    let (same, all) = agreement(&Binary::read(&directory.path().join("rust")), 67);
    assert!(all > 2000 && same * 1000 >= all * 998, "{same} of {all}");
}

#[test]
fn names_are_demangled_as_cxxfilt_does() {
    let found = Command::new("g++").arg("-print-file-name=libstdc++.so.6").output().unwrap();
    let path = String::from_utf8(found.stdout).unwrap();
    let binary = Binary::read(&std::fs::canonicalize(path.trim()).unwrap());
    let text = binary.text.0..binary.text.0 + binary.text.1;
    let mut addresses: Vec<u64> = binary.symbols().into_values().collect();
    addresses.retain(|address| text.contains(address));
    addresses.sort_unstable();
    addresses.dedup();
    let named = names(&["--no-lines"], Places::of(&binary, &addresses));
    let calls = named.into_iter().flat_map(|(_, calls)| calls);
    let calls: Vec<_> = calls.filter(|call| call.linkage.starts_with("_Z")).collect();
    let mut child =
        Command::new("c++filt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let list: String = calls.iter().map(|call| format!("{}\n", call.linkage)).collect();
    let feeder = std::thread::spawn(move || stdin.write_all(list.as_bytes()).unwrap());
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    feeder.join().unwrap();
    // The standard's short names stand for templates with their usual arguments.
    let plain = |name: &str| {
        let name = name.replace(' ', "");
        let string = "std::basic_string<char,std::char_traits<char>,std::allocator<char>>";
        let name =
            name.replace(string, "std::string").replace("std::string::basic_", "std::string::");
        let name = name.replace("std::string::~basic_", "std::string::~");
        let stream = |name: String, which: &str| {
            let long = format!("std::basic_{which}<char,std::char_traits<char>>");
            name.replace(&long, &format!("std::{which}"))
        };
        let name = ["istream", "ostream", "iostream"].into_iter().fold(name, stream);
        // The types of numbers in templates: `(long)1` here, `1l` there.
        let casts = ["(long)", "(unsignedlong)", "(unsignedint)"].into_iter();
        let name = casts.fold(name, |name, cast| name.replace(cast, ""));
        ["ul", "u", "l"].into_iter().fold(name, |name, suffix| {
            let numbers = (0..10).flat_map(|digit| [(digit, ','), (digit, '>'), (digit, ')')]);
            numbers.fold(name, |name, (digit, end)| {
                name.replace(&format!("{digit}{suffix}{end}"), &format!("{digit}{end}"))
            })
        })
    };
    let mut same = 0;
    for (call, theirs) in calls.iter().zip(output.lines()) {
        match plain(&call.name) == plain(theirs) {
            true => same += 1,
            false => println!("{}\n  ours   {}\n  theirs {theirs}", call.linkage, call.name),
        }
    }
    println!("{same} of {} agree", calls.len());
    assert!(calls.len() > 2000 && same * 100 >= calls.len() * 99, "{same} of {}", calls.len());
}
