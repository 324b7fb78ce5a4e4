//! Parses the `--help` of a tool: its options, subcommands and operand.

/// The command line of a tool or of one of its subcommands.
#[derive(Clone, Debug, Default)]
pub struct Help {
    /// The options, in the order of the help text.
    pub options: Vec<Opt>,
    /// Name and description of each subcommand except `help`.
    pub commands: Vec<(String, String)>,
    /// Name and description of each tool that the program runs by a short name.
    pub tools: Vec<(String, String)>,
    /// The name of the operand, if there is one.
    pub operand: Option<String>,
}

/// An option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opt {
    /// `x` of `-x`.
    pub short: Option<char>,
    /// `xyz` of `--xyz`.
    pub long: Option<String>,
    /// `FILE` of `-x <FILE>`.
    pub value: Option<String>,
    /// The first paragraph of the description, as one line.
    pub about: String,
    /// The possible values, if the help text lists them.
    pub values: Vec<String>,
}

impl Help {
    /// Parses the output of `--help`.
    pub fn parse(text: &str) -> Self {
        let mut help = Self::default();
        let mut section = "";
        let mut first_paragraph = true;
        for line in text.lines() {
            if line.ends_with(':') && !line.starts_with(' ') {
                section = line;
                continue;
            }
            let words = line.trim_start();
            let indent = line.len() - words.len();
            match section {
                "Arguments:" if indent == 2 => help.operand = Some(operand(words)),
                "Commands:" if indent == 2 => help.commands.extend(command(words)),
                _ if section.starts_with("Tools ") && indent == 2 => {
                    help.tools.extend(command(words));
                }
                // clap indents options by 2, or by 6 without a short name; descriptions by 10.
                "Options:" if indent <= 6 && words.starts_with('-') => {
                    help.options.push(option(words));
                    first_paragraph = true;
                }
                "Options:" if words.is_empty() => first_paragraph = false,
                "Options:" => help.add_to_last(words, first_paragraph),
                _ => {}
            }
        }
        help
    }

    /// Adds a line of description, or a possible value, to the last option.
    fn add_to_last(&mut self, words: &str, first_paragraph: bool) {
        let Some(last) = self.options.last_mut() else { return };
        if first_paragraph {
            let blank = if last.about.is_empty() { "" } else { " " };
            last.about += &format!("{blank}{words}");
        } else if let Some((value, _)) = words.strip_prefix("- ").and_then(|it| it.split_once(':'))
        {
            last.values.push(value.to_owned());
        }
    }
}

/// Parses `[FILE]...`, which a description may follow.
fn operand(words: &str) -> String {
    let end = words.find(']').unwrap_or(words.len());
    words[..end].trim_start_matches(['[', '<']).to_owned()
}

/// Parses `check   Check whether ...`. None for `help`.
fn command(words: &str) -> Option<(String, String)> {
    let (name, about) = words.split_once(' ')?;
    (name != "help").then(|| (name.to_owned(), about.trim().to_owned()))
}

/// Parses `-o, --output <FILE>`, which a description may follow after two spaces.
fn option(words: &str) -> Opt {
    let (names, about) = words.split_once("  ").unwrap_or((words, ""));
    let mut option = Opt { about: about.trim().to_owned(), ..Opt::default() };
    for name in names.split([' ', ',']) {
        if let Some(long) = name.strip_prefix("--") {
            option.long = Some(long.to_owned());
        } else if let Some(short) = name.strip_prefix('-') {
            option.short = short.chars().next();
        }
    }
    // The value can contain brackets itself, as in `-e <NAME[:INTERVAL]>`.
    if let (Some(begin), Some(end)) = (names.find('<'), names.rfind('>')) {
        option.value = Some(names[begin + 1..end].to_owned());
    }
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str =
        "Does -x and y.\n\nUsage: tool [OPTIONS] [FILE]...\n\nArguments:\n  [FILE]...
          What to read\n\nOptions:\n  -F <HZ>\n          Samples; see -x\n          of them\n
      --view <VIEW>\n          What to show\n\n          Possible values:
          - paths: Each path\n          - tree:  The tree\n          \n          [default: paths]\n
  -e <NAME[:N][/u]>\n          Sample by this\n\n  -h, --help\n          Print help\n";

    const SHORT: &str = "Usage: tool <COMMAND>\n\nCommands:\n  check  Say: whether
  help   Print this\n\nOptions:\n  -h, --help     Print help\n";

    #[test]
    fn parses_long_help() {
        let help = Help::parse(LONG);
        assert_eq!(help.operand.as_deref(), Some("FILE"));
        let names: Vec<_> =
            help.options.iter().map(|option| (option.short, option.long.as_deref())).collect();
        assert_eq!(
            names,
            [(Some('F'), None), (None, Some("view")), (Some('e'), None), (Some('h'), Some("help"))]
        );
        assert_eq!(help.options[0].about, "Samples; see -x of them");
        assert_eq!(help.options[1].values, ["paths", "tree"]);
        assert_eq!(help.options[1].value.as_deref(), Some("VIEW"));
        assert_eq!(help.options[2].value.as_deref(), Some("NAME[:N][/u]"));
        assert_eq!(help.options[3].value, None);
    }

    #[test]
    fn parses_short_help_with_commands() {
        let help = Help::parse(SHORT);
        assert_eq!(help.commands, [("check".to_owned(), "Say: whether".to_owned())]);
        assert_eq!(help.options[0].about, "Print help");
        assert_eq!(help.operand, None);
    }
}
