//! The images of a recording by their samples: debuginfod fetches those with the most first, since
//! its time limit may end before all are fetched.

use std::io::Read;

use nprof_stream::{Image, ImageKind, Reader, Record};
use rustc_hash::FxHashMap;

use crate::find::{LiveProcesses, RecordedImage};

/// The samples of all images, and the ids of the current epoch.
#[derive(Default)]
struct SampleCounts {
    images: Vec<(RecordedImage, u64)>,
    by_recorded: FxHashMap<RecordedImage, usize>,
    /// The indexes of images by image id, and by the ids of the frames and nodes in them.
    by_image: FxHashMap<u32, usize>,
    by_frame: FxHashMap<u32, usize>,
    by_node: FxHashMap<u32, usize>,
}

/// Returns the ELF images of a stream up to its first error, those with the most samples at the
/// leaf of a stack first. Adds the stream's processes to `live_processes`: their files may be the
/// images.
pub(crate) fn hottest_first<R: Read>(
    reader: &mut Reader<R>,
    live_processes: &LiveProcesses,
) -> Vec<RecordedImage> {
    let mut counts = SampleCounts::default();
    while let Ok(Some(record)) = reader.next() {
        if let Record::Task(task) = &record
            && task.pid == task.tid
        {
            live_processes.note_process(task.pid);
        }
        counts.take(&record);
    }
    let mut images = counts.images;
    images.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    images.into_iter().map(|(recorded, _)| recorded).collect()
}

impl SampleCounts {
    /// Notes a record.
    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(_) | Record::Epoch(_) => {
                // Ids are defined again in each epoch.
                self.by_image.clear();
                self.by_frame.clear();
                self.by_node.clear();
            }
            Record::Image(image) if image.kind == ImageKind::Elf => self.add(image),
            Record::Frame(frame) => {
                if let Some(&image) = self.by_image.get(&frame.image.0) {
                    self.by_frame.insert(frame.id.0, image);
                }
            }
            Record::Nodes(nodes) => {
                for (node, frame) in (nodes.first.0..).zip(nodes.frames) {
                    if let Some(&image) = self.by_frame.get(&frame.0) {
                        self.by_node.insert(node, image);
                    }
                }
            }
            Record::Sample(sample) => {
                if let Some(&image) = self.by_node.get(&sample.node.0) {
                    let samples = &mut self.images[image].1;
                    // A hostile stream may have any count.
                    *samples = samples.saturating_add(sample.count);
                }
            }
            _ => {}
        }
    }

    /// Adds an image, or finds it among those of earlier epochs.
    fn add(&mut self, image: &Image<'_>) {
        let recorded = RecordedImage::of_record(image, None);
        let next = self.images.len();
        let index = *self.by_recorded.entry(recorded.clone()).or_insert(next);
        if index == next {
            self.images.push((recorded, 0));
        }
        self.by_image.insert(image.id.0, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_with_most_samples_is_first_over_all_epochs() {
        let text = "@nprof\t1.1\trun=0x1\nI\t1\telf\t0a\t/a\nI\t2\telf\t0b\t/b\nI\t3\tkernel\t-\t[kernel]\n\
                    F\t1\t1\t0x1\tu\nF\t2\t2\t0x1\tu\nF\t3\t3\t0x1\tk\nN\t1\t0\t1\t2\nN\t3\t0\t1\nN\t4\t2\t3\n\
                    S\t1\t0\t0\t0\t2\t1\t5\nS\t1\t0\t0\t0\t3\t1\t2\nS\t1\t0\t0\t0\t4\t1\t99\n\
                    @epoch\tnumber=1\nI\t2\telf\t0a\t/a\nF\t2\t2\t0x1\tu\nN\t2\t0\t2\nS\t1\t0\t0\t0\t2\t1\t4\n";
        let images = hottest_first(&mut Reader::new(text.as_bytes()), &LiveProcesses::default());
        let paths: Vec<&[u8]> = images.iter().map(|image| &*image.path).collect();
        assert_eq!(paths, [b"/a", b"/b"], "6 samples and 5");
    }
}
