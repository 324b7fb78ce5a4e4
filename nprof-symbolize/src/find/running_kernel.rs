//! What the running system tells of its kernel, its modules and the vDSO.
//!
//! Only of use for recordings of this very kernel: build IDs decide, and the addresses symbols
//! count from are read anew, since they change with every boot.

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use nprof_stream::{ImageKind, Status};
use object::elf;

use super::failure::Failure;
use super::finder::Finder;
use super::hex::hex;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::{Headers, build_id_of_notes};
use crate::elf::plt;
use crate::elf::symbol_table::{SymbolTable, SymbolTableBuilder};
use crate::find::kallsyms::{self, KallsymsError};
use crate::image::opened::{ElfImage, OpenImage};

/// The largest vDSO that is read, bytes.
const VDSO: u64 = 16 << 20;

/// The running system, as far as it has been asked.
#[derive(Debug, Default)]
pub(crate) struct RunningKernel {
    /// `/proc/kallsyms`, which takes the kernel a tenth of a second to write.
    kallsyms: OnceCell<Vec<u8>>,
}

impl RunningKernel {
    /// Opens the kernel, a module or the vDSO: the kernel's ELF file if there is one, else what
    /// the running kernel tells.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn open(
        &self,
        recorded: &RecordedImage,
        finder: &Finder,
        trace: &SearchLog,
    ) -> Result<OpenImage, Failure> {
        if recorded.kind == ImageKind::Kernel
            && let Some(image) = finder.vmlinux(recorded, trace)
        {
            return Ok(image);
        }
        let opened = match recorded.kind {
            ImageKind::Vdso => open_vdso(recorded),
            ImageKind::Module => self.open_module(recorded).map(OpenImage::Symbols),
            _ => self.open_kernel(recorded).map(OpenImage::Symbols),
        };
        match &opened {
            Ok(OpenImage::Symbols(symbols)) => {
                trace.note(format!("/proc/kallsyms: names for {} ranges", symbols.len()));
            }
            Ok(OpenImage::Elf(elf)) => {
                trace.note(format!("own memory: .dynsym, names for {} ranges", elf.symbols.len()));
            }
            Err(failure) => trace.note(failure.why.clone()),
        }
        match opened {
            // Its debug file, or the file it was made from, may be had by its build ID.
            Err(failure) if recorded.kind == ImageKind::Vdso => {
                finder.open(recorded, trace).map(|opened| opened.image).map_err(|_| failure)
            }
            opened => opened,
        }
    }

    fn open_kernel(&self, recorded: &RecordedImage) -> Result<SymbolTable, Failure> {
        let notes = read("/sys/kernel/notes")?;
        check("the running kernel", &build_id_of_notes(&notes).unwrap_or_default(), recorded)?;
        kallsyms::kernel(self.kallsyms()?).map_err(useless)
    }

    fn open_module(&self, recorded: &RecordedImage) -> Result<SymbolTable, Failure> {
        let name = recorded.path.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]"));
        let text = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = text.filter(|name| !name.contains('/') && !name.starts_with('.')) else {
            let why = "not the name of a module".to_owned();
            return Err(Failure { status: Status::NoImage, why });
        };
        let notes = read(&format!("/sys/module/{name}/notes/.note.gnu.build-id"));
        let build_id = notes.ok().and_then(|notes| build_id_of_notes(&notes)).unwrap_or_default();
        check("the loaded module", &build_id, recorded)?;
        kallsyms::module(self.kallsyms()?, &read("/proc/modules")?, name.as_bytes())
            .map_err(useless)
    }

    fn kallsyms(&self) -> Result<&[u8], Failure> {
        if self.kallsyms.get().is_none() {
            // Nobody else can have set it in the meantime.
            let _ = self.kallsyms.set(read("/proc/kallsyms")?);
        }
        Ok(self.kallsyms.get().map_or(&[], Vec::as_slice))
    }
}

/// The vDSO is mapped into every process, this one included.
fn open_vdso(recorded: &RecordedImage) -> Result<OpenImage, Failure> {
    let failure = |status, why: &str| Failure { status, why: why.to_owned() };
    let maps = String::from_utf8_lossy(&read("/proc/self/maps")?).into_owned();
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let range = range.and_then(|(start, end)| {
        let address = |digits| u64::from_str_radix(digits, 16).ok();
        Some((address(start)?, address(end)?))
    });
    let Some((start, end)) = range.filter(|(start, end)| start < end && end - start <= VDSO) else {
        return Err(failure(Status::NoImage, "this process has no vDSO"));
    };
    let mut bytes = vec![0; (end - start) as usize];
    let memory =
        File::open("/proc/self/mem").and_then(|file| file.read_exact_at(&mut bytes, start));
    memory.map_err(|error| failure(Status::Unreadable, &error.to_string()))?;
    let headers = Headers::read(&bytes[..]);
    let headers = headers.map_err(|error| failure(Status::Unreadable, &error.to_string()))?;
    check("the running kernel's vDSO", &headers.build_id, recorded)?;
    let mut symbols = SymbolTableBuilder::default();
    symbols.add_elf(&headers, &bytes[..], elf::SHT_DYNSYM.0);
    plt::add_stubs(&mut symbols, &headers, &bytes[..]);
    let symbols = symbols.build();
    Ok(OpenImage::Elf(Box::new(ElfImage {
        headers,
        symbols,
        dwarf: Err(None),
        function_ranges: FunctionRanges::default(),
    })))
}

/// Names of another kernel would be wrong names.
fn check(what: &str, found: &[u8], recorded: &RecordedImage) -> Result<(), Failure> {
    if !recorded.build_id.is_empty() && found == &recorded.build_id[..] {
        return Ok(());
    }
    let why = match (hex(found), hex(&recorded.build_id)) {
        (_, want) if want.is_empty() => {
            "recorded without a build ID, so that its names would be a guess".to_owned()
        }
        (found, want) if found.is_empty() => format!("{what} shows no build ID, want {want}"),
        (found, want) => format!("{what} has the build ID {found}, want {want}"),
    };
    Err(Failure { status: Status::Mismatch, why })
}

fn useless(useless: KallsymsError) -> Failure {
    let (status, why) = match useless {
        KallsymsError::Restricted => (
            Status::Restricted,
            "/proc/kallsyms shows no addresses: run as root, or set kernel.kptr_restrict=0",
        ),
        KallsymsError::Absent => (Status::NoSymbol, "/proc/kallsyms has no symbols of it"),
    };
    Failure { status, why: why.to_owned() }
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let why = format!("{path}: {error}");
        Failure { status: Status::NoImage, why }
    })
}
