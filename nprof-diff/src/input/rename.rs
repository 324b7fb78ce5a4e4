//! `--rename`: names of the base that differ on the new side. Pure.
//!
//! A line of the file is `OLD<TAB>NEW`, two names of rows, or `image<TAB>OLD<TAB>NEW`, the base
//! names of two images, spelled as reports print them. Empty lines and lines that begin with `#`
//! are ignored.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use nprof_stream::escape::{escaped, unescaped};
use rustc_hash::FxHashMap;

use crate::input::key::RowKey;
use crate::input::row_kind::RowKind;

/// New names by old names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renames {
    names: RenameMap,
    images: RenameMap,
}

type RenameMap = FxHashMap<Vec<u8>, Rename>;

#[derive(Clone, Debug)]
struct Rename {
    new: Arc<[u8]>,
    line: usize,
    is_used: bool,
}

impl Renames {
    /// Parses the file.
    ///
    /// # Errors
    ///
    /// Names the line and its mistake.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let mut renames = Self::default();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            // Some editors end lines with CR LF.
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            renames.add(line, number).with_context(|| format!("line {number}"))?;
        }
        Ok(renames)
    }

    fn add(&mut self, line: &[u8], number: usize) -> Result<()> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let (map, old, new) = match fields[..] {
            [old, new] => (&mut self.names, old, new),
            [b"image", old, new] => (&mut self.images, old, new),
            _ => bail!("expected OLD<TAB>NEW or image<TAB>OLD<TAB>NEW"),
        };
        let rename = Rename { new: parse_name(new)?.into(), line: number, is_used: false };
        // The order of the lines must not decide which of two names is used.
        if map.insert(parse_name(old)?, rename).is_some() {
            bail!("{} is renamed twice", escaped(old));
        }
        Ok(())
    }

    /// Returns a key of the base with its name on the new side.
    pub(crate) fn renamed(&mut self, mut key: RowKey, row_kind: RowKind) -> RowKey {
        // If rows are images, the name of a row is the name of an image.
        let image = if row_kind == RowKind::Image { &mut key.name } else { &mut key.image };
        replace(image, &mut self.images);
        replace(&mut key.name, &mut self.names);
        key
    }

    /// Returns the line numbers and old names of unused renames, in the order of the file.
    pub(crate) fn unused(&self) -> Vec<(usize, String)> {
        let all = self.names.iter().chain(&self.images);
        let unused = all.filter(|(_, rename)| !rename.is_used);
        let mut unused: Vec<_> = unused.map(|(old, rename)| (rename.line, escaped(old))).collect();
        unused.sort();
        unused
    }
}

fn parse_name(field: &[u8]) -> Result<Vec<u8>> {
    let name = unescaped(field).filter(|name| !name.is_empty());
    name.with_context(|| format!("{}: not an escaped name as reports print it", escaped(field)))
}

fn replace(name: &mut Arc<[u8]>, map: &mut RenameMap) {
    if let Some(rename) = map.get_mut(&name[..]) {
        rename.is_used = true;
        *name = rename.new.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, image: &str) -> RowKey {
        RowKey { image: image.as_bytes().into(), ..RowKey::of_name(name.as_bytes()) }
    }

    #[test]
    fn renames_functions_and_images() {
        let file = "# moved\nparse\tread\n\nimage\tdemo-1\tdemo-2\na\\nb\tc\r\nx\ty\n";
        let mut renames = Renames::parse(file.as_bytes()).unwrap();
        assert_eq!(
            renames.renamed(key("parse", "demo-1"), RowKind::Function),
            key("read", "demo-2")
        );
        assert_eq!(renames.renamed(key("a\nb", "lib"), RowKind::Function), key("c", "lib"));
        assert_eq!(renames.renamed(key("demo-1", ""), RowKind::Image), key("demo-2", ""));
        assert_eq!(renames.renamed(key("demo-1", ""), RowKind::Command), key("demo-1", ""));
        assert_eq!(renames.unused(), [(6, "x".to_owned())]);
    }

    #[test]
    fn rejects_malformed_lines_by_number() {
        for (file, message) in [
            ("a\tb\nparse", "line 2: expected OLD<TAB>NEW or image<TAB>OLD<TAB>NEW"),
            ("a\tb\tc", "line 1: expected"),
            ("a\t\\q", "line 1: \\\\q: not an escaped name as reports print it"),
            ("\ta", "line 1: : not an escaped name"),
            ("a\tb\na\tc", "line 2: a is renamed twice"),
        ] {
            let error = format!("{:#}", Renames::parse(file.as_bytes()).unwrap_err());
            assert!(error.starts_with(message), "{error}");
        }
    }
}
