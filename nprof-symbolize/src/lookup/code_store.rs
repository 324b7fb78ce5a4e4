//! The code of functions that have samples, with interned names, and the reasons for absent code.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_object::ImageOffset;
use nprof_stream::escape::escaped;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lookup::image_cache::CodeLookup;
use crate::lookup::lookup_key::LookupKey;
use crate::names::location::InternedLine;

/// The most bytes of code and of its calls. The stream repeats them in each epoch. A function takes about
/// 1 KB.
const MAX_BYTES: usize = 64 << 20;

/// The reason for code beyond [`MAX_BYTES`].
const FULL: &str = "there is more code than the symbolizer keeps in memory";

/// The code of a function, or a part of it.
#[derive(Debug)]
pub(crate) struct InternedCode {
    /// The offset of its first byte.
    pub(crate) start: ImageOffset,
    /// The architecture.
    pub(crate) arch: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// The calls at instructions, by their distance from the first byte.
    pub(crate) rows: Vec<(u32, InternedLine)>,
    /// The functions that instructions call, in the same way.
    pub(crate) callees: Vec<(u32, InternedLine)>,
}

impl InternedCode {
    fn bytes(&self) -> usize {
        let lines = self.rows.len() + self.callees.len();
        size_of::<Self>() + self.bytes.len() + lines * size_of::<(u32, InternedLine)>()
    }
}

/// The code that was looked up.
#[derive(Debug, Default)]
pub(crate) struct CodeStore {
    codes: FxHashMap<(usize, ImageOffset), Rc<InternedCode>>,
    /// The start of the code of a lookup. None if there is none.
    starts: FxHashMap<LookupKey, Option<ImageOffset>>,
    bytes: usize,
    /// By image, the offsets without code, and the reason at the first.
    missing: BTreeMap<usize, Missing>,
}

/// The offsets of an image without code.
#[derive(Debug)]
struct Missing {
    offsets: FxHashSet<ImageOffset>,
    reason: String,
}

impl CodeStore {
    /// True if the code of a lookup is known, or why there is none.
    pub(crate) fn knows(&self, key: LookupKey) -> bool {
        !key.code || self.starts.contains_key(&key)
    }

    /// Returns the code of a lookup. None if there is none.
    pub(crate) fn get(&self, key: LookupKey) -> Option<Rc<InternedCode>> {
        let start = self.starts.get(&key).copied().flatten()?;
        self.codes.get(&(key.image, start)).cloned()
    }

    /// Stores the result of a lookup, of which `intern` replaces the names.
    pub(crate) fn store(
        &mut self,
        key: LookupKey,
        found: CodeLookup,
        intern: impl FnOnce(crate::image::code::FunctionCode) -> InternedCode,
    ) {
        let result = found.and_then(|found| {
            let place = (key.image, found.start);
            if let Some(code) = found.code.map(intern) {
                let bytes = code.bytes();
                if self.bytes + bytes <= MAX_BYTES {
                    self.bytes += bytes;
                    self.codes.insert(place, Rc::new(code));
                }
            }
            if self.codes.contains_key(&place) { Ok(found.start) } else { Err(FULL.to_owned()) }
        });
        self.starts.insert(key, result.as_ref().ok().copied());
        if let Err(reason) = result {
            let missing = self.missing.entry(key.image);
            let new = || Missing { offsets: FxHashSet::default(), reason };
            missing.or_insert_with(new).offsets.insert(key.offset);
        }
    }

    /// Returns a line for each image with samples for which there is no code, escaped. `name` returns the
    /// path of an image.
    pub(crate) fn missing<'a>(&self, name: impl Fn(usize) -> &'a [u8]) -> Vec<String> {
        let line = |(&image, missing): (&usize, &Missing)| {
            let (count, reason) = (missing.offsets.len(), escaped(missing.reason.as_bytes()));
            let s = if count == 1 { "" } else { "es" };
            format!("{}: no code of {count} sampled address{s}: {reason}", escaped(name(image)))
        };
        self.missing.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::code::FunctionCode;
    use crate::image::instructions::Arch;
    use crate::lookup::image_cache::FoundCode;

    fn key(offset: u64) -> LookupKey {
        LookupKey { image: 0, offset: ImageOffset(offset), code: true }
    }

    fn intern(code: FunctionCode) -> InternedCode {
        let FunctionCode { start, bytes, .. } = code;
        InternedCode { start, arch: "x86_64", bytes, rows: Vec::new(), callees: Vec::new() }
    }

    fn found(start: u64, bytes: usize) -> CodeLookup {
        let (start, bytes) = (ImageOffset(start), vec![0; bytes]);
        let arch = Arch::X86_64;
        let code = FunctionCode { start, arch, bytes, rows: Vec::new(), callees: Vec::new() };
        Ok(FoundCode { start, code: Some(code) })
    }

    #[test]
    fn lookups_in_one_function_share_its_code() {
        let mut store = CodeStore::default();
        store.store(key(5), found(4, 8), intern);
        store.store(key(6), Ok(FoundCode { start: ImageOffset(4), code: None }), intern);
        assert_eq!(store.get(key(5)).unwrap().start, store.get(key(6)).unwrap().start);
        assert!(store.knows(key(5)) && !store.knows(key(7)) && store.get(key(7)).is_none());
        assert!(store.missing(|_| b"a").is_empty());
    }

    #[test]
    fn code_beyond_the_memory_is_reported() {
        let mut store = CodeStore::default();
        store.store(key(5), found(4, MAX_BYTES), intern);
        store.store(key(6), Err("unreadable\n".to_owned()), intern);
        assert!(store.get(key(5)).is_none() && store.knows(key(5)));
        let lines = store.missing(|_| b"a\x1b");
        assert_eq!(lines, [format!("a\\x1b: no code of 2 sampled addresses: {FULL}")]);
    }
}
