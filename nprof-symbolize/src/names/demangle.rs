//! Demangles linkage names. Pure.
//!
//! C++ (`_Z..`) and both manglings of Rust are demangled; all other names are kept. A name in a
//! hostile file may expand exponentially, so that length, depth and result are bounded.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::names::shorten;

/// The longest name that is demangled, and the longest result.
const MAX_BYTES: usize = nprof_stream::limits::STRING;

/// The deepest nesting of a C++ name. Each level takes a few hundred bytes of stack.
const MAX_DEPTH: u32 = 1024;

/// The style of demangled names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NameStyle {
    /// All parts of the name
    #[default]
    Full,
    /// Without parameters, results, and arguments of templates and generics
    Short,
}

/// Returns the name to show for a linkage name; the name itself if it is not mangled or too large.
///
/// Debug information also has readable names, of C++ functions without a linkage name. They have
/// parameters, too, and are shortened in the same way.
pub(crate) fn demangle(linkage: &[u8], style: NameStyle) -> Cow<'_, [u8]> {
    let text = std::str::from_utf8(linkage).ok().filter(|text| text.len() <= MAX_BYTES);
    let Some(text) = text else { return linkage.into() };
    let demangled = match text.as_bytes() {
        // The suffix `@plt` is not part of any mangling.
        // All supported manglings begin with an underscore.
        [b'_', ..] => match text.strip_suffix("@plt") {
            Some(name) => demangle_name(name, style).map(|name| name + "@plt"),
            None => demangle_name(text, style),
        },
        _ => None,
    };
    let shown = match demangled {
        Some(mut name) => {
            if style == NameStyle::Short {
                name.truncate(shorten::without_qualifiers(&name).len());
            }
            Cow::Owned(name)
        }
        // A readable name of the debug information.
        None if style == NameStyle::Short => Cow::Borrowed(shorten::without_parameters(text)),
        None => Cow::Borrowed(text),
    };
    if style == NameStyle::Short && shown.contains(['<', '>']) {
        return Cow::Owned(shorten::without_arguments(&shown).into_bytes());
    }
    match shown {
        Cow::Owned(shown) => Cow::Owned(shown.into_bytes()),
        Cow::Borrowed(shown) => Cow::Borrowed(shown.as_bytes()),
    }
}

/// True if a name is mangled.
pub(crate) fn is_mangled(name: &[u8]) -> bool {
    name.starts_with(b"_Z") || name.starts_with(b"_R")
}

fn demangle_name(name: &str, style: NameStyle) -> Option<String> {
    // Legacy Rust names are valid C++ names, so that they are tried first.
    if name.starts_with("_R") || is_legacy_rust(name) {
        let rust = rustc_demangle::try_demangle(name).ok()?;
        let mut out = Bounded(String::new());
        // `#` omits the hash.
        write!(out, "{rust:#}").ok()?;
        return Some(out.0);
    }
    if !name.starts_with("_Z") {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(MAX_DEPTH);
    let mut options = cpp_demangle::DemangleOptions::new().recursion_limit(MAX_DEPTH);
    if style == NameStyle::Short {
        options = options.no_params().no_return_type();
    }
    let symbol = cpp_demangle::BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse);
    let (symbol, tail) = symbol.ok()?;
    let mut out = Bounded(String::new());
    match tail.first() {
        None => symbol.structured_demangle(&mut out, &options).ok()?,
        // The name was parsed, but not the types of its result and parameters: GCC mangles some
        // conditions on types in a way the parser does not know, as in functions that std::vector
        // uses to grow.
        Some(byte) if byte.is_ascii_alphanumeric() => {
            let options = options.no_params().no_return_type();
            symbol.structured_demangle(&mut out, &options).ok()?;
            out.write_str(if style == NameStyle::Full { "(...)" } else { "" }).ok()?;
        }
        // Any other tail is no part of a C++ name.
        Some(_) => return None,
    }
    Some(thunk(name, &out.0).unwrap_or(out.0))
}

/// Returns the name that c++filt(1) shows for a thunk, a stub that adjusts `this` or the result of a
/// virtual function. None for other names.
fn thunk(linkage: &str, shown: &str) -> Option<String> {
    let (kind, offsets) = match linkage.as_bytes().get(2..4)? {
        b"Th" => ("non-virtual thunk to ", 1),
        b"Tv" => ("virtual thunk to ", 1),
        b"Tc" => ("covariant return thunk to ", 2),
        _ => return None,
    };
    // `{virtual override thunk({offset(-16)}, f())}`
    let mut rest = shown.strip_prefix("{virtual override thunk(")?;
    for _ in 0..offsets {
        rest = rest.split_once("}, ")?.1;
    }
    let end = rest.rfind(")}")?;
    Some(format!("{kind}{}{}", &rest[..end], &rest[end + 2..]))
}

/// True if a name has the older mangling of Rust: that of C++, with a hash as the last part.
fn is_legacy_rust(name: &str) -> bool {
    // LLVM may append a suffix such as `.llvm.42`.
    let end = name.rfind("E.").map_or(name.len(), |at| at + 1);
    let Some(hash) =
        name[..end].strip_suffix('E').and_then(|rest| rest.get(rest.len().checked_sub(19)?..))
    else {
        return false;
    };
    hash.starts_with("17h") && hash[3..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A string with a bounded length.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // An error ends the demangler; the name is then shown as it is.
        if self.0.len() + part.len() > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(linkage: &str) -> String {
        String::from_utf8(demangle(linkage.as_bytes(), NameStyle::Full).into_owned()).unwrap()
    }

    #[test]
    fn demangles_every_supported_language() {
        assert_eq!(shown("main"), "main");
        assert_eq!(shown("_start"), "_start");
        assert_eq!(shown("_Z3fooi"), "foo(int)");
        assert_eq!(shown("_ZN1AC4Ev"), "A::A()");
        assert_eq!(shown("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(shown("_ZN4core3fmt5write17h0123456789abcdefE.llvm.42"), "core::fmt::write");
        assert_eq!(shown("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(shown("_Z3fooi@plt"), "foo(int)@plt");
        assert_eq!(shown("_D3foo3barFiZv"), "_D3foo3barFiZv");
    }

    #[test]
    fn styles_remove_parts() {
        let name = b"_ZNSt6vectorIiSaIiEE3getIlEEvRKS0_i";
        let shown = |style| String::from_utf8(demangle(name, style).into_owned()).unwrap();
        assert_eq!(
            shown(NameStyle::Full),
            "void std::vector<int, std::allocator<int> >::get<long>(std::allocator<int> const&, int)"
        );
        assert_eq!(shown(NameStyle::Short), "std::vector::get");
        let own = demangle(b"a::(anonymous namespace)::f<int>(int) const", NameStyle::Short);
        assert_eq!(&*own, b"a::(anonymous namespace)::f");
        assert_eq!(&*demangle(b"main", NameStyle::Short), b"main");
        for name in ["_ZNKR1A1fEv", "_ZNVO1A1fEi", "A::f(int) volatile &"] {
            assert_eq!(&*demangle(name.as_bytes(), NameStyle::Short), b"A::f", "{name}");
        }
    }

    #[test]
    fn clones_are_shown_as_by_cxxfilt() {
        assert_eq!(shown("_Z3fooi.cold"), "foo(int) [clone .cold]");
        assert_eq!(shown("_Z3fooi.constprop.0"), "foo(int) [clone .constprop.0]");
        assert_eq!(shown("_Z3fooi.part.0.cold"), "foo(int) [clone .part.0] [clone .cold]");
        assert_eq!(shown("foo.isra.0"), "foo.isra.0");
    }

    #[test]
    fn thunks_are_named_after_their_target() {
        assert_eq!(shown("_ZThn16_N1AD1Ev"), "non-virtual thunk to A::~A()");
        assert_eq!(shown("_ZTv0_n24_N1A1fEv"), "virtual thunk to A::f()");
        assert_eq!(shown("_ZTch0_v0_n24_N1A1fEv"), "covariant return thunk to A::f()");
    }

    #[test]
    fn unparsed_parameters_do_not_hide_the_name() {
        let name = "_ZSt14__relocate_a_1IiiENSt9enable_ifIXsrSt24__is_bitwise_relocatableIT_vE\
                    5valueEPS2_E4typeES4_S4_S4_RSaIT0_E";
        assert_eq!(shown(name), "std::__relocate_a_1<int, int>(...)");
        let name = "_ZSt11make_sharedI1AJiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES3_E4typeEEDpOT0_";
        assert_eq!(shown(name), "std::make_shared<A, int>(...)");
        assert_eq!(shown("_Z3foo$bar"), "_Z3foo$bar");
    }

    #[test]
    fn name_that_expands_without_bound_is_kept() {
        // Each part doubles the one before it.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for i in 0..40 {
            let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
            let digit = digits.get(i).map_or("10".to_owned(), |&d| char::from(d).to_string());
            bomb.push_str(&format!("St4pairIS{digit}_S{digit}_E"));
        }
        assert!(shown(&bomb).len() <= MAX_BYTES);
        let deep = format!("_Z1f{}i", "P".repeat(60_000));
        assert!(shown(&deep).len() <= MAX_BYTES);
        let long = format!("_Z70000{}", "a".repeat(70_000));
        assert_eq!(shown(&long), long);
        let _ = demangle(b"_Z\xff", NameStyle::Full);
    }
}
