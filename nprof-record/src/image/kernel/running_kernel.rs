//! Addresses in the kernel: which of its parts they lie in, and which code it made while it runs:
//! BPF programs, trampolines. Where the kernel keeps its addresses to itself, they stay what they
//! are.
//!
//! Nearly all samples lie in the kernel's own text, and the first that does not makes us ask for
//! the rest: code made before the recording, from /proc/kallsyms, which takes long to read, once;
//! modules again and again, since the kernel does not tell when one comes or goes. What is made
//! and unmade during the recording the kernel tells as it happens.

use std::fs;
use std::io::BufReader;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nprof_object::kallsyms::start_of_text;
use nprof_object::modules::{self, Module};
use nprof_object::{ImageOffset, RuntimeAddress};
use nprof_stream::ImageKind;

use crate::image::jit::runtime_code::{CodeRegions, RuntimeFunction, RuntimeFunctions};
use crate::image::kernel::kallsyms::Symbols;
use crate::perf::record::Ksymbol;

/// How long what was read of the modules holds.
const MODULES_HOLD: Duration = Duration::from_millis(200);

/// The kernel itself or a module of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelImage {
    pub(crate) kind: ImageKind,
    /// `[kernel]` or `[name]`.
    pub(crate) name: Vec<u8>,
    /// Empty when it could not be read.
    pub(crate) build_id: Vec<u8>,
    /// The address its offsets count from; 0 when the kernel does not tell.
    pub(crate) base: u64,
    /// Bytes; 0 for the kernel itself where its end is not known.
    size: u64,
}

/// What an address is in.
#[derive(Clone, Debug)]
pub(crate) enum KernelLocation {
    /// The part of this number.
    Image(usize),
    Function(Rc<RuntimeFunction>),
}

/// The running kernel.
#[derive(Debug)]
pub(crate) struct RunningKernel {
    /// All parts ever seen; the first is the kernel itself.
    parts: Vec<KernelImage>,
    /// The modules that are loaded: their base and number, sorted.
    modules: Vec<(u64, usize)>,
    /// What they were read from.
    modules_text: String,
    /// The code made at run time.
    made: CodeRegions,
    symbols_read: bool,
    modules_read: Option<Instant>,
}

impl RunningKernel {
    /// Asks the running kernel. What cannot be read stays unknown.
    pub(crate) fn running() -> Self {
        let symbols = fs::File::open("/proc/kallsyms").ok();
        let base = symbols.and_then(|file| start_of_text(BufReader::new(file)));
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        let memory = fs::read_to_string("/proc/iomem").unwrap_or_default();
        Self::new(base.map_or(0, |base| base.0), text_size(&memory).unwrap_or(0), &notes)
    }

    /// With the address of `_stext`, the size of the text from there, and the kernel's notes.
    fn new(base: u64, size: u64, notes: &[u8]) -> Self {
        let (kind, name) = (ImageKind::Kernel, b"[kernel]".to_vec());
        let kernel = KernelImage { kind, name, build_id: build_id(notes), base, size };
        Self {
            parts: vec![kernel],
            modules: Vec::new(),
            modules_text: String::new(),
            made: CodeRegions::default(),
            symbols_read: false,
            modules_read: None,
        }
    }

    /// What an address lies in, and the offset in it. What is in nothing we know of is the
    /// kernel's.
    pub(crate) fn find(
        &mut self,
        RuntimeAddress(address): RuntimeAddress,
        functions: &RuntimeFunctions,
    ) -> (KernelLocation, ImageOffset) {
        let kernel = &self.parts[0];
        let offset = address.wrapping_sub(kernel.base);
        let outside = kernel.base == 0 || offset >= kernel.size;
        let found = outside.then(|| self.outside(address, functions)).flatten();
        let (place, offset) = found.unwrap_or((KernelLocation::Image(0), offset));
        (place, ImageOffset(offset))
    }

    /// What an address is in that is not the kernel's own text.
    fn outside(
        &mut self,
        address: u64,
        functions: &RuntimeFunctions,
    ) -> Option<(KernelLocation, u64)> {
        let made = |(function, offset): (&Rc<RuntimeFunction>, u64)| {
            (KernelLocation::Function(function.clone()), offset)
        };
        if let Some(found) = self.made.find(address).map(made) {
            return Some(found);
        }
        if self.parts[0].base != 0 {
            self.ask(functions);
        }
        if let Some(found) = self.made.find(address).map(made) {
            return Some(found);
        }
        // A module's size is that of all its memory, which need not be in one piece (Linux 6.4);
        // its base is where its text is.
        let behind = self.modules.partition_point(|&(base, _)| base <= address);
        let &(base, number) = self.modules.get(behind.checked_sub(1)?)?;
        let offset = address - base;
        (offset < self.parts[number].size).then_some((KernelLocation::Image(number), offset))
    }

    /// Reads what may have changed, or was not read yet.
    fn ask(&mut self, functions: &RuntimeFunctions) {
        if !std::mem::replace(&mut self.symbols_read, true)
            && let Ok(file) = fs::File::open("/proc/kallsyms")
        {
            self.take_symbols(&Symbols::read(BufReader::new(file)), functions);
        }
        if self.modules_read.is_none_or(|read| read.elapsed() >= MODULES_HOLD) {
            self.modules_read = Some(Instant::now());
            let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
            self.take_modules(modules, module_build_id);
        }
    }

    fn take_symbols(&mut self, symbols: &Symbols, functions: &RuntimeFunctions) {
        let kernel = &mut self.parts[0];
        let size = symbols.text_end.and_then(|end| end.checked_sub(kernel.base));
        kernel.size = kernel.size.max(size.unwrap_or(0));
        for (start, size, name) in &symbols.made {
            // What the kernel told of is known better.
            if self.made.find(*start).is_none()
                && let Some(function) = functions.make(name, *start, None)
            {
                self.made.insert(function, *size);
            }
        }
    }

    /// Takes in the text of /proc/modules. `build_id` is asked for the build IDs of those that
    /// are new.
    fn take_modules(&mut self, modules: String, build_id: impl Fn(&str) -> Vec<u8>) {
        if modules == self.modules_text {
            return;
        }
        self.modules.clear();
        let loaded = modules::modules(modules.as_bytes());
        // The base is 0 where the kernel hides its addresses.
        for Module { name, base, size } in loaded.filter(|module| module.base.0 != 0) {
            let base = base.0;
            let build_id = build_id(&String::from_utf8_lossy(name));
            let name = [b"[", name, b"]"].concat();
            let part = KernelImage { kind: ImageKind::Module, name, build_id, base, size };
            let known = self.parts.iter().position(|known| *known == part);
            self.modules.push((base, known.unwrap_or(self.parts.len())));
            if known.is_none() {
                self.parts.push(part);
            }
        }
        self.modules.sort_unstable();
        self.modules_text = modules;
    }

    /// The kernel made code, or unmade it.
    pub(crate) fn changed(&mut self, symbol: &Ksymbol<'_>, functions: &RuntimeFunctions) {
        if symbol.is_unregistered {
            self.made.remove(symbol.start.0, symbol.size);
        } else if let Some(function) = functions.make(symbol.name, symbol.start.0, None) {
            self.made.insert(function, symbol.size);
        }
    }

    /// A part, by its number.
    pub(crate) fn part(&self, number: usize) -> &KernelImage {
        &self.parts[number]
    }
}

/// The size of the kernel's text in the text of /proc/iomem; `None` when it is hidden.
fn text_size(memory: &str) -> Option<u64> {
    let range =
        memory.lines().find_map(|line| line.trim().strip_suffix(" : RunningKernel code"))?;
    let (first, last) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    let size = address(last)?.checked_sub(address(first)?)?;
    (size > 0).then_some(size + 1)
}

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
    const MADE: u64 = 0xffff_ffff_c000_0000;

    /// Where an address is: the part's or function's name, and the offset.
    fn place(
        kernel: &mut RunningKernel,
        functions: &RuntimeFunctions,
        address: u64,
    ) -> (String, u64) {
        let (place, offset) = kernel.find(RuntimeAddress(address), functions);
        let offset = offset.0;
        let name = match place {
            KernelLocation::Image(number) => kernel.part(number).name.clone(),
            KernelLocation::Function(function) => function.name.to_vec(),
        };
        (String::from_utf8(name).expect("UTF-8"), offset)
    }

    /// A kernel that has been asked.
    fn asked(size: u64) -> RunningKernel {
        let mut kernel = RunningKernel::new(BASE, size, NOTES);
        kernel.symbols_read = true;
        kernel.modules_read = Some(Instant::now() + Duration::from_secs(3600));
        kernel
    }

    fn at(name: &str, offset: u64) -> (String, u64) {
        (name.to_owned(), offset)
    }

    #[test]
    fn an_address_is_in_the_kernel_or_the_nearest_module_before_it() {
        let (mut kernel, functions) = (asked(0x100_0000), RuntimeFunctions::default());
        // The first one's size is that of its data, too, and reaches into the second one's text.
        let modules = format!(
            "first 65536 2 second, Live {MADE:#x}\n\
             second 4096 0 - Live {:#x}\n\
             hidden 4096 0 - Live 0x0000000000000000\nbroken\n\n",
            MADE + 0x2000
        );
        kernel.take_modules(modules, |name| name.as_bytes()[..1].to_vec());
        assert_eq!(place(&mut kernel, &functions, MADE + 0x1010), at("[first]", 0x1010));
        assert_eq!(place(&mut kernel, &functions, MADE + 0x2010), at("[second]", 0x10));
        assert_eq!(place(&mut kernel, &functions, MADE + 0x3000), at("[kernel]", 0x3f00_3000));
        assert_eq!(place(&mut kernel, &functions, BASE + 0x123), at("[kernel]", 0x123));
        assert_eq!((kernel.parts.len(), kernel.part(0).build_id.len()), (3, 3));
        assert_eq!(kernel.part(2).build_id, b"s");
    }

    #[test]
    fn modules_that_come_back_are_the_same_and_others_are_new() {
        let (mut kernel, functions) = (asked(0x100_0000), RuntimeFunctions::default());
        let line = |name| format!("{name} 4096 0 - Live {MADE:#x}\n");
        for name in ["one", "two", "one"] {
            kernel.take_modules(line(name), |_| Vec::new());
            assert_eq!(place(&mut kernel, &functions, MADE), at(&format!("[{name}]"), 0));
        }
        kernel.take_modules(String::new(), |_| Vec::new());
        assert_eq!(place(&mut kernel, &functions, MADE).0, "[kernel]");
        assert_eq!(kernel.parts.len(), 3);
    }

    #[test]
    fn code_that_is_made_is_there_until_it_is_unmade() {
        let (mut kernel, functions) = (asked(0x100_0000), RuntimeFunctions::default());
        let symbols = Symbols {
            text_end: Some(BASE + 0x200_0000),
            made: vec![(MADE, 64, b"bpf_prog_1".to_vec())],
        };
        kernel.take_symbols(&symbols, &functions);
        assert_eq!(kernel.part(0).size, 0x200_0000);
        assert_eq!(place(&mut kernel, &functions, MADE + 63), at("bpf_prog_1", 63));
        let symbol = |is_unregistered| Ksymbol {
            start: RuntimeAddress(MADE),
            size: 32,
            is_unregistered,
            name: b"bpf_prog_2",
        };
        kernel.changed(&symbol(false), &functions);
        assert_eq!(place(&mut kernel, &functions, MADE + 1), at("bpf_prog_2", 1));
        kernel.take_symbols(&symbols, &functions);
        assert_eq!(place(&mut kernel, &functions, MADE + 1), at("bpf_prog_2", 1));
        kernel.changed(&symbol(true), &functions);
        assert_eq!(place(&mut kernel, &functions, MADE + 1).0, "[kernel]");
    }

    #[test]
    fn hidden_addresses_stay_what_they_are() {
        let (mut kernel, functions) = (RunningKernel::new(0, 0, &[]), RuntimeFunctions::default());
        assert_eq!(place(&mut kernel, &functions, BASE), at("[kernel]", BASE));
        assert!(!kernel.symbols_read, "there is nothing to ask for");
        let symbol = Ksymbol {
            start: RuntimeAddress(MADE),
            size: 32,
            is_unregistered: false,
            name: b"bpf_prog_1",
        };
        kernel.changed(&symbol, &functions);
        assert_eq!(place(&mut kernel, &functions, MADE + 1), at("bpf_prog_1", 1));
    }

    #[test]
    fn the_size_of_the_text_is_that_of_its_memory() {
        let memory = "00000000-00000fff : Reserved\n00100000-7fffffff : System RAM\n  \
                      01000000-02209987 : RunningKernel code\n  02400000-02e09fff : RunningKernel rodata\n";
        assert_eq!(text_size(memory), Some(0x120_9988));
        assert_eq!(text_size("00000000-00000000 : RunningKernel code\n"), None);
        assert_eq!(text_size("2-1 : RunningKernel code\nx"), None);
        assert_eq!(text_size(""), None);
    }

    #[test]
    fn wild_notes_have_no_build_id() {
        for length in 0..NOTES.len() - 1 {
            assert!(build_id(&NOTES[..length]).is_empty());
        }
        assert!(build_id(&[0xff; 40]).is_empty());
        assert!(build_id(&[0; 40]).is_empty());
    }
}
