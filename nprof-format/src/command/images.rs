//! Naming results of images, as nprof-symbolize recorded them.

use std::collections::HashMap;

use nprof_stream::Naming;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

/// Most images in the output for people.
const SHOWN: usize = 20;

/// The images of all streams: one row for each path and build ID. Memory grows with their number.
#[derive(Debug, Default)]
pub(super) struct Images {
    rows: HashMap<(Vec<u8>, Vec<u8>), Naming>,
}

impl Images {
    /// Adds the naming result of an image in one segment. The reasons of the last segment are kept.
    pub(super) fn add(&mut self, naming: &Naming) {
        let key = (naming.image.clone(), naming.build_id.clone());
        // Several segments, for example of a CI run, use the same libraries.
        let row = self.rows.entry(key).or_default();
        let named = row.named.saturating_add(naming.named);
        let unnamed = row.unnamed.saturating_add(naming.unnamed);
        // A segment without unnamed frames has no reasons to report.
        let last = if naming.unnamed > 0 || row.unnamed == 0 { naming } else { &*row };
        *row = Naming { named, unnamed, ..last.clone() };
    }

    /// Returns the images, those with the most unnamed frames first.
    fn sorted(&self) -> Vec<&Naming> {
        let mut rows: Vec<&Naming> = self.rows.values().collect();
        rows.sort_by(|a, b| {
            let order = b.unnamed.cmp(&a.unnamed).then(b.named.cmp(&a.named));
            order.then_with(|| (&a.image, &a.build_id).cmp(&(&b.image, &b.build_id)))
        });
        rows
    }

    /// Returns a line for each image, and a line for the remedy, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let rows = self.sorted();
        let mut lines: Vec<String> = rows.iter().take(SHOWN).map(|row| line(row)).collect();
        if rows.len() > SHOWN {
            lines.push(format!("{:<18} {} more images", "named", rows.len() - SHOWN));
        }
        lines
    }

    /// Returns an object for each image.
    pub(super) fn list(&self) -> Value {
        self.sorted().into_iter().map(object).collect()
    }
}

fn object(row: &Naming) -> Value {
    json!({
        "image": escaped(&row.image),
        "kind": escaped(&row.kind),
        "build_id": escaped(&row.build_id),
        "named": row.named,
        "unnamed": row.unnamed,
        "unnamed_by_status": escaped(&row.unnamed_by_status),
        "reason": escaped(&row.reason),
        "remedy": escaped(&row.remedy),
    })
}

fn line(row: &Naming) -> String {
    let all = row.named.saturating_add(row.unnamed);
    let mut line =
        format!("{:<18} {}: {} of {all} frames", "named", escaped(&row.image), row.named);
    if row.unnamed > 0 && !row.unnamed_by_status.is_empty() {
        line.push_str(&format!("; {}", escaped(&row.unnamed_by_status)));
    }
    // Without unnamed frames there is nothing to remedy.
    if row.unnamed > 0 && !row.remedy.is_empty() {
        line.push_str(&format!("\n{:<18} {}", "  remedy", escaped(&row.remedy)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(image: &str, named: u64, unnamed: u64, why: &str) -> Naming {
        let [image, unnamed_by_status] = [image, why].map(|text| text.as_bytes().to_vec());
        let remedy = if unnamed > 0 { b"do this".to_vec() } else { Vec::new() };
        Naming { image, unnamed_by_status, remedy, named, unnamed, ..Naming::default() }
    }

    #[test]
    fn segments_add_up_and_the_worst_image_comes_first() {
        let mut images = Images::default();
        images.add(&naming("/a", 5, 0, ""));
        images.add(&naming("/b", 1, 2, "stripped 2"));
        images.add(&naming("/b", 7, 0, ""));
        images.add(&naming("/b", u64::MAX, 1, "mismatch 1"));
        let lines = images.lines();
        let all = u64::MAX;
        let (first, second) = lines[0].split_once('\n').expect("a remedy");
        assert_eq!(first, format!("named              /b: {all} of {all} frames; mismatch 1"));
        assert_eq!(second.split_whitespace().collect::<Vec<_>>(), ["remedy", "do", "this"]);
        assert_eq!(lines[1], "named              /a: 5 of 5 frames");
        assert_eq!(images.list()[1]["named"], 5);
    }

    #[test]
    fn people_are_not_shown_all_of_very_many() {
        let mut images = Images::default();
        for i in 0..30 {
            images.add(&naming(&format!("/{i:02}"), 1, 0, ""));
        }
        let lines = images.lines();
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[SHOWN], "named              10 more images");
    }
}
