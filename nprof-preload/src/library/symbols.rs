//! Finds symbols of the loaded objects.
//!
//! dlsym(3) would serve, but it allocates, changes the error of dlerror(3), and is in a library of its own before
//! glibc 2.34, which a program may not have loaded. dl_iterate_phdr(3) is in every C library.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;

use super::arch;

// Weak: a program without any C library must still start.
global_asm!(".weak dl_iterate_phdr");

/// The start of dl_phdr_info.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

/// Elf64_Phdr.
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_bytes: usize,
    memory_bytes: usize,
    alignment: usize,
}

/// Elf64_Sym.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The tables of an object for finding symbols.
struct Tables {
    base: usize,
    symbols: *const Symbol,
    strings: *const c_char,
    gnu_hash: *const u32,
    hash: *const u32,
    versions: *const u16,
}

/// The objects to search, in the order in which they were loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    AfterThisLibrary,
    Program,
}

struct Search<'a> {
    name: &'a CStr,
    scope: Scope,
    passed: bool,
    found: usize,
}

/// The functions of which a hidden version is the one that programs use, too: libc_malloc_debug.so of glibc 2.34 and
/// later has no others, with the version that programs refer to. No C library has two versions of these.
const ALLOCATION: [&CStr; 11] = [
    c"malloc",
    c"free",
    c"calloc",
    c"realloc",
    c"reallocarray",
    c"aligned_alloc",
    c"memalign",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
];

/// Returns the address of the definition that the program would use without this library.
pub(super) fn next(name: &CStr) -> Option<usize> {
    search(name, Scope::AfterThisLibrary)
}

/// Returns the address of the first definition.
pub(super) fn any(name: &CStr) -> Option<usize> {
    search(name, Scope::All)
}

/// Returns true if the executable itself defines the symbol.
pub(super) fn program_defines(name: &CStr) -> bool {
    search(name, Scope::Program).is_some()
}

/// Returns true if one object has both addresses.
pub(super) fn in_one_object(first: usize, second: usize) -> bool {
    struct Pair(usize, usize, bool);
    unsafe extern "C" fn visit(object: *const Object, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the arguments are those of `in_one_object` and of dl_iterate_phdr(3): valid and not shared.
        unsafe {
            let pair = &mut *data.cast::<Pair>();
            pair.2 |= contains(&*object, pair.0) && contains(&*object, pair.1);
            c_int::from(pair.2)
        }
    }
    let mut pair = Pair(first, second, false);
    iterate(visit, (&raw mut pair).cast());
    pair.2
}

type Visitor = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visitor, *mut c_void) -> c_int;

fn search(name: &CStr, scope: Scope) -> Option<usize> {
    let mut search = Search { name, scope, passed: false, found: 0 };
    iterate(visit, (&raw mut search).cast());
    (search.found != 0).then_some(search.found)
}

/// Calls a function for each loaded object, in the order in which they were loaded.
fn iterate(visitor: Visitor, data: *mut c_void) {
    let address = arch::dl_iterate_phdr();
    if address != 0 {
        // SAFETY: the C library's function has this type; it passes objects that stay loaded until the visitor
        // returns.
        unsafe {
            let iterate: Iterate = core::mem::transmute(address);
            iterate(visitor, data);
        }
    }
}

/// Looks the symbol up in one object; returns 1 to end the iteration.
unsafe extern "C" fn visit(object: *const Object, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the arguments are those of `search` and of dl_iterate_phdr(3): valid and not shared.
    unsafe {
        let (object, search) = (&*object, &mut *data.cast::<Search<'_>>());
        if search.scope == Scope::AfterThisLibrary && !search.passed {
            search.passed = contains(object, visit as *const () as usize);
            return 0;
        }
        search.found = tables(object).and_then(|tables| tables.find(search.name)).unwrap_or(0);
        c_int::from(search.found != 0 || search.scope == Scope::Program)
    }
}

/// Returns the program headers of an object.
unsafe fn headers(object: &Object) -> &[ProgramHeader] {
    // SAFETY: the dynamic linker passes the headers with their number.
    unsafe { core::slice::from_raw_parts(object.headers, usize::from(object.count)) }
}

/// Returns true if an address is in one of the object's segments.
unsafe fn contains(object: &Object, address: usize) -> bool {
    const PT_LOAD: u32 = 1;
    // SAFETY: as for `headers`.
    unsafe { headers(object) }.iter().any(|header| {
        let start = object.base.wrapping_add(header.address);
        header.kind == PT_LOAD && address.wrapping_sub(start) < header.memory_bytes
    })
}

/// Reads the dynamic section of an object.
unsafe fn tables(object: &Object) -> Option<Tables> {
    const PT_DYNAMIC: u32 = 2;
    // SAFETY: as for `headers`.
    let header = unsafe { headers(object) }.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let mut entry = object.base.wrapping_add(header.address) as *const [usize; 2];
    let mut tables = Tables {
        base: object.base,
        symbols: null(),
        strings: null(),
        gnu_hash: null(),
        hash: null(),
        versions: null(),
    };
    // glibc replaces the addresses of most objects by absolute ones, musl and the vDSO keep them relative.
    let absolute = |value: usize| if value < object.base { object.base + value } else { value };
    // SAFETY: the dynamic section is loaded and ends with an entry of tag 0.
    unsafe {
        loop {
            let [tag, value] = *entry;
            match tag {
                0 => break,
                4 => tables.hash = absolute(value) as *const u32,
                5 => tables.strings = absolute(value) as *const c_char,
                6 => tables.symbols = absolute(value) as *const Symbol,
                0x6fff_fef5 => tables.gnu_hash = absolute(value) as *const u32,
                0x6fff_fff0 => tables.versions = absolute(value) as *const u16,
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    (!tables.symbols.is_null() && !tables.strings.is_null()).then_some(tables)
}

impl Tables {
    /// Returns the address of a definition.
    unsafe fn find(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the tables are those of a loaded object.
        unsafe {
            if !self.gnu_hash.is_null() {
                self.find_gnu(name)
            } else if !self.hash.is_null() {
                self.find_sysv(name)
            } else {
                None
            }
        }
    }

    /// Searches the table of DT_GNU_HASH: sizes, a Bloom filter, buckets, chains.
    unsafe fn find_gnu(&self, name: &CStr) -> Option<usize> {
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        // SAFETY: the linker writes tables that are consistent with each other.
        unsafe {
            let [buckets, first, bloom_words, shift] = *self.gnu_hash.cast::<[u32; 4]>();
            let bloom = self.gnu_hash.add(4).cast::<u64>();
            let word = *bloom.add(((hash / 64) & (bloom_words - 1)) as usize);
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 || buckets == 0 {
                return None;
            }
            let bucket = bloom.add(bloom_words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let entry = *chain.add((index - first) as usize);
                if (entry ^ hash) >> 1 == 0
                    && let Some(address) = self.definition(index, name)
                {
                    return Some(address);
                }
                if entry & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Searches the table of DT_HASH: the numbers of buckets and symbols, buckets, chains.
    unsafe fn find_sysv(&self, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(0_u32, |hash, &byte| {
            let sum = (hash << 4).wrapping_add(u32::from(byte));
            (sum ^ (sum >> 24 & 0xf0)) & 0x0fff_ffff
        });
        // SAFETY: as in `find_gnu`.
        unsafe {
            let buckets = *self.hash;
            if buckets == 0 {
                return None;
            }
            let chain = self.hash.add(2 + buckets as usize);
            let mut index = *self.hash.add(2 + (hash % buckets) as usize);
            while index != 0 {
                if let Some(address) = self.definition(index, name) {
                    return Some(address);
                }
                index = *chain.add(index as usize);
            }
            None
        }
    }

    /// Returns the address of the symbol with an index if it is the default definition of the name.
    unsafe fn definition(&self, index: u32, name: &CStr) -> Option<usize> {
        const HIDDEN_VERSION: u16 = 0x8000;
        const STT_TLS: u8 = 6;
        const STT_GNU_IFUNC: u8 = 10;
        // SAFETY: the index is one of the hash table.
        unsafe {
            let symbol = &*self.symbols.add(index as usize);
            let kind = symbol.info & 15;
            // An executable has an undefined symbol, with the address of its PLT stub, for a function of which it
            // takes the address.
            if symbol.section == 0 || symbol.value == 0 || kind == STT_TLS {
                return None;
            }
            if CStr::from_ptr(self.strings.add(symbol.name as usize)) != name {
                return None;
            }
            let is_hidden = !self.versions.is_null()
                && *self.versions.add(index as usize) & HIDDEN_VERSION != 0;
            if is_hidden && !ALLOCATION.contains(&name) {
                return None;
            }
            let address = self.base.wrapping_add(symbol.value);
            if kind != STT_GNU_IFUNC {
                return Some(address);
            }
            // The symbol is the function that chooses the implementation. On arm64 its argument has the features of the
            // processor: without any it chooses one that runs everywhere.
            let choose: extern "C" fn(u64) -> usize = core::mem::transmute(address);
            Some(choose(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn getppid() -> c_int;
    }

    #[test]
    fn finds_function_of_the_c_library() {
        assert_eq!(any(c"getppid"), Some(getppid as *const () as usize));
    }

    #[test]
    fn finds_function_of_the_vdso() {
        assert!(any(arch::VDSO_CLOCK).is_some());
    }

    #[test]
    fn returns_none_without_definition() {
        assert_eq!(any(c"nprof_no_such_symbol"), None);
        assert!(!program_defines(c"getppid"));
    }
}
