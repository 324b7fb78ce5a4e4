//! Shortens readable names: removes parameters, qualifiers and template arguments. Pure.

/// Returns a C++ name without its parameters and the qualifiers after them.
pub(crate) fn without_parameters(name: &str) -> &str {
    let end = without_qualifiers(name);
    if !end.ends_with(')') {
        return name;
    }
    let mut depth = 0;
    for (at, byte) in end.bytes().enumerate().rev() {
        match byte {
            // Counted from the end: parameters may have function types with parentheses of their own.
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            // The parentheses belong to the name in `operator()` and `(anonymous namespace)`.
            let is_name = at == 0 || end[..at].ends_with("operator") || end[..at].ends_with("::");
            return if is_name { name } else { &end[..at] };
        }
    }
    name
}

/// Returns a C++ name without the qualifiers of `this` at its end. They follow the parameters, or the
/// name if it has none.
pub(crate) fn without_qualifiers(mut name: &str) -> &str {
    const QUALIFIERS: [&str; 5] = [" const", " volatile", " restrict", " &", " &&"];
    while let Some(rest) = QUALIFIERS.iter().find_map(|qualifier| name.strip_suffix(qualifier)) {
        name = rest;
    }
    name
}

/// Returns a name without the arguments in angle brackets. Brackets that are no list of arguments
/// stay: those of operators, and of Rust's `<T as Trait>::f`.
pub(crate) fn without_arguments(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // For each open bracket, true if its contents are shown.
    let mut open: Vec<bool> = Vec::new();
    let mut hidden = 0;
    let mut last = ' ';
    for (at, character) in name.char_indices() {
        // `->` of a function's result, `=>` of a closure.
        let is_arrow = character == '>' && matches!(last, '-' | '=');
        let is_bracket = matches!(character, '<' | '>') && !is_arrow && !is_operator(&name[..at]);
        last = character;
        if !is_bracket {
            if hidden == 0 {
                short.push(character);
            }
        } else if character == '<' {
            // C++ has a space before the arguments of `operator<< <char>`, Rust `::` before those
            // of `f::<u8>`.
            let before = match short.strip_suffix(' ').filter(|before| is_operator(before)) {
                Some(before) => before,
                None => short.strip_suffix("::").unwrap_or(&short),
            };
            // A bracket inside of hidden arguments is hidden, too.
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

/// True if the next character is part of an operator's name: `operator<`, `operator>>`, `operator->`.
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
