//! Short names of functions, for places with little room. Pure.

use crate::render::layout::{elide, without_type};

/// Qualifiers of `this` that follow the parameters of a C++ function.
const QUALIFIERS: [&str; 4] = [" const", " volatile", " &&", " &"];

/// Returns the name of a C++ or Rust function without its parameters, its return type and the
/// arguments of templates; other names as they are.
pub(crate) fn short_name(name: &str) -> String {
    // A path, or the address of code without a name.
    if !name.contains(['<', '(']) || name.contains('/') || name.contains("+0x") {
        return name.to_owned();
    }
    let elided = elide(name, '<', '>').unwrap_or_else(|| name.to_owned());
    let has_arguments = elided != name;
    let elided = elide(&elided, '(', ')').unwrap_or(elided);
    // Only instances of templates have a return type in their name.
    let elided = if has_arguments { without_type(&elided) } else { &elided };
    let mut short = elided.to_owned();
    // Rust has `::` before arguments, C++ a space after an operator.
    for arguments in ["::<…>", " <…>", "<…>"] {
        short = short.replace(arguments, "");
    }
    while let Some(rest) = QUALIFIERS.iter().find_map(|word| short.strip_suffix(word)) {
        short.truncate(rest.len());
    }
    // The call operator is `operator()`, with its parameters `operator()(…)`.
    if let Some(rest) = short.strip_suffix("()").filter(|rest| !rest.ends_with("operator")) {
        short.truncate(rest.len());
    }
    short = short.replace("(…)", "");
    if short.is_empty() { name.to_owned() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_name_is_the_name_that_its_author_wrote() {
        for (name, short) in [
            ("main", "main"),
            ("walk(node*)", "walk"),
            ("f()", "f"),
            (
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "std::vector::push_back",
            ),
            ("std::map<int, int>::find(int const&) const", "std::map::find"),
            ("bool std::operator< <int>(int, int)", "std::operator<"),
            ("std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"),
            ("(anonymous namespace)::merge(int, bool)", "(anonymous namespace)::merge"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"),
            ("A::operator()() const", "A::operator()"),
            ("void f<int>(int) [clone .cold]", "f [clone .cold]"),
            ("<a::B<u8> as c::D<u16>>::e::<f::G>", "<a::B as c::D>::e"),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("libc.so.6+0x3d1f0 (after mrand48_r)", "libc.so.6+0x3d1f0 (after mrand48_r)"),
            ("/usr/a b/file(1).c", "/usr/a b/file(1).c"),
            ("f<<<", "f<<<"),
            ("(int)", "(int)"),
        ] {
            assert_eq!(short_name(name), short, "{name}");
        }
    }
}
