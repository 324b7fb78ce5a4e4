//! From the names linkers know to the names people know. Pure.
//!
//! C++ (`_Z..`) and both manglings of Rust; all other names stay as they are. What comes from a
//! file may be made to blow up when it is demangled, so length, depth and result are bounded.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::names::shorten;

/// The longest name that is demangled, and the longest result, bytes.
const LONGEST: usize = nprof_stream::limits::STRING;

/// How deeply the parts of a C++ name may nest. Each level costs a few hundred bytes of stack.
const DEPTH: u32 = 1024;

/// How much of a name is shown: the further down, the less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum NameStyle {
    /// The name linkers know, as it is
    Linkage,
    /// All that the linkage name says
    #[default]
    Full,
    /// Without parameters and result of C++ functions
    Plain,
    /// And without the arguments of templates and generics
    Short,
}

/// The name to show for a linkage name; the name itself when it is not mangled, or too large.
///
/// Names the debug information has of C++ functions without a linkage name come with their
/// parameters, and lose them likewise.
pub(crate) fn demangle(linkage: &[u8], style: NameStyle) -> Cow<'_, [u8]> {
    let text = std::str::from_utf8(linkage).ok().filter(|text| text.len() <= LONGEST);
    let Some(text) = text.filter(|_| style > NameStyle::Linkage) else { return linkage.into() };
    let shown = match text.as_bytes() {
        // `name@plt`, which no mangling knows.
        [b'_', ..] => match text.strip_suffix("@plt") {
            Some(name) => demangle_name(name, style).map(|shown| shown + "@plt"),
            None => demangle_name(text, style),
        },
        _ => None,
    };
    // Names of the debug information are readable already.
    let shown = match shown {
        Some(mut shown) => {
            if style >= NameStyle::Plain {
                shown.truncate(shorten::without_qualifiers(&shown).len());
            }
            Cow::Owned(shown)
        }
        None if style >= NameStyle::Plain => Cow::Borrowed(shorten::without_parameters(text)),
        None => Cow::Borrowed(text),
    };
    match (style >= NameStyle::Short && shown.contains(['<', '>']), shown) {
        (true, shown) => Cow::Owned(shorten::without_arguments(&shown).into_bytes()),
        (false, Cow::Owned(shown)) => Cow::Owned(shown.into_bytes()),
        (false, Cow::Borrowed(shown)) => Cow::Borrowed(shown.as_bytes()),
    }
}

/// Whether a name is one that [`demangle`] is for.
pub(crate) fn is_mangled(name: &[u8]) -> bool {
    name.starts_with(b"_Z") || name.starts_with(b"_R")
}

fn demangle_name(name: &str, style: NameStyle) -> Option<String> {
    if name.starts_with("_R") || is_legacy_rust(name) {
        let rust = rustc_demangle::try_demangle(name).ok()?;
        let mut out = Bounded(String::new());
        // `#` leaves out the hash.
        write!(out, "{rust:#}").ok()?;
        return Some(out.0);
    }
    if !name.starts_with("_Z") {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(DEPTH);
    let mut options = cpp_demangle::DemangleOptions::new().recursion_limit(DEPTH);
    if style >= NameStyle::Plain {
        options = options.no_params().no_return_type();
    }
    let symbol = cpp_demangle::BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse);
    let (symbol, tail) = symbol.ok()?;
    let mut out = Bounded(String::new());
    match tail.first() {
        None => symbol.structured_demangle(&mut out, &options).ok()?,
        // The name was understood, and the types of its result and its parameters were not: GCC
        // mangles some conditions on types in a way the parser does not know, as in what
        // std::vector uses to grow.
        Some(byte) if byte.is_ascii_alphanumeric() => {
            let options = options.no_params().no_return_type();
            symbol.structured_demangle(&mut out, &options).ok()?;
            out.write_str(if style < NameStyle::Plain { "(...)" } else { "" }).ok()?;
        }
        Some(_) => return None,
    }
    Some(thunk(name, &out.0).unwrap_or(out.0))
}

/// What c++filt(1) calls a thunk: a stub of a virtual function that adjusts `this` or the result.
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

/// Whether a name is of Rust's older mangling: C++'s, with a hash as the last part.
fn is_legacy_rust(name: &str) -> bool {
    let end = name.rfind("E.").map_or(name.len(), |at| at + 1);
    let Some(hash) =
        name[..end].strip_suffix('E').and_then(|rest| rest.get(rest.len().checked_sub(19)?..))
    else {
        return false;
    };
    hash.starts_with("17h") && hash[3..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A string that refuses to grow without bound.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > LONGEST {
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
    fn each_language_has_its_names() {
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
    fn each_style_shows_less() {
        let name = b"_ZNSt6vectorIiSaIiEE3getIlEEvRKS0_i";
        let shown = |style| String::from_utf8(demangle(name, style).into_owned()).unwrap();
        assert_eq!(shown(NameStyle::Linkage).as_bytes(), name);
        assert_eq!(
            shown(NameStyle::Full),
            "void std::vector<int, std::allocator<int> >::get<long>(std::allocator<int> const&, int)"
        );
        assert_eq!(shown(NameStyle::Plain), "std::vector<int, std::allocator<int> >::get<long>");
        assert_eq!(shown(NameStyle::Short), "std::vector::get");
        let own = demangle(b"a::(anonymous namespace)::f<int>(int) const", NameStyle::Plain);
        assert_eq!(&*own, b"a::(anonymous namespace)::f<int>");
        assert_eq!(&*demangle(b"main", NameStyle::Short), b"main");
        for name in ["_ZNKR1A1fEv", "_ZNVO1A1fEi", "A::f(int) volatile &"] {
            assert_eq!(&*demangle(name.as_bytes(), NameStyle::Plain), b"A::f", "{name}");
        }
    }

    #[test]
    fn clones_are_shown_as_cxxfilt_shows_them() {
        assert_eq!(shown("_Z3fooi.cold"), "foo(int) [clone .cold]");
        assert_eq!(shown("_Z3fooi.constprop.0"), "foo(int) [clone .constprop.0]");
        assert_eq!(shown("_Z3fooi.part.0.cold"), "foo(int) [clone .part.0] [clone .cold]");
        assert_eq!(shown("foo.isra.0"), "foo.isra.0");
    }

    #[test]
    fn thunks_are_named_after_where_they_lead() {
        assert_eq!(shown("_ZThn16_N1AD1Ev"), "non-virtual thunk to A::~A()");
        assert_eq!(shown("_ZTv0_n24_N1A1fEv"), "virtual thunk to A::f()");
        assert_eq!(shown("_ZTch0_v0_n24_N1A1fEv"), "covariant return thunk to A::f()");
    }

    #[test]
    fn parameters_that_are_not_understood_do_not_hide_the_name() {
        let name = "_ZSt14__relocate_a_1IiiENSt9enable_ifIXsrSt24__is_bitwise_relocatableIT_vE\
                    5valueEPS2_E4typeES4_S4_S4_RSaIT0_E";
        assert_eq!(shown(name), "std::__relocate_a_1<int, int>(...)");
        let name = "_ZSt11make_sharedI1AJiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES3_E4typeEEDpOT0_";
        assert_eq!(shown(name), "std::make_shared<A, int>(...)");
        assert_eq!(shown("_Z3foo$bar"), "_Z3foo$bar");
    }

    #[test]
    fn a_name_that_would_blow_up_stays_as_it_is() {
        // Each part doubles the one before it.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for i in 0..40 {
            let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
            let digit = digits.get(i).map_or("10".to_owned(), |&d| char::from(d).to_string());
            bomb.push_str(&format!("St4pairIS{digit}_S{digit}_E"));
        }
        assert!(shown(&bomb).len() <= LONGEST);
        let deep = format!("_Z1f{}i", "P".repeat(60_000));
        assert!(shown(&deep).len() <= LONGEST);
        let long = format!("_Z70000{}", "a".repeat(70_000));
        assert_eq!(shown(&long), long);
        let _ = demangle(b"_Z\xff", NameStyle::Full);
    }
}
