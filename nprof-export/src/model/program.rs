//! Finds the image of the profiled program and makes it the first one. Pure.

use super::{Image, Profile};

impl Profile {
    /// Makes the program the first image. `exe` is the path of the file that the command executed.
    pub(crate) fn put_program_first(&mut self, exe: Option<&str>) {
        let Some(program) = self.program(exe) else { return };
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

    /// Returns the index of the image of the program: the executed file, else the file that the
    /// command names, else the program with the most samples. None without images.
    fn program(&self, exe: Option<&str>) -> Option<usize> {
        let position = |is_it: &dyn Fn(&Image) -> bool| self.images.iter().position(is_it);
        // Recordings of a whole system or of a process begin with any of the executed files.
        let command = self.facts.commands.first().map_or("", String::as_str);
        let is_command = command != "system" && !command.starts_with("pid ");
        if is_command && let Some(found) = position(&|image| Some(&*image.path) == exe) {
            return Some(found);
        }
        // The words of a command are quoted only where a shell needs it.
        let word = command.split(' ').next().unwrap_or_default();
        let name = word.rsplit('/').next().unwrap_or_default();
        if is_command && let Some(found) = position(&|image| image.name == name) {
            return Some(found);
        }
        let counts = self.observations_by_image();
        let mut best = None;
        for (index, image) in self.images.iter().enumerate() {
            let key = (image.is_program(), counts[index]);
            if best.is_none_or(|(most, _)| key > most) {
                best = Some((key, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// Returns the observations with an image anywhere on their stack, by image.
    fn observations_by_image(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; self.images.len()];
        for sample in &self.samples {
            let mut images: Vec<u32> =
                self.frames_of(sample.stack).filter_map(|frame| frame.image).collect();
            images.sort_unstable();
            images.dedup();
            for image in images {
                counts[image as usize] = counts[image as usize].saturating_add(sample.count);
            }
        }
        counts
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

    #[test]
    fn executed_file_is_the_program() {
        let paths = ["/lib/ld.so", "/bin/python3.11", "/bin/python3"];
        let mut executed = profile("python3 x.py", &paths);
        executed.put_program_first(Some("/bin/python3.11"));
        assert_eq!(executed.images[0].path, "/bin/python3.11");
        let mut named = profile("/usr/bin/python3 x.py", &paths);
        named.put_program_first(None);
        assert_eq!(named.images[0].path, "/bin/python3");
        let mut attached = profile("pid 7", &["[kernel]", "/lib/libc.so.6", "/opt/server"]);
        attached.put_program_first(Some("/lib/libc.so.6"));
        assert_eq!(attached.images[0].path, "/opt/server");
    }
}
