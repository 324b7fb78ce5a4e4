//! Source files of two builds in different directories: base has `/ci/base/a.c`, new has `/ci/a.c`.
//! Pure.
//!
//! A directory of the base is joined with one of the new side if files below it have the same
//! relative paths, and if the two directories cannot be different parts of one source tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::input::key::{KeyId, KeyTable, RowKey};
use crate::input::row_kind::RowKind;
use crate::input::side::Side;

/// The largest number of files of one name that a file of the base is compared with: names such as
/// `mod.rs` occur by the hundred, and would take quadratic time.
const MAX_NAMESAKES: usize = 64;

/// The largest number of directories that are joined.
const MAX_MOVES: usize = 16;

/// A directory that has another path on the new side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedDirectory {
    /// Its path on the base, with a final slash; empty for relative paths.
    pub(crate) base: Vec<u8>,
    /// Its path on the new side.
    pub(crate) new: Vec<u8>,
    /// The number of files that are joined.
    pub(crate) files: usize,
}

/// Gives rows of source files and lines of the base the paths of the new side. Returns the
/// directories that differ; none for other kinds of rows.
pub(crate) fn join_moved_files(
    base: &mut Side,
    new: &Side,
    keys: &mut KeyTable,
    row_kind: RowKind,
) -> Vec<MovedDirectory> {
    if !matches!(row_kind, RowKind::File | RowKind::Line) {
        return Vec::new();
    }
    let [base_keys, new_keys] = [&*base, new].map(sampled_keys);
    let paths = |ids: &BTreeSet<KeyId>| -> BTreeSet<&[u8]> {
        ids.iter().filter_map(|id| path_of(keys.get(*id), row_kind)).collect()
    };
    let new_paths = paths(&new_keys);
    let moves = moved_directories(&paths(&base_keys), &new_paths);
    let mut names: BTreeMap<KeyId, Vec<u8>> = BTreeMap::new();
    for id in base_keys.into_iter().filter(|_| !moves.is_empty()) {
        let key = keys.get(id);
        // A file that is on both sides under one path did not move.
        let path = path_of(key, row_kind).filter(|path| !new_paths.contains(path));
        let moved = path.and_then(|path| moves.iter().find_map(|moved| moved.path(path)));
        let (Some(path), Some(moved)) = (path, moved) else { continue };
        // A line keeps its number.
        names.insert(id, [&moved, &key.name[path.len()..]].concat());
    }
    let names = names.into_iter();
    let joined: Vec<(KeyId, KeyId)> =
        names.map(|(id, name)| (id, keys.intern(RowKey::of_name(&name)))).collect();
    for counts in base.streams.iter_mut().flat_map(|stream| stream.counts.values_mut()) {
        for (old, new) in &joined {
            let Some(count) = counts.keys.remove(old) else { continue };
            let sum = counts.keys.entry(*new).or_default();
            sum.self_.add(count.self_);
            sum.total.add(count.total);
        }
    }
    moves
}

fn sampled_keys(side: &Side) -> BTreeSet<KeyId> {
    let counts = side.streams.iter().flat_map(|stream| stream.counts.values());
    counts.flat_map(|counts| counts.keys.keys().copied()).collect()
}

/// Returns the path of a source file or line. None for placeholders and code without debug
/// information.
fn path_of(key: &RowKey, row_kind: RowKind) -> Option<&[u8]> {
    if key.is_placeholder() {
        return None;
    }
    if row_kind == RowKind::File {
        return Some(&key.name);
    }
    let colon = key.name.iter().rposition(|byte| *byte == b':')?;
    Some(&key.name[..colon])
}

impl MovedDirectory {
    /// Returns the path on the new side. None if the file is not in this directory.
    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        contains(&self.base, path).then(|| [&self.new, &path[self.base.len()..]].concat())
    }
}

/// True if a file is in a directory. The empty path is the directory of relative paths.
fn contains(directory: &[u8], path: &[u8]) -> bool {
    if directory.is_empty() { !path.starts_with(b"/") } else { path.starts_with(directory) }
}

/// Returns the directories that have another path on the new side, those with the most files
/// first.
fn moved_directories(base: &BTreeSet<&[u8]>, new: &BTreeSet<&[u8]>) -> Vec<MovedDirectory> {
    let mut old: BTreeSet<&[u8]> = base.difference(new).copied().collect();
    let mut added: BTreeSet<&[u8]> = new.difference(base).copied().collect();
    let mut moves = Vec::new();
    while moves.len() < MAX_MOVES {
        let candidates = candidates(&old, &added);
        let accepted = candidates.into_iter().find(|moved| {
            is_one_directory(moved, base, new)
                && 2 * moved.files >= old.iter().filter(|path| contains(&moved.base, path)).count()
        });
        let Some(moved) = accepted else { break };
        old.retain(|path| {
            let joined = moved.path(path);
            joined.is_none_or(|path| !added.remove(&path[..]))
        });
        moves.push(moved);
    }
    moves
}

/// True if the two directories can be the same one: if both are on one side, they are different
/// directories of one source tree.
fn is_one_directory(moved: &MovedDirectory, base: &BTreeSet<&[u8]>, new: &BTreeSet<&[u8]>) -> bool {
    let is_on = |side: &BTreeSet<&[u8]>, directory: &[u8]| {
        side.iter().any(|path| contains(directory, path))
    };
    // One may contain the other: the recipe of nprof(7) puts the base's tree into the new one.
    !is_on(new, &moved.base) || !is_on(base, &moved.new)
}

/// Returns pairs of directories with files of the same relative path, those with the most files
/// first, then those with the longest path.
fn candidates(base: &BTreeSet<&[u8]>, new: &BTreeSet<&[u8]>) -> Vec<MovedDirectory> {
    let mut by_name: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for path in new {
        by_name.entry(file_name(path)).or_default().push(path);
    }
    let mut files: BTreeMap<(&[u8], &[u8]), usize> = BTreeMap::new();
    for path in base {
        let namesakes = by_name.get(file_name(path)).into_iter().flatten().take(MAX_NAMESAKES);
        for other in namesakes {
            *files.entry(without_common_end(path, other)).or_default() += 1;
        }
    }
    let mut candidates: Vec<MovedDirectory> = files
        .into_iter()
        .map(|((base, new), files)| MovedDirectory { base: base.into(), new: new.into(), files })
        .collect();
    candidates
        .sort_by(|a, b| (b.files, b.base.len(), &a.base).cmp(&(a.files, a.base.len(), &b.base)));
    candidates
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Returns the directories of two paths without the components that both end with.
fn without_common_end<'a>(one: &'a [u8], other: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let common = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let is_whole = |path: &[u8]| matches!(path[..path.len() - common].last(), None | Some(b'/'));
    // `foo/a.c` and `boo/a.c` also have the last letters of a component in common.
    let partial = if is_whole(one) && is_whole(other) {
        0
    } else {
        let end = &one[one.len() - common..];
        end.iter().position(|byte| *byte == b'/').map_or(common, |slash| slash + 1)
    };
    let directory = |path: &'a [u8]| &path[..path.len() - common + partial];
    (directory(one), directory(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::fold::Budget;
    use crate::input::run_counts::StreamCounts;

    fn moves(base: &[&str], new: &[&str]) -> Vec<String> {
        let [base, new] =
            [base, new].map(|paths| paths.iter().map(|path| path.as_bytes()).collect());
        let moves = moved_directories(&base, &new);
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        moves
            .iter()
            .map(|moved| format!("{} {} {}", text(&moved.base), text(&moved.new), moved.files))
            .collect()
    }

    #[test]
    fn worktree_below_the_new_tree_is_joined() {
        let base =
            ["/ci/base/a.c", "/ci/base/src/b.c", "/ci/base/src/removed.c", "/usr/include/c.h"];
        let new = ["/ci/a.c", "/ci/src/b.c", "/ci/src/added.c", "/usr/include/c.h"];
        assert_eq!(moves(&base, &new), ["/ci/base/ /ci/ 2"]);
        assert_eq!(moves(&new, &base), ["/ci/ /ci/base/ 2"]);
        assert_eq!(moves(&["/ci/base/a.c"], &["/ci/a.c"]), ["/ci/base/ /ci/ 1"]);
    }

    #[test]
    fn several_directories_and_relative_paths_are_joined() {
        let base = ["/one/a/x.c", "/one/a/y.c", "/cargo/foo-1.0/src/lib.rs", "main.c"];
        let new = ["/two/a/x.c", "/two/a/y.c", "/cargo/foo-1.1/src/lib.rs", "/build/main.c"];
        let expected = ["/one/ /two/ 2", "/cargo/foo-1.0/ /cargo/foo-1.1/ 1", " /build/ 1"];
        assert_eq!(moves(&base, &new), expected);
        assert_eq!(moves(&["boo/a.c"], &["foo/a.c"]), ["boo/ foo/ 1"]);
    }

    #[test]
    fn directories_of_one_tree_stay_apart() {
        // Both sides have both directories: a file moved, the directory did not.
        let base = ["/src/one/util.c", "/src/one/a.c", "/src/two/b.c"];
        let new = ["/src/two/util.c", "/src/one/a.c", "/src/two/b.c"];
        assert_eq!(moves(&base, &new), [""; 0]);
        // Most files of the directory have no counterpart.
        let base = ["/one/main.c", "/one/b.c", "/one/c.c"];
        let new = ["/two/main.c", "/two/x.c", "/two/y.c"];
        assert_eq!(moves(&base, &new), [""; 0]);
        assert_eq!(moves(&base, &base), [""; 0]);
    }

    /// A side with one run of a program of two files in a directory.
    fn side(name: &'static str, directory: &str, line: u32, keys: &mut KeyTable) -> Side {
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
             I\t1\telf\t-\t/opt/demo\nF\t1\t1\t0x10\tu\nF\t2\t1\t0x20\tu,ra\n\
             U\t1\tmain\t-\nU\t2\tfib\t-\nD\t1\t{directory}main.c\nD\t2\t{directory}src/fib.c\n\
             Y\t1\tnamed\t2,2,{line},0\nY\t2\tnamed\t1,1,9,0\nN\t1\t0\t2\t1\n\
             S\t1\t1\t0\t0\t2\t100\t1\n@end\tsamples=1\trecords=0\tlost=0\n"
        );
        let stream = StreamCounts::of(stream.as_bytes(), RowKind::Line, Budget::default(), keys);
        Side { name, streams: vec![stream] }
    }

    #[test]
    fn lines_of_moved_directory_are_rows_of_the_new_side() {
        let mut keys = KeyTable::default();
        let mut base = side("base", "/ci/base/", 7, &mut keys);
        let new = side("new", "/ci/", 8, &mut keys);
        let moves = join_moved_files(&mut base, &new, &mut keys, RowKind::Line);
        assert_eq!((moves.len(), moves[0].files), (1, 2));
        let names = |side: &Side| -> Vec<String> {
            sampled_keys(side).into_iter().map(|id| keys.name(id)).collect()
        };
        let mut base_names = names(&base);
        base_names.sort();
        // The changed line is another row, the others are the same.
        assert_eq!(base_names, ["/ci/main.c:9", "/ci/src/fib.c:7"]);
        let new_names = names(&new);
        assert!(new_names.contains(&"/ci/main.c:9".to_owned()), "{new_names:?}");
        let count = base.streams[0].counts[&(0, 0)].keys.values().map(|count| count.total.samples);
        assert_eq!(count.collect::<Vec<_>>(), [1, 1]);
    }
}
