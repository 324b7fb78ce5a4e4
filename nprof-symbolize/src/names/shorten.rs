//! Less of a name that is readable already: without its parameters, without the arguments of its
//! templates. Pure.

/// A C++ name without the parameters at its end, and what is behind them.
pub(crate) fn without_parameters(name: &str) -> &str {
    let end = without_qualifiers(name);
    if !end.ends_with(')') {
        return name;
    }
    let mut depth = 0;
    for (at, byte) in end.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            // `operator()` has no others before its parameters.
            let is_name = at == 0 || end[..at].ends_with("operator") || end[..at].ends_with("::");
            return if is_name { name } else { &end[..at] };
        }
    }
    name
}

/// A C++ name without what its function asks of `this`, which stands behind the parameters, and
/// behind the name where those were left out.
pub(crate) fn without_qualifiers(mut name: &str) -> &str {
    const QUALIFIERS: [&str; 5] = [" const", " volatile", " restrict", " &", " &&"];
    while let Some(rest) = QUALIFIERS.iter().find_map(|qualifier| name.strip_suffix(qualifier)) {
        name = rest;
    }
    name
}

/// A name without what stands in angle brackets behind a part of it, and with the rest: Rust's
/// `<T as Trait>::f` begins with a bracket of another kind.
pub(crate) fn without_arguments(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // For each bracket that is open, whether what is inside of it is shown.
    let mut open: Vec<bool> = Vec::new();
    let mut hidden = 0;
    let mut last = ' ';
    for (at, character) in name.char_indices() {
        let is_arrow = character == '>' && matches!(last, '-' | '=');
        let is_bracket = matches!(character, '<' | '>') && !is_arrow && !is_operator(&name[..at]);
        last = character;
        if !is_bracket {
            if hidden == 0 {
                short.push(character);
            }
        } else if character == '<' {
            // `operator<< <char>` has a space before its arguments.
            let before = match short.strip_suffix(' ').filter(|before| is_operator(before)) {
                Some(before) => before,
                None => short.strip_suffix("::").unwrap_or(&short),
            };
            let is_list = hidden > 0
                || before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                || (before.len() < short.len() && is_operator(before));
            open.push(!is_list);
            if is_list {
                hidden += 1;
                short.truncate(before.len());
            } else {
                short.push(character);
            }
        } else if let Some(shown) = open.pop() {
            if shown {
                short.push(character);
            } else {
                hidden -= 1;
            }
        }
    }
    short
}

/// Whether what follows is the rest of an operator's name: `operator<`, `operator>>`, `operator->`.
fn is_operator(before: &str) -> bool {
    let name = before.trim_end_matches(['<', '>', '=', '-']);
    before.len() - name.len() < 3 && name.ends_with("operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_left_out() {
        for (name, plain) in [
            ("f(int)", "f"),
            ("a::f(int (*)(long)) const", "a::f"),
            ("a::f() const volatile &&", "a::f"),
            ("a::f() &", "a::f"),
            ("(anonymous namespace)::f()", "(anonymous namespace)::f"),
            ("main::{lambda}::operator()(int)", "main::{lambda}::operator()"),
            ("operator()", "operator()"),
            ("main", "main"),
            ("f)", "f)"),
            ("", ""),
        ] {
            assert_eq!(without_parameters(name), plain);
        }
    }

    #[test]
    fn arguments_are_left_out() {
        for (name, short) in [
            ("std::vector<int, std::allocator<int> >::push_back", "std::vector::push_back"),
            ("<a::B<u8> as c::D<u16>>::e::<f::G>", "<a::B as c::D>::e"),
            ("std::operator<< <char>", "std::operator<<"),
            ("a::operator->", "a::operator->"),
            ("a<b>::operator>", "a::operator>"),
            ("call::<fn(u8) -> u16>", "call"),
            ("f<<<", "f"),
            ("f>>>", "f"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(name), short, "{name}");
        }
    }
}
