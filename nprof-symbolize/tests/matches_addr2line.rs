//! nprof-symbolize gives the answers of addr2line(1) of binutils, over whole programs.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};

use fixture::{Binary, Named, Places, addr2line, names, run_in, sources};

/// A function without spaces, the name of a file, a line.
type Key = (String, String, u32);

/// Returns a name without spaces, and with one spelling for parts that have several.
fn plain(name: &str) -> String {
    // The short names of the standard library are templates with their default arguments.
    let name = name.replace(' ', "");
    let string = "std::basic_string<char,std::char_traits<char>,std::allocator<char>>";
    let name = name.replace(string, "std::string").replace("std::string::basic_", "std::string::");
    let name = name.replace("std::string::~basic_", "std::string::~");
    let stream = |name: String, which: &str| {
        let long = format!("std::basic_{which}<char,std::char_traits<char>>");
        name.replace(&long, &format!("std::{which}"))
    };
    let name = ["istream", "ostream", "iostream"].into_iter().fold(name, stream);
    // The types of numbers in templates: `(long)1` or `1l`.
    let casts = ["(long)", "(unsignedlong)", "(unsignedint)"].into_iter();
    let casts = casts.flat_map(|cast| ["<", ","].map(|before| (format!("{before}{cast}"), before)));
    let name = casts.fold(name, |name, (cast, before)| name.replace(&cast, before));
    ["ul", "u", "l"].into_iter().fold(name, |name, suffix| {
        let numbers = (0..10).flat_map(|digit| [(digit, ','), (digit, '>'), (digit, ')')]);
        numbers.fold(name, |name, (digit, end)| {
            name.replace(&format!("{digit}{suffix}{end}"), &format!("{digit}{end}"))
        })
    })
}

/// Returns the part of an answer that does not depend on spelling.
fn key(named: &Named) -> Key {
    let name = plain(named.name.split(" [clone").next().unwrap_or_default());
    let name = name.split(".cold").next().unwrap_or_default().to_owned();
    // Paths differ in `./` and `..`; the file name suffices.
    let file = named.file.rsplit('/').next().unwrap_or_default().to_owned();
    (name, file, named.line)
}

/// Returns the addresses of symbols by demangled name without spaces; a name may have several.
fn demangled_symbols(binary: &Binary) -> HashMap<String, HashSet<u64>> {
    let output = Command::new("nm").arg("-C").arg(&binary.path).output().unwrap();
    let mut symbols: HashMap<String, HashSet<u64>> = HashMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.splitn(3, ' ');
        let (address, name) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        symbols.entry(plain(name)).or_default().insert(address);
    }
    symbols
}

/// True if two names of a function are the same, apart from known differences.
fn is_same_name(ours: &str, theirs: &str) -> bool {
    // Conditions on types that our demangler does not parse.
    let unknown = ours.strip_suffix("(...)").is_some_and(|name| theirs.contains(name));
    // The return type of a template around a lambda, which c++filt omits.
    let lambda = ours.contains("::{lambda(") && ours.ends_with(theirs);
    ours == theirs
        || unknown
        || lambda
        || is_constructor(ours, theirs)
        || is_qualified(ours, theirs)
}

/// True if ours is a constructor template: our demangler takes the type of its first parameter for
/// a result, and omits it.
fn is_constructor(ours: &str, theirs: &str) -> bool {
    let same = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
    let start = ours[..same].rfind(">(").map_or(0, |at| at + 2);
    start > 0 && theirs[start..].ends_with(&ours[start..])
}

/// True if theirs is the bare name of a function without a linkage name, and ours the whole one,
/// with scopes, parameters, and all template arguments.
fn is_qualified(ours: &str, theirs: &str) -> bool {
    let own = |name: &str| match name.strip_prefix("operator") {
        Some(_) => name.to_owned(),
        None => name.split(['<', '(']).next().unwrap_or_default().to_owned(),
    };
    let own = own(theirs);
    let mut places = ours.match_indices(&own).map(|(at, _)| (at, at + own.len()));
    let begins = |at: usize| at == 0 || ours[..at].ends_with("::");
    let ends = |at: usize| ours[at..].is_empty() || ours[at..].starts_with(['<', '(']);
    !theirs.contains("::") | theirs.contains('<')
        && !own.is_empty()
        && places.any(|(start, end)| begins(start) && ends(end))
}

/// True if two answers are the same, apart from known inventions of addr2line and symbols at one
/// address.
fn agree(ours: &[Key], theirs: &[Key], symbols: &HashMap<String, HashSet<u64>>) -> bool {
    let is_alias = |a: &str, b: &str| match (symbols.get(a), symbols.get(b)) {
        (Some(a), Some(b)) => !a.is_disjoint(b),
        _ => false,
    };
    let is_inlined = ours.len() > 1;
    let outermost = ours.last().map(|last| &last.0);
    let names = ours.iter().zip(theirs).enumerate().all(|(i, (ours, theirs))| {
        let (ours, theirs) = (&ours.0, &theirs.0);
        // addr2line shows the symbol in place of an inlined function without a linkage name.
        let made_up =
            i == 0 && is_inlined && outermost.is_some_and(|last| is_same_name(last, theirs));
        is_same_name(ours, theirs) || made_up || is_alias(ours, theirs)
    });
    let lines = ours.iter().zip(theirs).all(|(ours, theirs)| {
        // Without debug information addr2line takes the file from the symbol table. For a function
        // from a header it may show the line there with the file of the unit.
        ours.2 == theirs.2 && (ours.1 == theirs.1 || theirs.1.ends_with(".cc")) || theirs.2 == 0
    });
    ours.len() == theirs.len() && names && lines
}

/// Returns the calls of addr2line without those that `ours` does not have and that are only the place
/// where a part of a function was inlined into it: the declaration, a line with the name that is no
/// statement.
fn joined_parts<'c>(ours: &[Named], calls: &'c [Named]) -> Vec<&'c Named> {
    let mut sources: HashMap<&str, String> = HashMap::new();
    let mut joined: Vec<&Named> = Vec::new();
    for call in calls {
        let is_next = ours.get(joined.len()).is_some_and(|next| next.line == call.line);
        let is_repeated = !is_next && joined.last().is_some_and(|inner| inner.name == call.name);
        let mut depth = 0;
        let is_shown = |character: &char| {
            depth += i32::from(*character == '<');
            depth -= i32::from(*character == '>');
            depth == 0 && *character != '>'
        };
        // Without template arguments and parameters.
        let own: String = call.name.chars().filter(is_shown).collect();
        let own = own.split('(').next().unwrap_or_default();
        let own = own.rsplit("::").next().unwrap_or_default();
        let is_declaration = is_repeated && {
            let read = || std::fs::read_to_string(&call.file).unwrap_or_default();
            let source = sources.entry(&call.file).or_insert_with(read);
            let line = source.lines().nth((call.line as usize).wrapping_sub(1)).unwrap_or_default();
            let line = line.trim_end();
            // `_Compiler<_TraitsT>::` is on a line of its own, and the place of the declaration.
            (line.contains(own) || line.ends_with("::")) && !line.ends_with(';')
        };
        if !is_declaration {
            joined.push(call);
        }
    }
    joined
}

/// The number of addresses of a whole program that are compared.
const ADDRESSES: usize = 10_000;

/// Compares at every `step`th address; returns the number that agree, and of all.
fn agreement(binary: &Binary, step: usize) -> (usize, usize) {
    agreement_at(binary, &binary.addresses(step))
}

/// Returns pseudo-random addresses of a program, the same for every run.
fn random_addresses(binary: &Binary) -> Vec<u64> {
    let mut number = 1u64;
    let mut next = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        binary.text.0 + (number >> 24) % binary.text.1
    };
    (0..ADDRESSES).map(|_| next()).collect()
}

/// Compares at some addresses; returns the number that agree, and of all.
fn agreement_at(binary: &Binary, addresses: &[u64]) -> (usize, usize) {
    let ours = names(&[], Places::of(binary, addresses));
    let theirs = addr2line(&binary.path, addresses);
    assert_eq!((ours.len(), theirs.len()), (addresses.len(), addresses.len()));
    let (mut same, mut compared) = (0, 0);
    let mut shown = HashSet::new();
    let symbols = demangled_symbols(binary);
    for ((address, (_, ours)), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
        // Between functions there is no function; addr2line takes the previous one.
        if ours.iter().all(|named| named.name.is_empty()) {
            continue;
        }
        compared += 1;
        let theirs = joined_parts(ours, theirs);
        let (ours, theirs): (Vec<_>, Vec<_>) =
            (ours.iter().map(key).collect(), theirs.into_iter().map(key).collect());
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
fn small_programs_match() {
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
fn static_program_matches() {
    let directory = sources();
    run_in(directory.path(), "gcc -O2 -g -static -o @/static @/a.c");
    let (same, all) = agreement(&Binary::read(&directory.path().join("static")), 67);
    assert!(all > 5000 && same * 1000 >= all * 998, "{same} of {all}");
}

/// A large part of the standard library, inlined into each other.
const LARGE_CXX: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
namespace {
struct Word { std::string text; long count; bool operator<(const Word &o) const { return count > o.count; } };
template <class F> void each(const std::map<std::string, long> &words, F f) { for (auto &word : words) f(word); }
long longest(const std::vector<Word> &words) {
    return std::max_element(words.begin(), words.end(), [](auto &a, auto &b) { return a.text.size() < b.text.size(); })->count;
}
}
int main() {
    std::map<std::string, long> words;
    std::regex word("[a-z]+(_[0-9]*)?");
    for (std::string line; std::getline(std::cin, line);)
        for (std::sregex_iterator i(line.begin(), line.end(), word), end; i != end; ++i) words[i->str()]++;
    std::vector<Word> sorted;
    each(words, [&](auto &word) { sorted.push_back({word.first, word.second}); });
    std::sort(sorted.begin(), sorted.end());
    for (auto &word : sorted) std::cout << word.text << ' ' << word.count << '\n';
    return sorted.empty() ? 0 : longest(sorted);
}
"#;

/// C with many functions, one inlined into the next.
fn large_c() -> String {
    let mut source = "extern int printf(const char *, ...);\n".to_owned();
    source += "static inline int part0(int n) { return n * 3 + 1; }\n";
    for i in 1..300 {
        let last = i - 1;
        source += &format!(
            "static inline int part{i}(int n) {{\n    if (n % {i}00 == 7) return n;\n    \
             return part{last}(n ^ {i}) + {i};\n}}\n\
             __attribute__((noinline)) int whole{i}(int *list, int n) {{\n    int sum = 0;\n    \
             for (int at = 0; at < n; at++)\n        sum += part{i}(list[at]);\n    \
             return sum;\n}}\n"
        );
    }
    source += "int main(int argc, char **argv) {\n    int list[9] = {argc};\n    int sum = 0;\n";
    for i in 1..300 {
        source += &format!("    sum += whole{i}(list, 9);\n");
    }
    source + "    return printf(\"%d\\n\", sum);\n}\n"
}

#[test]
fn large_cxx_program_matches() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("large.cc"), LARGE_CXX).unwrap();
    run_in(directory.path(), "g++ -std=c++17 -O2 -g -o @/large @/large.cc");
    let binary = Binary::read(&directory.path().join("large"));
    let (same, all) = agreement_at(&binary, &random_addresses(&binary));
    assert!(all > 9000 && same == all, "{same} of {all}");
}

#[test]
fn large_c_program_matches() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("large.c"), large_c()).unwrap();
    run_in(directory.path(), "gcc -O2 -g -o @/large @/large.c");
    let binary = Binary::read(&directory.path().join("large"));
    let (same, all) = agreement_at(&binary, &random_addresses(&binary));
    assert!(all > 9000 && same == all, "{same} of {all}");
}

#[test]
fn rust_program_matches() {
    let directory = sources();
    run_in(directory.path(), "rustc -O -g -o @/rust @/a.rs");
    let binary = Binary::read(&directory.path().join("rust"));
    let (same, all) = agreement_at(&binary, &random_addresses(&binary));
    assert!(all > 8000 && same == all, "{same} of {all}");
}

#[test]
fn demangled_names_match_cxxfilt() {
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
