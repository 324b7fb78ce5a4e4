//! The samples at the leaf of stacks by image, for the summary of `--verbose`: they show which names
//! are missed most. Pure over records.

use std::io::Read;

use nprof_stream::{ImageKind, Reader, Record, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::find::RecordedImage;

/// The samples of a stream at the leaf of their stacks.
#[derive(Debug, Default)]
pub(crate) struct SelfSamples {
    /// All samples.
    total: u64,
    /// Those in memory without a file that have no name.
    anonymous: u64,
    /// Those in images.
    by_image: FxHashMap<ImageKey, u64>,
    epoch: Epoch,
}

/// The path and the build ID of an image.
type ImageKey = (Box<[u8]>, Box<[u8]>);

/// The image of a frame.
#[derive(Debug)]
enum Place {
    Image(ImageKey),
    Anonymous,
}

/// The ids of the current epoch.
#[derive(Debug, Default)]
struct Epoch {
    images: FxHashMap<u32, Place>,
    /// The images of frames.
    frames: FxHashMap<u32, u32>,
    /// The frames of nodes.
    leaves: FxHashMap<u32, u32>,
    samples: FxHashMap<u32, u64>,
    named: FxHashSet<u32>,
}

impl SelfSamples {
    /// Counts the samples of a stream up to its first error.
    pub(crate) fn read<R: Read>(reader: &mut Reader<R>) -> Self {
        let mut counts = Self::default();
        while let Ok(Some(record)) = reader.next() {
            counts.take(&record);
        }
        counts.end_epoch();
        counts
    }

    /// Returns the share of an image in per cent.
    pub(crate) fn percent(&self, image: &RecordedImage) -> f64 {
        let key = (image.path.clone(), image.build_id.clone());
        self.share(self.by_image.get(&key).copied().unwrap_or(0))
    }

    /// Returns the share of memory without a file and without names in per cent.
    pub(crate) fn anonymous_percent(&self) -> f64 {
        self.share(self.anonymous)
    }

    fn share(&self, samples: u64) -> f64 {
        // No samples have no shares.
        samples as f64 * 100.0 / self.total.max(1) as f64
    }

    fn take(&mut self, record: &Record<'_>) {
        let epoch = &mut self.epoch;
        match record {
            // Ids are defined again in each epoch.
            Record::Head(_) | Record::Epoch(_) => self.end_epoch(),
            Record::Image(image) => {
                let place = match image.kind {
                    ImageKind::Anonymous => Place::Anonymous,
                    _ => Place::Image((image.path.into(), image.build_id.into())),
                };
                epoch.images.insert(image.id.0, place);
            }
            Record::Frame(frame) => {
                epoch.frames.insert(frame.id.0, frame.image.0);
            }
            Record::Nodes(nodes) => {
                let nodes = (nodes.first.0..).zip(nodes.frames);
                epoch.leaves.extend(nodes.map(|(node, frame)| (node, frame.0)));
            }
            // The recorder names generated code late, after its samples.
            Record::Location(location) if location.status == Status::Named => {
                epoch.named.insert(location.frame.0);
            }
            Record::Sample(sample) => {
                // A hostile stream may have any count.
                self.total = self.total.saturating_add(sample.count);
                if let Some(&frame) = epoch.leaves.get(&sample.node.0) {
                    let samples = epoch.samples.entry(frame).or_default();
                    *samples = samples.saturating_add(sample.count);
                }
            }
            _ => {}
        }
    }

    fn end_epoch(&mut self) {
        let epoch = std::mem::take(&mut self.epoch);
        for (frame, count) in epoch.samples {
            let image = epoch.frames.get(&frame).and_then(|image| epoch.images.get(image));
            let samples = match image {
                Some(Place::Image(key)) => self.by_image.entry(key.clone()).or_default(),
                Some(Place::Anonymous) if !epoch.named.contains(&frame) => &mut self.anonymous,
                Some(Place::Anonymous) | None => continue,
            };
            *samples = samples.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_in_generated_code_count_unless_named_later() {
        let stream = "@nprof\t1.1\trun=0x7\n\
            @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
            I\t1\telf\t0102\t/a\nI\t2\tanon\t-\t[anon]\n\
            F\t1\t1\t0x1\tu\nF\t2\t2\t0x10\tu\nF\t3\t2\t0x20\tu\n\
            N\t1\t0\t1\nN\t2\t1\t2\nN\t3\t1\t3\n\
            S\t1000\t1\t0\t0\t1\t10\t1\nS\t1001\t1\t0\t0\t2\t10\t1\n\
            S\t1002\t1\t0\t0\t2\t10\t1\nS\t1003\t1\t0\t0\t3\t10\t1\n\
            U\t1\tf\t-\nY\t3\tnamed\t1,0,0,0\n\
            @epoch\tnumber=1\n@end\treason=exit\n";
        let samples = SelfSamples::read(&mut Reader::new(stream.as_bytes()));
        assert_eq!(samples.total, 4);
        let image = RecordedImage {
            build_id: [1, 2].into(),
            path: b"/a"[..].into(),
            ..RecordedImage::new(ImageKind::Elf)
        };
        assert!((samples.percent(&image) - 25.0).abs() < 1e-9, "{samples:?}");
        assert!((samples.anonymous_percent() - 50.0).abs() < 1e-9, "{samples:?}");
        let summary = crate::stats::summary::summary(&[], &Default::default(), Some(&samples));
        assert!(summary.starts_with("[anon]: 50.0 % of self without names"), "{summary}");
        assert!(summary.contains("node --perf-basic-prof"), "{summary}");
    }
}
