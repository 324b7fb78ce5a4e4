//! The running kernel, its modules and the vDSO.
//!
//! They serve recordings of this same kernel only, which build IDs show. The base addresses of
//! symbols are read for each run, since they change with every boot (KASLR).

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufReader, Read};

use nprof_object::{ImageOffset, RuntimeAddress, build_id, kallsyms as kallsyms_text, vdso};
use nprof_stream::{ImageKind, Status};
use object::elf;

use super::failure::Failure;
use super::finder::Finder;
use super::kallsyms::{self, KallsymsError};
use super::kernel_code::KernelCode;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use crate::dwarf::Section;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::Headers;
use crate::elf::plt;
use crate::elf::symbol_table::{SymbolTable, SymbolTableBuilder};
use crate::image::code_bytes::{CodeBytes, ImageCode};
use crate::image::opened::{ElfImage, KernelImage, OpenImage};
use nprof_stream::number::hex;

/// The most bytes that are read of kept symbols of a kernel: with all modules they have some 15 MiB.
const COPY_MAX_BYTES: u64 = 256 << 20;

/// The running kernel.
#[derive(Debug, Default)]
pub(crate) struct RunningKernel {
    /// The text of `/proc/kallsyms`, which the kernel takes about 0.1 s to write.
    kallsyms: OnceCell<Vec<u8>>,
}

impl RunningKernel {
    /// Opens the kernel, a module or the vDSO: the kernel's ELF file if there is one, else the
    /// symbols of the running kernel.
    ///
    /// # Errors
    ///
    /// If it is another kernel, or its symbols are hidden or missing.
    pub(crate) fn open(
        &self,
        recorded: &RecordedImage,
        finder: &Finder,
        log: &SearchLog,
    ) -> Result<OpenImage, Failure> {
        if recorded.kind == ImageKind::Kernel
            && let Some(mut image) = finder.vmlinux(recorded, log)
        {
            // The kernel patches its code: memory has what was executed, the file what was compiled.
            if let (OpenImage::Elf(elf), Some(code)) = (&mut image, code_in_memory(recorded)) {
                elf.code = Ok(Box::new(code));
            }
            // DWARF has lines and inlined calls; kallsyms does not.
            return Ok(image);
        }
        let opened = match recorded.kind {
            ImageKind::Vdso => open_vdso(recorded),
            ImageKind::Module => self.open_module(recorded).map(OpenImage::Symbols),
            _ => self.open_kernel(recorded).map(OpenImage::Symbols).or_else(|failure| {
                // Another kernel runs here, or this one hides its symbols.
                let symbols = open_copy(recorded, finder, log).ok_or(failure)?;
                let code = Err("the recorded kernel does not run here".to_owned());
                Ok(OpenImage::Symbols(KernelImage { symbols, code }))
            }),
        };
        match &opened {
            Ok(OpenImage::Symbols(kernel)) => {
                // The log of --explain states the source of names in each case.
                log.note(format!("kallsyms: names for {} ranges", kernel.symbols.len()));
            }
            Ok(OpenImage::Elf(elf)) => {
                log.note(format!("own memory: .dynsym, names for {} ranges", elf.symbols.len()));
            }
            Err(failure) => log.note(failure.reason.clone()),
        }
        match opened {
            // The vDSO of another kernel, or its debug file, may be installed by build ID.
            Err(failure) if recorded.kind == ImageKind::Vdso => {
                finder.open(recorded, log).map(|opened| opened.image).map_err(|_| failure)
            }
            opened => opened,
        }
    }

    fn open_kernel(&self, recorded: &RecordedImage) -> Result<KernelImage, Failure> {
        let notes = read("/sys/kernel/notes")?;
        let found = build_id::of_notes(&notes).unwrap_or_default();
        check_build_id("the running kernel", &found, recorded)?;
        let text = self.kallsyms()?;
        let symbols = kallsyms::kernel(text).map_err(kallsyms_failure)?;
        Ok(kernel_image(symbols, kallsyms::kernel_base(text)))
    }

    fn open_module(&self, recorded: &RecordedImage) -> Result<KernelImage, Failure> {
        let Some(name) = module_name(&recorded.path) else {
            let reason = "not the name of a module".to_owned();
            return Err(Failure { status: Status::NoImage, reason });
        };
        let notes = module_notes(name).ok();
        let found = notes.and_then(|notes| build_id::of_notes(&notes)).unwrap_or_default();
        check_build_id("the loaded module", &found, recorded)?;
        let (name, modules) = (name.as_bytes(), read("/proc/modules")?);
        let symbols =
            kallsyms::module(self.kallsyms()?, &modules, name).map_err(kallsyms_failure)?;
        Ok(kernel_image(symbols, kallsyms::module_base(&modules, name)))
    }

    fn kallsyms(&self) -> Result<&[u8], Failure> {
        if self.kallsyms.get().is_none() {
            // Cannot fail: the cell is empty, and only this thread uses it.
            let _ = self.kallsyms.set(read("/proc/kallsyms")?);
        }
        Ok(self.kallsyms.get().map_or(&[], Vec::as_slice))
    }
}

/// Returns the name in brackets of the kernel or a module. None for other paths.
pub(super) fn module_name(path: &[u8]) -> Option<&str> {
    let name = path.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let name = std::str::from_utf8(name).ok()?;
    // The name becomes part of a path, and comes from the input.
    Some(name).filter(|name| !name.contains('/') && !name.starts_with('.') && !name.is_empty())
}

/// Reads the notes of a module, which have its build ID.
pub(super) fn module_notes(name: &str) -> Result<Vec<u8>, Failure> {
    read(&format!("/sys/module/{name}/notes/.note.gnu.build-id"))
}

fn kernel_image(symbols: SymbolTable, base: Option<RuntimeAddress>) -> KernelImage {
    let code = base.map(|base| Box::new(KernelCode::at(base)) as Box<dyn CodeBytes>);
    KernelImage { symbols, code: code.ok_or_else(|| "its address is unknown".to_owned()) }
}

/// Returns the code of the recorded kernel in memory. None if another one runs, or memory cannot be
/// read.
fn code_in_memory(recorded: &RecordedImage) -> Option<KernelCode> {
    let found = build_id::of_notes(&read("/sys/kernel/notes").ok()?)?;
    check_build_id("the running kernel", &found, recorded).ok()?;
    let symbols = BufReader::new(File::open("/proc/kallsyms").ok()?);
    let code = KernelCode::at(kallsyms_text::start_of_text(symbols)?);
    code.read(ImageOffset(0), 1).ok().map(|_| code)
}

/// Opens the symbols of the kernel that the recorder kept, if they are in a directory of the user.
fn open_copy(recorded: &RecordedImage, finder: &Finder, log: &SearchLog) -> Option<SymbolTable> {
    finder.search_paths.copies(&recorded.build_id, "kallsyms").iter().find_map(|path| {
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(COPY_MAX_BYTES).read_to_end(&mut text));
        match read {
            Ok(_) => log.tried(path, "the symbols of the recorded kernel"),
            Err(error) => log.tried(path, error.to_string()),
        }
        kallsyms::kernel(&text).ok()
    })
}

/// Opens the vDSO of this process: the kernel maps the same one into every process.
fn open_vdso(recorded: &RecordedImage) -> Result<OpenImage, Failure> {
    let bytes = match vdso::read_own() {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let reason = "this process has no vDSO".to_owned();
            return Err(Failure { status: Status::NoImage, reason });
        }
        Err(error) => return Err(unreadable(&error)),
    };
    let headers = Headers::read(&bytes[..]).map_err(|error| unreadable(&error))?;
    check_build_id("the running kernel's vDSO", &headers.build_id, recorded)?;
    let mut symbols = SymbolTableBuilder::default();
    symbols.add_elf(&headers, &bytes[..], elf::SHT_DYNSYM.0);
    // The vDSO of some kernels has stubs, like any shared library.
    plt::add_stubs(&mut symbols, &headers, &bytes[..]);
    let symbols = symbols.build(&FunctionRanges::default());
    let function_ranges = FunctionRanges::default();
    let code: ImageCode = Ok(Box::new(Section::Memory(bytes.into())));
    let image = ElfImage { headers, symbols, dwarf: Err(None), function_ranges, go: None, code };
    Ok(OpenImage::Elf(Box::new(image)))
}

/// Checks that the running kernel is the recorded one: another one would give wrong names.
fn check_build_id(image: &str, found: &[u8], recorded: &RecordedImage) -> Result<(), Failure> {
    // Releases are no identity: a rebuilt kernel keeps its release.
    if !recorded.build_id.is_empty() && found == &recorded.build_id[..] {
        return Ok(());
    }
    let (found, expected) = (hex(found), hex(&recorded.build_id));
    let reason = if expected.is_empty() {
        "recorded without a build ID: names could be of another kernel".to_owned()
    } else if found.is_empty() {
        format!("{image} shows no build ID, want {expected}")
    } else {
        format!("{image} has the build ID {found}, want {expected}")
    };
    Err(Failure { status: Status::Mismatch, reason })
}

pub(super) fn unreadable(error: &impl ToString) -> Failure {
    Failure { status: Status::Unreadable, reason: error.to_string() }
}

pub(super) fn kallsyms_failure(error: KallsymsError) -> Failure {
    let (status, reason) = match error {
        KallsymsError::Restricted => (
            Status::Restricted,
            "/proc/kallsyms shows no addresses: run as root, or set kernel.kptr_restrict=0",
        ),
        KallsymsError::Absent => (Status::NoSymbol, "/proc/kallsyms has no symbols of it"),
    };
    Failure { status, reason: reason.to_owned() }
}

pub(super) fn read(path: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let reason = format!("{path}: {error}");
        Failure { status: Status::NoImage, reason }
    })
}
