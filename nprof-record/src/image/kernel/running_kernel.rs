//! Resolves addresses in the kernel to its own text, a module, or generated code (BPF programs and
//! trampolines). If the kernel hides its addresses, they are recorded unresolved.
//!
//! Nearly all samples are in the kernel's own text. The first one elsewhere reads the rest: once
//! the code generated before the recording, from /proc/kallsyms; and repeatedly the modules, because
//! perf events do not report when one is loaded or unloaded.
//!
//! Reading /proc/kallsyms takes some 40 ms of CPU time, and on a busy machine a multiple of that:
//! rings overflow in this time. If the first sample in the kernel will need it, because only root may
//! read the size of the text in /proc/iomem, the recorder reads it before sampling begins.
//!
//! Generated code that appears or disappears during the recording is reported by
//! PERF_RECORD_KSYMBOL.

use std::fs;
use std::io::BufReader;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nprof_object::kallsyms::start_of_text;
use nprof_object::modules::{self, Module};
use nprof_object::{ImageOffset, RuntimeAddress};
use nprof_stream::ImageKind;

use crate::image::jit::runtime_code::{CodeRegions, RuntimeFunction, RuntimeFunctions};
use crate::image::kernel::kallsyms::KernelSymbols;
use crate::os::code_mapping::Ksymbol;

/// The shortest time between two reads of /proc/modules.
const MODULES_POLL: Duration = Duration::from_millis(200);

/// The kernel itself or a module of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelImage {
    pub(crate) kind: ImageKind,
    /// `[kernel]` or `[name]`.
    pub(crate) name: Vec<u8>,
    /// The build ID; empty if it could not be read.
    pub(crate) build_id: Vec<u8>,
    /// The address from which offsets are counted; 0 if the kernel hides it.
    pub(crate) base: u64,
    /// The size in bytes; 0 if the end of the kernel is unknown.
    size: u64,
}

/// The location of an address.
#[derive(Clone, Debug)]
pub(crate) enum KernelLocation {
    /// In the image of this number.
    Image(usize),
    Function(Rc<RuntimeFunction>),
}

/// The progress of /proc/kallsyms.
#[derive(Debug, Default)]
enum SymbolsState {
    #[default]
    Unread,
    /// Read before sampling began; the generated code is added when a sample needs it.
    Read(KernelSymbols),
    Added,
}

/// The running kernel.
#[derive(Debug)]
pub(crate) struct RunningKernel {
    /// All images since the start; the first is the kernel itself.
    images: Vec<KernelImage>,
    /// The loaded modules: base and number of the image, sorted.
    modules: Vec<(u64, usize)>,
    /// The text of /proc/modules from which they were read.
    modules_text: String,
    /// The generated code.
    generated: CodeRegions,
    symbols: SymbolsState,
    /// The last read of /proc/modules.
    modules_read: Option<Instant>,
}

impl RunningKernel {
    /// Reads the addresses and build ID of the running kernel. Unreadable ones are unknown.
    pub(crate) fn running() -> Self {
        let symbols = fs::File::open("/proc/kallsyms").ok();
        let base = symbols.and_then(|file| start_of_text(BufReader::new(file)));
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        let memory = fs::read_to_string("/proc/iomem").unwrap_or_default();
        Self::new(base.map_or(0, |base| base.0), text_size(&memory).unwrap_or(0), &notes)
    }

    /// Reads the running kernel before sampling begins, with the symbols if its first sample will
    /// need them.
    pub(crate) fn before_sampling() -> Self {
        let mut kernel = Self::running();
        if kernel.needs_symbols()
            && let Ok(file) = fs::File::open("/proc/kallsyms")
        {
            kernel.read_ahead(KernelSymbols::read(BufReader::new(file)));
        }
        kernel
    }

    /// True if the first sample in the kernel needs the symbols: the size of the text is unknown,
    /// and its address is not hidden.
    fn needs_symbols(&self) -> bool {
        self.images[0].base != 0 && self.images[0].size == 0
    }

    /// Takes the symbols as they were before sampling.
    fn read_ahead(&mut self, symbols: KernelSymbols) {
        self.set_text_end(&symbols);
        self.symbols = SymbolsState::Read(symbols);
    }

    /// Creates a kernel from the address of `_stext`, the size of the text from there, and the ELF
    /// notes.
    fn new(base: u64, size: u64, notes: &[u8]) -> Self {
        let (kind, name) = (ImageKind::Kernel, b"[kernel]".to_vec());
        let kernel = KernelImage { kind, name, build_id: build_id(notes), base, size };
        Self {
            images: vec![kernel],
            modules: Vec::new(),
            modules_text: String::new(),
            generated: CodeRegions::default(),
            symbols: SymbolsState::default(),
            modules_read: None,
        }
    }

    /// Returns the location of an address, and the offset in it. Unknown addresses are in the
    /// kernel.
    pub(crate) fn find(
        &mut self,
        RuntimeAddress(address): RuntimeAddress,
        functions: &RuntimeFunctions,
    ) -> (KernelLocation, ImageOffset) {
        let kernel = &self.images[0];
        let offset = address.wrapping_sub(kernel.base);
        // The fast path: nearly all addresses are in the kernel's own text.
        let is_outside = kernel.base == 0 || offset >= kernel.size;
        let found = if is_outside { self.find_outside(address, functions) } else { None };
        let (location, offset) = found.unwrap_or((KernelLocation::Image(0), offset));
        (location, ImageOffset(offset))
    }

    /// Returns the location of an address outside of the kernel's own text. None if it is unknown.
    fn find_outside(
        &mut self,
        address: u64,
        functions: &RuntimeFunctions,
    ) -> Option<(KernelLocation, u64)> {
        // Without a read of the files: BPF programs are sampled again and again.
        if let Some(found) = self.find_generated(address) {
            return Some(found);
        }
        // With hidden addresses the files have nothing to read.
        if self.images[0].base != 0 {
            self.refresh(functions);
        }
        if let Some(found) = self.find_generated(address) {
            return Some(found);
        }
        // The size of a module is that of all its memory, which need not be contiguous (Linux 6.4);
        // its base is that of its text.
        let after = self.modules.partition_point(|&(base, _)| base <= address);
        let &(base, number) = self.modules.get(after.checked_sub(1)?)?;
        let offset = address - base;
        (offset < self.images[number].size).then_some((KernelLocation::Image(number), offset))
    }

    /// Returns the generated function at an address, and the offset in it.
    fn find_generated(&self, address: u64) -> Option<(KernelLocation, u64)> {
        let (function, offset) = self.generated.find(address)?;
        Some((KernelLocation::Function(function.clone()), offset))
    }

    /// Reads generated code if it was not read, and modules if they may have changed.
    fn refresh(&mut self, functions: &RuntimeFunctions) {
        match std::mem::replace(&mut self.symbols, SymbolsState::Added) {
            SymbolsState::Unread => {
                if let Ok(file) = fs::File::open("/proc/kallsyms") {
                    self.add_symbols(&KernelSymbols::read(BufReader::new(file)), functions);
                }
            }
            SymbolsState::Read(symbols) => self.add_symbols(&symbols, functions),
            SymbolsState::Added => {}
        }
        if self.modules_read.is_none_or(|read| read.elapsed() >= MODULES_POLL) {
            self.modules_read = Some(Instant::now());
            let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
            self.set_modules(modules, module_build_id);
        }
    }

    /// Sets the end of the text as /proc/kallsyms has it.
    fn set_text_end(&mut self, symbols: &KernelSymbols) {
        let kernel = &mut self.images[0];
        let size = symbols.text_end.and_then(|end| end.checked_sub(kernel.base));
        kernel.size = kernel.size.max(size.unwrap_or(0));
    }

    /// Adds the generated code of /proc/kallsyms, and the end of the text.
    fn add_symbols(&mut self, symbols: &KernelSymbols, functions: &RuntimeFunctions) {
        self.set_text_end(symbols);
        for (start, size, name) in &symbols.generated {
            // PERF_RECORD_KSYMBOL has exact sizes: it takes precedence.
            if self.generated.find(*start).is_none()
                && let Some(function) = functions.create(name, *start, None)
            {
                self.generated.insert(function, *size);
            }
        }
    }

    /// Sets the loaded modules from the text of /proc/modules. `build_id` returns the build ID of a
    /// new one.
    fn set_modules(&mut self, modules: String, build_id: impl Fn(&str) -> Vec<u8>) {
        // Reading build IDs of all modules costs more than this comparison.
        if modules == self.modules_text {
            return;
        }
        self.modules.clear();
        let loaded = modules::modules(modules.as_bytes());
        // The base is 0 if the kernel hides its addresses.
        for Module { name, base, size } in loaded.filter(|module| module.base.0 != 0) {
            let base = base.0;
            let build_id = build_id(&String::from_utf8_lossy(name));
            let name = [b"[", name, b"]"].concat();
            let image = KernelImage { kind: ImageKind::Module, name, build_id, base, size };
            // A module that is loaded again at its old address keeps its number.
            let known = self.images.iter().position(|known| *known == image);
            self.modules.push((base, known.unwrap_or(self.images.len())));
            if known.is_none() {
                self.images.push(image);
            }
        }
        self.modules.sort_unstable();
        self.modules_text = modules;
    }

    /// Handles a record of generated code that was added or removed.
    pub(crate) fn changed(&mut self, symbol: &Ksymbol<'_>, functions: &RuntimeFunctions) {
        if symbol.is_unregistered {
            self.generated.remove(symbol.start.0, symbol.size);
        } else if let Some(function) = functions.create(symbol.name, symbol.start.0, None) {
            self.generated.insert(function, symbol.size);
        }
    }

    /// Returns an image by its number.
    pub(crate) fn image(&self, number: usize) -> &KernelImage {
        &self.images[number]
    }
}

/// Parses the size of the kernel's text from /proc/iomem. None if it is hidden.
fn text_size(memory: &str) -> Option<u64> {
    let range = memory.lines().find_map(|line| line.trim().strip_suffix(" : Kernel code"))?;
    let (first, last) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    let size = address(last)?.checked_sub(address(first)?)?;
    // Hidden addresses are all 0. The range includes its last byte.
    (size > 0).then_some(size + 1)
}

/// Reads the build ID of a loaded module; empty if it cannot be read.
fn module_build_id(name: &str) -> Vec<u8> {
    let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id"));
    build_id(&notes.unwrap_or_default())
}

/// Returns the build ID in ELF notes; empty if there is none.
fn build_id(notes: &[u8]) -> Vec<u8> {
    nprof_object::build_id::of_notes(notes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &[u8] = b"\x06\0\0\0\x01\0\0\0\0\x01\0\0Linux\0\0\0\0\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\xcd\xef\0";
    const BASE: u64 = 0xffff_ffff_8100_0000;
    const GENERATED: u64 = 0xffff_ffff_c000_0000;

    /// Returns the name of the image or function at an address, and the offset.
    fn location(
        kernel: &mut RunningKernel,
        functions: &RuntimeFunctions,
        address: u64,
    ) -> (String, u64) {
        let (location, offset) = kernel.find(RuntimeAddress(address), functions);
        let offset = offset.0;
        let name = match location {
            KernelLocation::Image(number) => kernel.image(number).name.clone(),
            KernelLocation::Function(function) => function.name.to_vec(),
        };
        (String::from_utf8(name).expect("UTF-8"), offset)
    }

    /// Returns a kernel that has read its files.
    fn refreshed(size: u64) -> RunningKernel {
        let mut kernel = RunningKernel::new(BASE, size, NOTES);
        kernel.symbols = SymbolsState::Added;
        kernel.modules_read = Some(Instant::now() + Duration::from_secs(3600));
        kernel
    }

    fn at(name: &str, offset: u64) -> (String, u64) {
        (name.to_owned(), offset)
    }

    #[test]
    fn address_is_in_kernel_or_nearest_module_before_it() {
        let (mut kernel, functions) = (refreshed(0x100_0000), RuntimeFunctions::default());
        // The first one's size is that of its data, too, and reaches into the second one's text.
        let modules = format!(
            "first 65536 2 second, Live {GENERATED:#x}\n\
             second 4096 0 - Live {:#x}\n\
             hidden 4096 0 - Live 0x0000000000000000\nbroken\n\n",
            GENERATED + 0x2000
        );
        kernel.set_modules(modules, |name| name.as_bytes()[..1].to_vec());
        assert_eq!(location(&mut kernel, &functions, GENERATED + 0x1010), at("[first]", 0x1010));
        assert_eq!(location(&mut kernel, &functions, GENERATED + 0x2010), at("[second]", 0x10));
        assert_eq!(
            location(&mut kernel, &functions, GENERATED + 0x3000),
            at("[kernel]", 0x3f00_3000)
        );
        assert_eq!(location(&mut kernel, &functions, BASE + 0x123), at("[kernel]", 0x123));
        assert_eq!((kernel.images.len(), kernel.image(0).build_id.len()), (3, 3));
        assert_eq!(kernel.image(2).build_id, b"s");
    }

    #[test]
    fn reloaded_module_keeps_its_number() {
        let (mut kernel, functions) = (refreshed(0x100_0000), RuntimeFunctions::default());
        let line = |name| format!("{name} 4096 0 - Live {GENERATED:#x}\n");
        for name in ["one", "two", "one"] {
            kernel.set_modules(line(name), |_| Vec::new());
            assert_eq!(location(&mut kernel, &functions, GENERATED), at(&format!("[{name}]"), 0));
        }
        kernel.set_modules(String::new(), |_| Vec::new());
        assert_eq!(location(&mut kernel, &functions, GENERATED).0, "[kernel]");
        assert_eq!(kernel.images.len(), 3);
    }

    #[test]
    fn generated_code_exists_until_it_is_removed() {
        let (mut kernel, functions) = (refreshed(0x100_0000), RuntimeFunctions::default());
        let symbols = KernelSymbols {
            text_end: Some(BASE + 0x200_0000),
            generated: vec![(GENERATED, 64, b"bpf_prog_1".to_vec())],
        };
        kernel.add_symbols(&symbols, &functions);
        assert_eq!(kernel.image(0).size, 0x200_0000);
        assert_eq!(location(&mut kernel, &functions, GENERATED + 63), at("bpf_prog_1", 63));
        let symbol = |is_unregistered| Ksymbol {
            start: RuntimeAddress(GENERATED),
            size: 32,
            is_unregistered,
            name: b"bpf_prog_2",
        };
        kernel.changed(&symbol(false), &functions);
        assert_eq!(location(&mut kernel, &functions, GENERATED + 1), at("bpf_prog_2", 1));
        kernel.add_symbols(&symbols, &functions);
        assert_eq!(location(&mut kernel, &functions, GENERATED + 1), at("bpf_prog_2", 1));
        kernel.changed(&symbol(true), &functions);
        assert_eq!(location(&mut kernel, &functions, GENERATED + 1).0, "[kernel]");
    }

    #[test]
    fn symbols_are_read_before_sampling_if_text_size_is_hidden() {
        let (mut kernel, functions) =
            (RunningKernel::new(BASE, 0, NOTES), RuntimeFunctions::default());
        assert!(kernel.needs_symbols(), "only root reads the size");
        assert!(!RunningKernel::new(BASE, 1, NOTES).needs_symbols());
        assert!(!RunningKernel::new(0, 0, NOTES).needs_symbols(), "hidden addresses");
        kernel.modules_read = Some(Instant::now() + Duration::from_secs(3600));
        kernel.read_ahead(KernelSymbols {
            text_end: Some(BASE + 0x200_0000),
            generated: vec![(GENERATED, 64, b"bpf_prog_1".to_vec())],
        });
        assert_eq!(location(&mut kernel, &functions, BASE + 0x123), at("[kernel]", 0x123));
        assert!(matches!(kernel.symbols, SymbolsState::Read(_)), "the sample needed no file");
        assert_eq!(location(&mut kernel, &functions, GENERATED + 63), at("bpf_prog_1", 63));
    }

    #[test]
    fn hidden_addresses_stay_unresolved() {
        let (mut kernel, functions) = (RunningKernel::new(0, 0, &[]), RuntimeFunctions::default());
        assert_eq!(location(&mut kernel, &functions, BASE), at("[kernel]", BASE));
        assert!(matches!(kernel.symbols, SymbolsState::Unread), "hidden addresses are not read");
        let symbol = Ksymbol {
            start: RuntimeAddress(GENERATED),
            size: 32,
            is_unregistered: false,
            name: b"bpf_prog_1",
        };
        kernel.changed(&symbol, &functions);
        assert_eq!(location(&mut kernel, &functions, GENERATED + 1), at("bpf_prog_1", 1));
    }

    #[test]
    fn parses_text_size_from_iomem() {
        let memory = "00000000-00000fff : Reserved\n00100000-7fffffff : System RAM\n  \
                      01000000-02209987 : Kernel code\n  02400000-02e09fff : Kernel rodata\n";
        assert_eq!(text_size(memory), Some(0x120_9988));
        assert_eq!(text_size("00000000-00000000 : Kernel code\n"), None);
        assert_eq!(text_size("2-1 : Kernel code\nx"), None);
        assert_eq!(text_size(""), None);
    }

    #[test]
    fn malformed_notes_have_no_build_id() {
        for length in 0..NOTES.len() - 1 {
            assert!(build_id(&NOTES[..length]).is_empty());
        }
        assert!(build_id(&[0xff; 40]).is_empty());
        assert!(build_id(&[0; 40]).is_empty());
    }
}
