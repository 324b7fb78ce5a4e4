//! The columns that name a row.

use crate::profile::key::{By, Key};
use nprof_stream::labels::CallKey;

/// Returns the columns of keys in the order of the keys, each once.
///
/// A function is followed by the base name of its image, unless the image is a key itself: functions
/// of one name in several images are several rows. The event is left out: every format has a
/// column for it.
pub fn columns(keys: &[By]) -> Vec<Key> {
    let function = Key::Call(CallKey::Function);
    let has_image = keys.iter().any(|by| by.key == Key::Call(CallKey::Image));
    let mut columns = Vec::new();
    for &By { key, .. } in keys {
        if key == Key::Event || columns.contains(&key) {
            continue;
        }
        columns.push(key);
        // The base name is enough to distinguish functions; paths take too much room.
        if key == function && !has_image {
            columns.push(Key::Call(CallKey::ImageName));
        }
    }
    columns
}

/// Returns the number of leading columns that divide the rows into groups: properties of samples, each
/// with rows of its own below it. `thread, function` has a group for each thread.
pub fn group_columns(columns: &[Key]) -> usize {
    let is_of_samples = |column: &&Key| !matches!(column, Key::Call(_));
    let leading = columns.iter().take_while(is_of_samples).count();
    // The last column names the rows of a group.
    leading.min(columns.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[&str]) -> Vec<&'static str> {
        let keys: Vec<By> = keys.iter().map(|key| key.parse().unwrap()).collect();
        columns(&keys).into_iter().map(Key::name).collect()
    }

    #[test]
    fn columns_are_unique() {
        assert_eq!(names(&["function"]), ["function", "image"]);
        assert_eq!(names(&["function", "line"]), ["function", "image", "line"]);
        assert_eq!(
            names(&["image", "thread", "slice=1s", "function", "thread", "run"]),
            ["image", "thread", "slice", "function", "run"]
        );
        assert_eq!(names(&["event"]), [""; 0]);
    }

    #[test]
    fn leading_properties_of_samples_are_groups() {
        let groups = |keys: &[&str]| {
            let keys: Vec<By> = keys.iter().map(|key| key.parse().unwrap()).collect();
            group_columns(&columns(&keys))
        };
        assert_eq!(groups(&["slice=1s", "function"]), 1);
        assert_eq!(groups(&["slice=1s", "thread", "function"]), 2);
        assert_eq!(groups(&["slice=1s", "thread"]), 1);
        assert_eq!(groups(&["event", "thread", "line"]), 1);
        for keys in [&["thread"][..], &["function", "thread"], &["event", "function"], &["event"]] {
            assert_eq!(groups(keys), 0, "{keys:?}");
        }
    }
}
