//! Row keys: the names that match calls of different builds. Pure.
//!
//! A key never contains an address, since addresses change with every build. Names lose the parts
//! that a compiler appends, and all unnamed code of an image is one key.

use std::sync::Arc;

use nprof_report::folded::part;
use nprof_report::profile::{BlockNumber, Sum};
use nprof_stream::Mark;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels, OTHER, UNKNOWN};
use nprof_stream::tables::{Call, Tables};
use rustc_hash::FxHashMap;

use crate::input::row_kind::RowKind;
use crate::input::stable_names::{stable_function, stable_image};

/// The name of a row on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    /// Of a call path, the path without its last function.
    pub(crate) caller: Option<KeyId>,
    /// Function, file, line, image or thread name, as bytes from the stream.
    pub(crate) name: Arc<[u8]>,
    /// The base name of a function's image; empty for other kinds of rows, and for a function
    /// without image.
    pub(crate) image: Arc<[u8]>,
}

/// Identifies a [`RowKey`] in a [`KeyTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId(u32);

impl KeyId {
    /// Returns the id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The distinct keys of both sides.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    ids: FxHashMap<RowKey, KeyId>,
    keys: Vec<RowKey>,
    /// By key, the most samples that it lacks because it was folded before.
    lost: Vec<u64>,
    /// The most samples that a key lacks that is not in the table.
    bound: u64,
    name_bytes: usize,
}

impl KeyTable {
    /// Returns the id of a key; equal keys have equal ids.
    pub(crate) fn intern(&mut self, key: RowKey) -> KeyId {
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = KeyId(self.keys.len() as u32);
        self.lost.push(self.bound);
        self.name_bytes += key.name.len() + key.image.len();
        // Stored twice: looked up by key here, and by id in reports. The names are shared.
        self.keys.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the memory of all names, as if none were shared.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Returns the most samples that a key lacks because it was folded before.
    pub(crate) fn lost(&self, id: KeyId) -> u64 {
        self.lost[id.index()]
    }

    /// Sets the most samples that a key lacks.
    pub(crate) fn set_lost(&mut self, id: KeyId, lost: u64) {
        self.lost[id.index()] = lost;
    }

    /// Returns the most samples that a key lacks that is not in the table.
    pub(crate) fn bound(&self) -> u64 {
        self.bound
    }

    /// Sets the most samples that a key lacks that is not in the table.
    pub(crate) fn set_bound(&mut self, bound: u64) {
        self.bound = bound;
    }

    /// Notes that any key may lack these samples.
    pub(crate) fn lose(&mut self, samples: u64) {
        self.lost.iter_mut().for_each(|lost| *lost = lost.saturating_add(samples));
        self.bound = self.bound.saturating_add(samples);
    }

    /// Returns the number of functions in the names of all keys together.
    pub(crate) fn path_calls(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            // A caller has a smaller id than the path that it extends.
            depths.push(key.caller.map_or(1, |caller| depths[caller.index()] + 1));
        }
        depths.iter().sum()
    }

    /// Returns the name of a row, safe for a terminal. The functions of a path are joined by `;`;
    /// a `;` in a function's name is escaped.
    pub(crate) fn name(&self, id: KeyId) -> String {
        let key = self.get(id);
        let Some(caller) = key.caller else { return escaped(&key.name) };
        let callers = std::iter::successors(Some(caller), |caller| self.get(*caller).caller);
        let mut names: Vec<String> =
            std::iter::once(id).chain(callers).map(|id| self.path_part(id)).collect();
        names.reverse();
        names.join(";")
    }

    /// Returns the name of a row, or of the outermost function of a path, safe for a terminal.
    pub(crate) fn outermost_name(&self, id: KeyId) -> String {
        let callers = std::iter::successors(Some(id), |&id| self.get(id).caller);
        callers.last().map_or_else(String::new, |id| escaped(&self.get(id).name))
    }

    /// Returns the name of a function as a part of a path.
    pub(crate) fn path_part(&self, id: KeyId) -> String {
        part(&escaped(&self.get(id).name))
    }

    /// Returns the rank of each key: by name, then by image; a path follows the path it extends.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut ordered: Vec<KeyId> = self.ids().collect();
        // In reverse, because `open` below is a stack: the last key pushed is ranked first.
        ordered.sort_by(|a, b| {
            let (a, b) = (self.get(*a), self.get(*b));
            (&b.name, &b.image).cmp(&(&a.name, &a.image))
        });
        let mut extensions: Vec<Vec<KeyId>> = vec![Vec::new(); self.keys.len()];
        let mut open = Vec::new();
        for id in ordered {
            match self.get(id).caller {
                Some(caller) => extensions[caller.index()].push(id),
                None => open.push(id),
            }
        }
        let mut ranks = vec![0; self.keys.len()];
        let mut rank = 0;
        while let Some(id) = open.pop() {
            ranks[id.index()] = rank;
            rank += 1;
            open.append(&mut extensions[id.index()]);
        }
        ranks
    }

    /// Returns the key of an id of this table.
    pub(crate) fn get(&self, id: KeyId) -> &RowKey {
        &self.keys[id.index()]
    }

    /// Returns the ids of all keys.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = KeyId> + ExactSizeIterator + use<> {
        (0..self.keys.len() as u32).map(KeyId)
    }
}

/// The samples of a key in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyCount {
    /// Self: stacks with the key as leaf.
    pub(crate) self_: Sum,
    /// Stacks with the key anywhere.
    pub(crate) total: Sum,
    /// The blocks of memory of self; 0 unless the event measures bytes.
    pub(crate) self_blocks: BlockNumber,
    /// The blocks of total.
    pub(crate) total_blocks: BlockNumber,
}

/// The samples of one event in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCounts {
    /// All samples.
    pub(crate) sum: Sum,
    /// The samples of each key; keys without samples are absent.
    pub(crate) keys: FxHashMap<KeyId, KeyCount>,
    /// The number of distinct stacks with a symbolized leaf: it has a name, or a reason for having
    /// none.
    pub(crate) symbolized: u64,
    /// The number of distinct stacks with a leaf that was not symbolized.
    pub(crate) unsymbolized: u64,
}

impl RowKey {
    /// Creates the key of a row that is not a function.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        Self { caller: None, name: name.into(), image: Arc::default() }
    }

    /// Creates the key of the samples of folded keys.
    pub(crate) fn other() -> Self {
        Self::of_name(OTHER)
    }

    /// True if it is the key of folded keys, or a path that ends in them.
    pub(crate) fn is_other(&self) -> bool {
        self.image.is_empty() && *self.name == *OTHER
    }

    /// Creates the key of a sample without a stack.
    pub(crate) fn without_stack() -> Self {
        Self::of_name(b"[no stack]")
    }

    /// Creates the key of a call. `labels` must be used with these tables only.
    pub(crate) fn of_call(
        labels: &mut Labels,
        tables: &Tables,
        call: Call,
        row_kind: RowKind,
    ) -> Self {
        let frame = tables.frame(call.frame);
        let call_key = match row_kind {
            RowKind::Function | RowKind::Path | RowKind::Command => CallKey::Function,
            RowKind::File => CallKey::File,
            RowKind::Line => CallKey::Line,
            RowKind::Image => CallKey::ImageName,
        };
        let label = labels.label(tables, call, call_key);
        let label = labels.names.get(label);
        // The mark of an incomplete stack, or a frame lost to damage: neither has an image.
        let Some(frame) = frame.filter(|frame| frame.mark == Mark::None) else {
            return Self::of_name(label);
        };
        match row_kind {
            RowKind::File | RowKind::Line => return Self::of_name(label),
            RowKind::Image => return Self::of_name(stable_image(label)),
            // Rows of threads have no calls; they are never passed here.
            RowKind::Function | RowKind::Path | RowKind::Command => {}
        }
        let function = tables.function(call.line.function).filter(|_| frame.is_named());
        let name = function.map(|_| stable_function(label).into());
        let Some(image) = tables.image(frame.image) else {
            let name = name.unwrap_or_else(|| UNKNOWN.into());
            return Self { caller: None, name, image: Arc::default() };
        };
        let image: Arc<[u8]> = stable_image(tables.names.get(image.name)).into();
        // The label of an unnamed frame holds its offset, which changes with every build.
        let name = name.unwrap_or_else(|| [b"[unnamed in ", &image[..], b"]"].concat().into());
        Self { caller: None, name, image }
    }

    /// True if the name is a placeholder, such as `[unknown]`.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.name.starts_with(b"[") && self.name.ends_with(b"]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_ranks_directly_after_the_path_it_extends() {
        let mut keys = KeyTable::default();
        let mut path =
            |caller, name: &str| keys.intern(RowKey { caller, ..RowKey::of_name(name.as_bytes()) });
        let main = path(None, "main");
        let late = path(Some(main), "z");
        let init = path(None, "init");
        let called = path(Some(main), "a");
        let deep = path(Some(called), "b");
        let ranks = keys.ranks();
        let mut order = [main, late, init, called, deep];
        order.sort_by_key(|id| ranks[id.index()]);
        assert_eq!(order.map(|id| keys.name(id)), ["init", "main", "main;a", "main;a;b", "main;z"]);
    }
}
