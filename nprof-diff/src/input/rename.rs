//! `--rename`: what is called otherwise on the new side. Pure.
//!
//! A line of the file is `OLD<TAB>NEW`, two names of rows, or `image<TAB>OLD<TAB>NEW`, the base
//! names of two images; as reports print them. Empty lines and those that begin with `#` say
//! nothing.

use anyhow::{Context, Result, bail};
use nprof_stream::escape::{escaped, unescaped};
use rustc_hash::FxHashMap;

use crate::input::key::{By, RowKey};

/// The names of the base that are others on the new side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renames {
    names: FxHashMap<Vec<u8>, Rename>,
    images: FxHashMap<Vec<u8>, Rename>,
}

#[derive(Clone, Debug)]
struct Rename {
    new: Box<[u8]>,
    line: usize,
    is_used: bool,
}

impl Renames {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Says what is wrong with which line.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let mut renames = Self::default();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
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
        let name = |field: &[u8]| {
            let name = unescaped(field).filter(|name| !name.is_empty());
            name.with_context(|| format!("{}: not a name as reports print it", escaped(field)))
        };
        let rename = Rename { new: name(new)?.into(), line: number, is_used: false };
        if map.insert(name(old)?, rename).is_some() {
            bail!("{} is renamed twice", escaped(old));
        }
        Ok(())
    }

    /// A key of the base, by its name on the new side.
    pub(crate) fn renamed(&mut self, mut key: RowKey, by: By) -> RowKey {
        fn replace(name: &mut Box<[u8]>, map: &mut FxHashMap<Vec<u8>, Rename>) {
            if let Some(rename) = map.get_mut(&name[..]) {
                rename.is_used = true;
                *name = rename.new.clone();
            }
        }
        let is_image = by == By::Image;
        replace(if is_image { &mut key.name } else { &mut key.image }, &mut self.images);
        replace(&mut key.name, &mut self.names);
        key
    }

    /// What no key of the base was called, with the numbers of the lines, in their order.
    pub(crate) fn unused(&self) -> Vec<(usize, String)> {
        let all = self.names.iter().chain(&self.images);
        let unused = all.filter(|(_, rename)| !rename.is_used);
        let mut unused: Vec<_> = unused.map(|(old, rename)| (rename.line, escaped(old))).collect();
        unused.sort();
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, image: &str) -> RowKey {
        RowKey { image: image.as_bytes().into(), ..RowKey::of_name(name.as_bytes()) }
    }

    #[test]
    fn functions_and_images_have_other_names() {
        let file = "# what moved\nparse\tread\n\nimage\tdemo-1\tdemo-2\na\\nb\tc\r\nx\ty\n";
        let mut renames = Renames::parse(file.as_bytes()).unwrap();
        assert_eq!(renames.renamed(key("parse", "demo-1"), By::Function), key("read", "demo-2"));
        assert_eq!(renames.renamed(key("a\nb", "lib"), By::Function), key("c", "lib"));
        assert_eq!(renames.renamed(key("demo-1", ""), By::Image), key("demo-2", ""));
        assert_eq!(renames.renamed(key("demo-1", ""), By::Thread), key("demo-1", ""));
        assert_eq!(renames.unused(), [(6, "x".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (file, message) in [
            ("a\tb\nparse", "line 2: expected OLD<TAB>NEW or image<TAB>OLD<TAB>NEW"),
            ("a\tb\tc", "line 1: expected"),
            ("a\t\\q", "line 1: \\\\q: not a name as reports print it"),
            ("\ta", "line 1: : not a name"),
            ("a\tb\na\tc", "line 2: a is renamed twice"),
        ] {
            let error = format!("{:#}", Renames::parse(file.as_bytes()).unwrap_err());
            assert!(error.starts_with(message), "{error}");
        }
    }
}
