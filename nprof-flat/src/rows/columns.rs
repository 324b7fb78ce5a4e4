//! The columns that name a row.

use nprof_report::key::{By, Key};
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
}
