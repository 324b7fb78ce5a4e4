//! The part of self in code without names, by image, and the step that would name it. Pure.

use std::collections::BTreeMap;

use nprof_stream::Naming;
use nprof_stream::escape::escaped;
use nprof_stream::labels::UNKNOWN;
use nprof_stream::tables::Tables;
use nprof_stream::{FunctionId, ImageKind, Mark, NodeId, Status};

use crate::profile::group::Sum;

/// The most images that are counted apart, and the most remedies that are kept: a hostile stream may
/// define any number.
const MAX_IMAGES: usize = 1024;

/// The most images in the heading.
const SHOWN: usize = 3;

/// The least share that the heading reports, in per cent.
const LEAST_PERCENT: f64 = 1.0;

/// The samples of an event in code without names.
#[derive(Clone, Debug, Default)]
pub struct Unnamed {
    /// All of them.
    sum: Sum,
    /// Those in each image, by its path.
    by_image: BTreeMap<Box<[u8]>, Sum>,
}

/// The steps that name the code of images, by path, as nprof-symbolize has written them.
#[derive(Clone, Debug, Default)]
pub struct Remedies(BTreeMap<Box<[u8]>, Remedy>);

/// The step that names the code of an image.
#[derive(Clone, Debug)]
struct Remedy {
    text: String,
    /// True if the image is memory without a file.
    is_anonymous: bool,
}

impl Unnamed {
    /// Adds samples if the leaf of their stack has no name.
    pub(crate) fn add(&mut self, tables: &Tables, node: NodeId, sum: Sum) {
        let Some((_, id)) = tables.node(node) else { return };
        let Some(frame) = tables.frame(id) else { return };
        // Names of another build than the recorded one are marked in the name itself.
        let has_name = || tables.calls(id).any(|call| call.line.function != FunctionId::NONE);
        let is_marked = frame.status == Some(Status::Mismatch) && has_name();
        let is_named = frame.is_named() || is_marked;
        if frame.mark != Mark::None || is_named {
            return;
        }
        self.sum.add(sum);
        let image = tables.image(frame.image).map(|image| tables.names.get(image.path));
        self.add_to(image.unwrap_or(UNKNOWN), sum);
    }

    /// Adds the samples of another run.
    pub(crate) fn append(&mut self, other: &Self) {
        self.sum.add(other.sum);
        other.by_image.iter().for_each(|(image, &sum)| self.add_to(image, sum));
    }

    /// Returns all of the samples.
    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    /// Returns the images by path, those with the largest weight first.
    pub(crate) fn images(&self) -> Vec<(&[u8], Sum)> {
        let mut images: Vec<_> = self.by_image.iter().map(|(path, &sum)| (&**path, sum)).collect();
        // The sort is stable: images of equal weight stay in the order of their paths.
        images.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.weight));
        images
    }

    fn add_to(&mut self, image: &[u8], sum: Sum) {
        if let Some(known) = self.by_image.get_mut(image) {
            known.add(sum);
        } else if self.by_image.len() < MAX_IMAGES {
            self.by_image.insert(image.into(), sum);
        }
    }
}

impl Remedies {
    /// Adds the remedies of another stream; the later one of an image stays.
    pub(crate) fn append(&mut self, other: Self) {
        for (image, remedy) in other.0 {
            if self.0.len() < MAX_IMAGES {
                self.0.insert(image, remedy);
            }
        }
    }

    /// Returns the remedy of an image, escaped. None if there is none.
    pub(crate) fn of(&self, image: &[u8]) -> Option<&str> {
        self.0.get(image).map(|remedy| remedy.text.as_str())
    }

    /// Keeps the remedy of an image. A file in memory that some samples could not read is also listed as anonymous
    /// code: the remedy of the file stays.
    pub(crate) fn note(&mut self, naming: &Naming) {
        let is_anonymous = *naming.kind == *ImageKind::Anonymous.to_string().as_bytes();
        let known = self.0.get(naming.image.as_slice());
        let is_of_file = known.is_some_and(|known| !known.is_anonymous);
        if !naming.remedy.is_empty() && self.0.len() < MAX_IMAGES && !(is_anonymous && is_of_file) {
            let remedy = Remedy { text: escaped(&naming.remedy), is_anonymous };
            self.0.insert(naming.image.as_slice().into(), remedy);
        }
    }
}

/// Returns sentences for a heading: the share of code without names in the samples `all`, then the remedy
/// for the image with the most of it. Empty if there is little.
pub(crate) fn sentences(unnamed: &Unnamed, all: Sum, remedies: &Remedies) -> Vec<String> {
    let share = unnamed.sum.percent_of(all);
    if share < LEAST_PERCENT {
        return Vec::new();
    }
    let images = unnamed.images();
    let words = images.iter().take(SHOWN).map(|(path, sum)| match &images[..] {
        [_] => base_name(path),
        _ => format!("{} {:.1} %", base_name(path), sum.percent_of(all)),
    });
    let mut words: Vec<String> = words.collect();
    if images.len() > SHOWN {
        words.push("...".to_owned());
    }
    let words = words.join(", ");
    let mut sentences = vec![format!("{share:.1} % of self is in code without names: {words}")];
    let first = images.iter().find_map(|(path, _)| Some((path, remedies.of(path)?)));
    sentences.extend(first.map(|(path, remedy)| format!("{}: {remedy}", base_name(path))));
    sentences
}

fn base_name(path: &[u8]) -> String {
    escaped(path.rsplit(|&byte| byte == b'/').next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_of_a_file_in_memory_is_that_of_the_file() {
        let naming = |kind: ImageKind, remedy: &str| Naming {
            image: b"/memfd:plug".into(),
            kind: kind.to_string().into(),
            build_id: "".into(),
            named: 0,
            unnamed: 9,
            unnamed_by_status: "".into(),
            reason: "".into(),
            remedy: remedy.into(),
            more: Vec::new(),
        };
        let file = naming(ImageKind::Elf, "keep it");
        let code = naming(ImageKind::Anonymous, "name it");
        for order in [[&file, &code], [&code, &file]] {
            let mut remedies = Remedies::default();
            order.into_iter().for_each(|naming| remedies.note(naming));
            assert_eq!(remedies.of(b"/memfd:plug"), Some("keep it"));
        }
    }
}
