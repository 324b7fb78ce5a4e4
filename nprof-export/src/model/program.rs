//! Finds the image of the profiled program and makes it the first one. Pure.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::{Image, Profile};

/// The most executed files that are kept.
const MAX_PATHS: usize = 1 << 16;

/// The files that processes executed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// The first process that executed a file during the recording, and its last file: a script, `env` and
    /// similar programs execute the one of interest.
    executed: Option<(Process, String)>,
    /// The first one that a process executed already.
    found: Option<String>,
    /// All paths.
    paths: FxHashSet<String>,
}

/// The number of a segment, and the id of a process in it.
pub(crate) type Process = (u32, u32);

/// The time of the beginning of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// During the recording, by this process.
    Recorded(Process),
    /// Before its process was first seen.
    Before,
}

impl Programs {
    /// Adds the path of an executed file, if the stream has it.
    pub(crate) fn add(&mut self, path: Option<String>, begun: Begun) {
        let Some(path) = path else { return };
        match begun {
            Begun::Recorded(process) => {
                let (first, last) = self.executed.get_or_insert_with(|| (process, String::new()));
                if *first == process {
                    last.clone_from(&path);
                }
            }
            Begun::Before => {
                self.found.get_or_insert_with(|| path.clone());
            }
        }
        if self.paths.len() < MAX_PATHS {
            self.paths.insert(path);
        }
    }
}

impl Profile {
    /// Makes the program the first image.
    pub(crate) fn put_program_first(&mut self, programs: &Programs) {
        let Some(program) = self.program(programs) else { return };
        self.images.swap(0, program);
        let moved = |image: &mut Option<u32>| {
            if let Some(image) = image {
                *image = match *image as usize {
                    0 => program as u32,
                    old if old == program => 0,
                    _ => *image,
                };
            }
        };
        self.frames.iter_mut().for_each(|frame| moved(&mut frame.image));
        self.functions.iter_mut().for_each(|function| moved(&mut function.image));
    }

    /// Returns the index of the image of the program: the executed file; where the stream has none, the file
    /// that the command names, else the program with the most samples. None without images.
    fn program(&self, programs: &Programs) -> Option<usize> {
        let position = |is_it: &dyn Fn(&Image) -> bool| self.images.iter().position(is_it);
        let command = self.facts.commands.first().map_or("", String::as_str);
        let is_attached = command.starts_with("pid ");
        // Recordings of a whole system or of a process begin with any of the executed files.
        let is_command = command != "system" && !is_attached;
        let exe = match (is_command, is_attached) {
            (true, _) => programs.executed.as_ref().map(|(_, path)| path),
            (_, true) => programs.found.as_ref(),
            _ => None,
        };
        if let Some(found) = position(&|image| exe == Some(&image.path)) {
            return Some(found);
        }
        // The words of a command are quoted only where a shell needs it.
        let word = command.split(' ').next().unwrap_or_default();
        let name = word.rsplit('/').next().unwrap_or_default();
        if is_command
            && programs.paths.is_empty()
            && let Some(found) = position(&|image| image.name == name)
        {
            return Some(found);
        }
        let counts = self.observations_by_image();
        let mut best = None;
        for (index, image) in self.images.iter().enumerate() {
            let is_executed = programs.paths.contains(&image.path);
            let count = counts.get(&(index as u32)).copied().unwrap_or_default();
            let key = (is_executed, image.is_program(), count);
            if best.is_none_or(|(most, _)| key > most) {
                best = Some((key, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// Returns the observations with an image anywhere on their stack, by image.
    fn observations_by_image(&self) -> BTreeMap<u32, u64> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in &self.samples {
            if let Some(stack) = sample.stack {
                let count = counts.entry(stack).or_default();
                *count = count.saturating_add(sample.count);
            }
        }
        self.image_counts(&self.first_of_images(), counts)
    }
}

impl Image {
    /// True if it may be a program: it is a file, and no library.
    pub(crate) fn is_program(&self) -> bool {
        self.path.starts_with('/') && !self.name.contains(".so")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Sample, Stack};
    use super::*;

    fn profile(command: &str, paths: &[&str]) -> Profile {
        let image = |path: &&str| Image {
            path: (*path).to_owned(),
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            ..Image::default()
        };
        let mut profile =
            Profile { images: paths.iter().map(image).collect(), ..Profile::default() };
        profile.facts.commands.push(command.to_owned());
        profile
    }

    /// Returns the path of the first image.
    fn first(mut profile: Profile, programs: &[(&str, Begun)]) -> String {
        let mut all = Programs::default();
        programs.iter().for_each(|&(path, begun)| all.add(Some(path.to_owned()), begun));
        profile.put_program_first(&all);
        profile.images[0].path.clone()
    }

    #[test]
    fn executed_file_is_the_program() {
        let paths = ["/lib/ld.so", "/bin/python3.11", "/bin/python3"];
        let command = profile("python3 x.py", &paths);
        let executed = [
            ("/bin/sh", Begun::Before),
            ("/bin/env", Begun::Recorded((1, 7))),
            ("/bin/python3.11", Begun::Recorded((1, 7))),
            ("/lib/ld.so", Begun::Recorded((1, 8))),
        ];
        assert_eq!(first(command, &executed), "/bin/python3.11");
        let named = profile("/usr/bin/python3 x.py", &paths);
        assert_eq!(first(named, &[]), "/bin/python3");
        // The loader can be executed, too.
        let attached = profile("pid 7", &["[kernel]", "/opt/server", "/lib/ld.so"]);
        assert_eq!(first(attached, &[("/lib/ld.so", Begun::Before)]), "/lib/ld.so");
        let unknown = profile("pid 7", &["[kernel]", "/lib/libc.so.6", "/opt/server"]);
        assert_eq!(first(unknown, &[]), "/opt/server");
    }

    #[test]
    fn executed_file_with_the_most_samples_is_the_program_of_a_system() {
        let mut system = profile("system", &["/opt/plugin", "/opt/a", "/opt/b"]);
        for (image, count) in [(0, 9), (1, 2), (2, 3)] {
            let frame = system.frames.len() as u32;
            system.frames.push(Frame::of_image(image));
            system.stacks.push(Stack { parent: None, frame });
            system.samples.push(Sample { stack: Some(frame), count, ..Sample::default() });
        }
        let programs = [("/opt/a", Begun::Before), ("/opt/b", Begun::Recorded((1, 7)))];
        assert_eq!(first(system, &programs), "/opt/b");
    }
}
