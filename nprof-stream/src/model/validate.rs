//! Checks the order of a stream, record by record: ids are defined before use, and samples are sorted
//! by time except those that the producer counted as late.

use crate::model::tables::Tables;
use crate::record::*;

/// Checks the order of a stream's records.
#[derive(Debug, Default)]
pub struct Validator {
    tables: Tables,
    /// Number of references to undefined ids.
    pub undefined: u64,
    /// The first undefined id, as text.
    pub first_undefined: Option<String>,
    /// Number of samples older than one before them, beyond the number that the producer counted as
    /// late.
    pub disorder: u64,
    /// Time of the newest sample of the segment.
    newest: u64,
    /// Number of samples in the segment that are older than one before them.
    older: u64,
}

impl Validator {
    /// Creates a check before the first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next record.
    pub fn take(&mut self, record: &Record<'_>) {
        match record {
            // Each segment has its own clock.
            Record::Head(_) => (self.newest, self.older) = (0, 0),
            Record::Sample(sample) => self.sample(sample),
            Record::End(end) => {
                // Samples may be late if the end counts them.
                self.disorder += self.older.saturating_sub(end.late.unwrap_or(0));
                self.older = 0;
            }
            Record::Nodes(nodes) => {
                self.node(nodes.parent);
                for &frame in nodes.frames {
                    let known = self.tables.frame(frame).is_some();
                    self.refer("frame", frame.0, known);
                }
            }
            Record::Frame(frame) => {
                let known = self.tables.image(frame.image).is_some();
                self.refer("image", frame.image.0, known);
            }
            Record::Task(task) => self.task(task.parent),
            Record::Change(change) => self.task(change.task),
            Record::Lost(lost) => {
                self.event(lost.event);
                self.task(lost.task);
            }
            Record::Location(location) => self.location(location),
            Record::Code(code) => self.code(code),
            _ => {}
        }
        // After the checks: a record must not define its own references.
        self.tables.apply(record);
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        self.event(sample.event);
        self.task(sample.task);
        self.node(sample.node);
        if sample.time < self.newest {
            self.older += 1;
        }
        self.newest = self.newest.max(sample.time);
    }

    fn location(&mut self, location: &Location<'_>) {
        let known = self.tables.frame(location.frame).is_some();
        self.refer("frame", location.frame.0, known);
        location.lines.iter().for_each(|line| self.line(line));
    }

    fn code(&mut self, code: &Code<'_>) {
        let known = self.tables.frame(code.frame).is_some();
        self.refer("frame", code.frame.0, known);
        code.rows.iter().chain(code.callees.iter()).for_each(|row| self.line(&row.line));
    }

    fn line(&mut self, line: &Line) {
        let known = self.tables.function(line.function).is_some();
        self.refer("function", line.function.0, known);
        let known = self.tables.file(line.file).is_some();
        self.refer("file", line.file.0, known);
    }

    fn event(&mut self, id: EventId) {
        let known = self.tables.event(id).is_some();
        self.refer("event", id.0, known);
    }

    fn task(&mut self, id: TaskId) {
        let known = self.tables.task(id).is_some();
        self.refer("task", id.0, known);
    }

    fn node(&mut self, id: NodeId) {
        let known = self.tables.node(id).is_some();
        self.refer("node", id.0, known);
    }

    fn refer(&mut self, kind: &str, id: u32, known: bool) {
        // 0 means none and is never defined.
        if known || id == 0 {
            return;
        }
        self.undefined += 1;
        self.first_undefined.get_or_insert_with(|| format!("{kind} {id}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::reader::Reader;

    fn check(lines: &str) -> Validator {
        let text = format!("@nprof\t1.1\trun=0x1\n@event\tid=1\nT\t1\t0\t1\t1\t0\ta\n{lines}");
        let mut reader = Reader::new(text.as_bytes());
        let mut order = Validator::new();
        while let Some(record) = reader.next().unwrap() {
            order.take(&record);
        }
        order
    }

    #[test]
    fn id_used_before_its_definition_is_counted() {
        let good = "I\t1\telf\t-\ta\nF\t1\t1\t0x1\tu\nN\t1\t0\t1\nS\t1\t1\t1\t0\t1\t1\t1\n";
        assert_eq!(check(good).undefined, 0);
        let late = "F\t1\t1\t0x1\tu\nI\t1\telf\t-\ta\n";
        assert_eq!(check(late).first_undefined.as_deref(), Some("image 1"));
        for (line, undefined) in [
            ("S\t1\t2\t1\t0\t0\t1\t1\n", "event 2"),
            ("S\t1\t1\t7\t0\t0\t1\t1\n", "task 7"),
            ("S\t1\t1\t1\t0\t9\t1\t1\n", "node 9"),
            ("N\t4\t3\t1\n", "node 3"),
            ("N\t4\t0\t5\n", "frame 5"),
            ("Y\t3\tnamed\n", "frame 3"),
            ("C\t3\t0x0\t-\t-\t-\t-\n", "frame 3"),
            ("X\t1\t8\texit\t0\n", "task 8"),
        ] {
            assert_eq!(check(line).first_undefined.as_deref(), Some(undefined));
        }
        let forgotten = format!("{good}@epoch\tnumber=1\nS\t1\t0\t0\t0\t1\t1\t1\n");
        assert_eq!(check(&forgotten).first_undefined.as_deref(), Some("node 1"));
    }

    #[test]
    fn unsorted_samples_count_unless_declared_late() {
        let samples = "S\t9\t1\t1\t0\t0\t1\t1\nS\t7\t1\t1\t0\t0\t1\t1\nS\t9\t1\t1\t0\t0\t1\t1\n";
        let end = |late: &str| format!("{samples}@end\tsamples=3\trecords=5\tlost=0{late}\n");
        assert_eq!(check(&end("")).disorder, 1);
        assert_eq!(check(&end("\tlate=1")).disorder, 0);
    }
}
