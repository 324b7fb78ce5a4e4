//! Names of functions and images without the parts that change from build to build. Pure.

use nprof_object::path::without_deleted;

/// Suffixes that GCC and LLVM append to the name of a part or copy of a function, each optionally
/// followed by a number.
const CLONE_SUFFIXES: [&[u8]; 8] = [
    b".cold",
    b".constprop",
    b".isra",
    b".llvm",
    b".localalias",
    b".lto_priv",
    b".part",
    b".__uniq",
];

/// Returns a function's name without the suffixes of parts and copies that the compiler made of
/// it, and without Rust's hash.
pub(super) fn stable_function(name: &[u8]) -> &[u8] {
    let mut name = name;
    // Suffixes come in any order and number: foo.constprop.0.isra.12.cold.
    while let Some(shorter) = without_clone_suffix(name).or_else(|| without_rust_hash(name)) {
        name = shorter;
    }
    name
}

/// Returns the name without its last clone suffix. None if it has none, or consists of it.
fn without_clone_suffix(name: &[u8]) -> Option<&[u8]> {
    // Demanglers spell the suffixes as " [clone .part.0]".
    if let Some(inner) = name.strip_suffix(b"]") {
        let start = inner.windows(9).rposition(|window| window == b" [clone .")?;
        return Some(&name[..start]).filter(|name| !name.is_empty());
    }
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let numbered = name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0);
    let stem = numbered.unwrap_or(name);
    // A number alone is no suffix: it may belong to the name.
    let shorter = CLONE_SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(*suffix));
    shorter.filter(|name| !name.is_empty())
}

/// Returns the name without a hash of Rust's legacy mangling: `::h` and 16 hexadecimal digits.
fn without_rust_hash(name: &[u8]) -> Option<&[u8]> {
    let (path, hash) = name.split_at_checked(name.len().checked_sub(19)?)?;
    let is_hash = hash.starts_with(b"::h") && hash[3..].iter().all(u8::is_ascii_hexdigit);
    Some(path).filter(|path| is_hash && !path.is_empty())
}

/// Returns an image's name without the kernel's mark of an unlinked file (the image was replaced
/// while it ran), and without the hash that cargo gives to tests and benchmarks.
pub(super) fn stable_image(name: &[u8]) -> &[u8] {
    let name = without_deleted(name);
    // `-` and 16 digits.
    let split = name.len().checked_sub(17).and_then(|at| name.split_at_checked(at));
    match split {
        Some((stem, hash)) if !stem.is_empty() && is_cargo_hash(hash) => stem,
        _ => name,
    }
}

/// True for `-` and 16 hexadecimal digits in lower case.
fn is_cargo_hash(hash: &[u8]) -> bool {
    hash[0] == b'-' && hash[1..].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_suffixes_of_compilers() {
        for (name, expected) in [
            ("main", "main"),
            ("foo.isra.0", "foo"),
            ("foo.constprop.0.isra.12.cold", "foo"),
            ("foo.part.0", "foo"),
            ("foo.llvm.1234567", "foo"),
            ("f(int) [clone .part.0] [clone .cold]", "f(int)"),
            ("a::b::h0123456789abcdef", "a::b"),
            ("operator[]", "operator[]"),
            ("std::array<int, 3ul>::operator[]", "std::array<int, 3ul>::operator[]"),
            ("foo.12", "foo.12"),
            ("cold", "cold"),
            (".cold", ".cold"),
            ("h.ish", "h.ish"),
            ("", ""),
        ] {
            assert_eq!(std::str::from_utf8(stable_function(name.as_bytes())), Ok(expected));
        }
    }

    #[test]
    fn drops_suffixes_of_cargo_and_the_kernel() {
        for (name, expected) in [
            ("demo", "demo"),
            ("demo (deleted)", "demo"),
            ("bench-0123456789abcdef", "bench"),
            ("bench-0123456789abcdeg", "bench-0123456789abcdeg"),
            ("-0123456789abcdef", "-0123456789abcdef"),
            ("[kernel]", "[kernel]"),
        ] {
            assert_eq!(stable_image(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }
}
