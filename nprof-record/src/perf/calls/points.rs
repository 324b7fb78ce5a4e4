//! The list of the functions whose calls are counted, as `nprof-symbolize --entries` writes it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use nprof_stream::escape::{escaped, unescaped};
use nprof_stream::number::hex;
use nprof_unwind::image::elf::Elf;
use object::ReadCache;
use rustc_hash::FxHashMap;

use crate::event::CpuMode;
use crate::os::code_mapping::Identity;
use crate::perf::calls::kernel::{self, KernelSymbols};

/// The most places: a link of the kernel has at most 2^20.
const POINTS_MAX: usize = 1 << 20;

/// The longest list in bytes.
const LIST_MAX: u64 = 256 << 20;

/// The first line of a list, and that of lists of older versions.
const HEADER: &[u8] = b"function\timage\tbuild_id\toffset\tframe\tends\tslow";
const OLD_HEADERS: [&[u8]; 2] = [
    b"function\timage\tbuild_id\toffset\tframe\tends",
    b"function\timage\tbuild_id\toffset\tframe",
];

/// A place at which calls of a function are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The function.
    pub(crate) name: Vec<u8>,
    /// The index of its image.
    pub(crate) image: usize,
    /// The file offset.
    pub(crate) offset: u64,
    /// The offset of the frame that names the function: at the place itself, another function may be
    /// inlined.
    pub(crate) frame: u64,
    /// The file offsets of the instructions with which it ends. None if they are unknown.
    pub(crate) ends: Option<Vec<u64>>,
    /// True if counting a call takes many times as long as that of most functions.
    pub(crate) is_slow: bool,
}

/// An image with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedImage {
    pub(crate) path: Vec<u8>,
    build_id: Vec<u8>,
    pub(crate) identity: Identity,
    /// The address from which its offsets count, for the kernel and its modules.
    pub(crate) base: Option<u64>,
}

/// The places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PointList {
    pub(crate) points: Vec<Point>,
    pub(crate) images: Vec<CountedImage>,
    /// True if a line has no column for ends, as in lists of older versions.
    lacks_ends: bool,
    /// For functions of the kernel, the address of the system call whose cost is measured.
    pub(crate) system_call: Option<u64>,
}

impl PointList {
    /// Reads a list from a file, `-` for standard input, and checks that its images are those of the
    /// list.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is no list, or an image has changed.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        let result = if path == Path::new("-") {
            std::io::stdin().lock().take(LIST_MAX + 1).read_to_end(&mut text)
        } else {
            File::open(path).and_then(|file| file.take(LIST_MAX + 1).read_to_end(&mut text))
        };
        result.with_context(|| format!("--calls: {}", path.display()))?;
        ensure!(text.len() as u64 <= LIST_MAX, "--calls: {}: too long", path.display());
        let mut list =
            Self::parse(&text).with_context(|| format!("--calls: {}", path.display()))?;
        if list.is_kernel() {
            let kernel = KernelSymbols::read().context("--calls")?;
            for image in &mut list.images {
                let name = kernel::image_name(&image.path).unwrap_or_default();
                let base = kernel.base(name, &image.build_id);
                image.base = Some(base.with_context(|| escaped(&image.path))?);
            }
            list.system_call = kernel.system_call();
            return Ok(list);
        }
        for image in &mut list.images {
            image.identity = identify(image).with_context(|| escaped(&image.path))?;
        }
        Ok(list)
    }

    /// Parses a list, or several, one after the other.
    ///
    /// # Errors
    ///
    /// If it is no list.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let mut list = Self::default();
        let mut images: FxHashMap<Vec<u8>, usize> = FxHashMap::default();
        let mut known: FxHashMap<(usize, u64), ()> = FxHashMap::default();
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let is_header = |line: &[u8]| line == HEADER || OLD_HEADERS.contains(&line);
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !is_header(line)) {
            let wrong = || anyhow!("line {}: no line of nprof-symbolize --entries", number + 1);
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
            let [name, path, build_id, offset, frame, ref others @ ..] = fields[..] else {
                bail!(wrong())
            };
            let (ends, slow) = match *others {
                [] => (None, None),
                [ends] => (Some(ends), None),
                [ends, slow] => (Some(ends), Some(slow)),
                _ => bail!(wrong()),
            };
            list.lacks_ends |= ends.is_none();
            let ends = match ends {
                None | Some(b"?") => None,
                Some(ends) => Some(parse_offsets(ends).ok_or_else(wrong)?),
            };
            let is_slow = match slow {
                None | Some(b"no") => false,
                Some(b"yes") => true,
                Some(_) => bail!(wrong()),
            };
            let name = unescaped(name).ok_or_else(wrong)?;
            let path = unescaped(path).ok_or_else(wrong)?;
            ensure!(path.starts_with(b"/") || kernel::image_name(&path).is_some(), wrong());
            let build_id = parse_hex(build_id).ok_or_else(wrong)?;
            let offset = parse_offset(offset).ok_or_else(wrong)?;
            let frame = parse_offset(frame).ok_or_else(wrong)?;
            let image = *images.entry(path.clone()).or_insert_with(|| {
                let (build_id, identity) = (build_id.clone(), Identity::default());
                list.images.push(CountedImage { path, build_id, identity, base: None });
                list.images.len() - 1
            });
            ensure!(
                list.images[image].build_id == build_id,
                "line {}: the image has two builds",
                number + 1
            );
            // Two functions with equal code may have become one.
            if known.insert((image, offset), ()).is_none() {
                list.points.push(Point { name, image, offset, frame, ends, is_slow });
            }
            ensure!(list.points.len() <= POINTS_MAX, "more than {POINTS_MAX} functions");
        }
        ensure!(!list.points.is_empty(), "it has no functions");
        let in_kernel = list.images.iter().filter(|image| !image.path.starts_with(b"/")).count();
        // A call of either kind has a cost of its own, and the stream has one for the event.
        ensure!(
            in_kernel == 0 || in_kernel == list.images.len(),
            "functions of the kernel and of programs: count them in two recordings"
        );
        Ok(list)
    }

    /// True if its functions are those of the kernel and its modules.
    pub(crate) fn is_kernel(&self) -> bool {
        self.images.iter().any(|image| !image.path.starts_with(b"/"))
    }

    /// Checks that the list has the ends of its functions.
    ///
    /// # Errors
    ///
    /// If it has not, with the remedy.
    pub(crate) fn check_ends(&self) -> anyhow::Result<()> {
        ensure!(
            !self.is_kernel(),
            "--calls-event: the functions of the kernel cannot be left with a probe; list those of \
             programs"
        );
        ensure!(
            !self.lacks_ends,
            "--calls-event: the list is of an older version and lacks the ends of functions; list \
             them again"
        );
        ensure!(
            self.points.iter().any(|point| point.ends.is_some()),
            "--calls-event: the list has no function of known ends; list others"
        );
        Ok(())
    }

    /// Returns the part of the stacks of calls that is recorded.
    pub(crate) fn mode(&self) -> CpuMode {
        if self.is_kernel() { CpuMode::Both } else { CpuMode::User }
    }

    /// Returns the path of an image.
    pub(crate) fn path(&self, image: usize) -> anyhow::Result<CString> {
        Ok(CString::new(self.images[image].path.clone())?)
    }
}

/// Checks the build of an image. Returns its identity.
fn identify(image: &CountedImage) -> anyhow::Result<Identity> {
    let path = PathBuf::from(OsStr::from_bytes(&image.path));
    let metadata = std::fs::metadata(&path)?;
    // Opening a pipe would block.
    ensure!(metadata.is_file(), "not a regular file");
    let file = File::open(&path)?;
    let found = Elf::read(&ReadCache::new(file)).context("no ELF file")?.build_id;
    ensure!(
        found == image.build_id,
        "another build than the one of the list: it has {}, the list {}; list its functions again",
        hex(&found),
        hex(&image.build_id)
    );
    let device = metadata.dev();
    let device = (libc::major(device), libc::minor(device));
    Ok(Identity { device, inode: metadata.ino(), generation: 0 })
}

/// Parses offsets with a comma between them.
fn parse_offsets(text: &[u8]) -> Option<Vec<u64>> {
    let parts = text.split(|&byte| byte == b',').filter(|_| !text.is_empty());
    parts.map(parse_offset).collect()
}

/// Parses an offset, in hexadecimal digits after `0x`.
fn parse_offset(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    // `from_str_radix` accepts a sign.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

/// Parses hexadecimal digits, two for each byte.
fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(digits).ok()?;
    if !text.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "function\timage\tbuild_id\toffset\tframe\nf(int)\t/bin/a\t0aff\t0x1044\t0x1040\n";

    fn parse(text: &str) -> anyhow::Result<PointList> {
        PointList::parse(text.as_bytes())
    }

    #[test]
    fn lists_of_several_images_are_one_list() {
        let text =
            format!("{LIST}{LIST}g\\x0a\t/bin/b\t\t0x20\t0x20\nh\t/bin/a\t0aff\t0x50\t0x4c\n");
        let list = parse(&text).expect("a list");
        let points: Vec<_> =
            list.points.iter().map(|it| (&it.name[..], it.image, it.offset, it.frame)).collect();
        let expected: [(&[u8], usize, u64, u64); 3] =
            [(b"f(int)", 0, 0x1044, 0x1040), (b"g\n", 1, 0x20, 0x20), (b"h", 0, 0x50, 0x4c)];
        assert_eq!(points, expected);
        assert_eq!(list.images[0].build_id, [0x0a, 0xff]);
    }

    #[test]
    fn ends_are_a_list_or_unknown() {
        let ends = |fields: &str| {
            let list = parse(&format!("f\t/bin/a\t0aff\t0x1\t0x1{fields}\n")).expect("a list");
            list.points[0].ends.clone()
        };
        assert_eq!(ends("\t0x10,0x2f"), Some(vec![0x10, 0x2f]));
        assert_eq!((ends("\t"), ends("\t?"), ends("")), (Some(Vec::new()), None, None));
        let check = |fields: &str| {
            parse(&format!("f\t/bin/a\t0aff\t0x1\t0x1{fields}\n")).expect("a list").check_ends()
        };
        assert!(check("\t").is_ok() && check("\t0x10").is_ok());
        assert!(check("").is_err_and(|error| error.to_string().contains("older version")));
        assert!(
            check("\t?")
                .is_err_and(|error| error.to_string().contains("no function of known ends"))
        );
    }

    #[test]
    fn lines_of_other_files_are_refused_with_their_number() {
        for wrong in [
            "f\t/bin/a\t0aff\t0x1",
            "f\tbin/a\t0aff\t0x1\t0x1",
            "f\t/bin/a\t0af\t0x1\t0x1",
            "f\t/bin/a\t0aff\t1\t0x1",
            "f\t/bin/a\t0aff\t0x\t0x1",
            "f\t/bin/a\t0aff\t0x+1\t0x1",
            "f\t/bin/a\t0aff\t0x1\t0x1\tx",
            "f\t/bin/a\t0aff\t0x1\t0x1\t0x1,",
            "f\t/bin/a\t0aff\t0x1\t0x1\t0x1\t",
        ] {
            let error = parse(&format!("{LIST}{wrong}\n")).expect_err(wrong).to_string();
            assert!(error.contains("line 3"), "{wrong}: {error}");
        }
        assert!(parse("").is_err_and(|error| error.to_string().contains("no functions")));
        let mixed = format!("{LIST}g\t[kernel]\t0a\t0x9\t0x9\n");
        assert!(parse(&mixed).is_err_and(|error| error.to_string().contains("two recordings")));
        let two = format!("{LIST}g\t/bin/a\t0a\t0x9\t0x9\n");
        assert!(parse(&two).is_err_and(|error| error.to_string().contains("two builds")));
    }

    #[test]
    fn image_of_another_build_is_refused() {
        let own = std::env::current_exe().expect("a path");
        let path = own.as_os_str().as_bytes().to_vec();
        let identity = Identity::default();
        let image = CountedImage { path, build_id: vec![1], identity, base: None };
        assert!(identify(&image).is_err_and(|error| error.to_string().contains("another build")));
        let image = CountedImage { path: b"/dev/null".to_vec(), ..image };
        assert!(identify(&image).is_err_and(|error| error.to_string().contains("regular file")));
    }
}
