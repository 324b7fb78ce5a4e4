//! Functions of the kernel and its modules: their addresses in the running kernel.

use std::fs;

use anyhow::{Context, bail, ensure};
use nprof_object::{build_id, kallsyms, kprobes, modules};
use nprof_stream::number::hex;

/// The system call whose cost is measured.
const SYSTEM_CALLS: [&[u8]; 2] = [b"__x64_sys_getppid", b"__arm64_sys_getppid"];

/// The symbols of the running kernel.
#[derive(Debug)]
pub(super) struct KernelSymbols {
    kallsyms: Vec<u8>,
    modules: Vec<u8>,
}

impl KernelSymbols {
    /// Reads the symbols.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or the kernel has no probes for its functions.
    pub(super) fn read() -> anyhow::Result<Self> {
        let kallsyms = fs::read("/proc/kallsyms").context("/proc/kallsyms")?;
        if let Some(obstacle) = kprobes::obstacle(&kallsyms) {
            bail!("calls in this kernel cannot be counted: {obstacle}");
        }
        // Without modules there is no file.
        Ok(Self { kallsyms, modules: fs::read("/proc/modules").unwrap_or_default() })
    }

    /// Returns the address from which the offsets in an image count: `kernel` or the name of a module. Its
    /// build must be that of a list.
    ///
    /// # Errors
    ///
    /// If it is another build, or the address is hidden.
    pub(super) fn base(&self, image: &str, wanted: &[u8]) -> anyhow::Result<u64> {
        let (notes, base) = match image {
            "kernel" => ("/sys/kernel/notes".to_owned(), kallsyms::find(&self.kallsyms, b"_stext")),
            module => {
                let mut loaded = modules::modules(&self.modules);
                let found = loaded.find(|it| it.name == module.as_bytes());
                let found = found.context("the module is not loaded")?;
                (format!("/sys/module/{module}/notes/.note.gnu.build-id"), Some(found.base))
            }
        };
        let found = fs::read(notes).ok().and_then(|notes| build_id::of_notes(&notes));
        let found = found.unwrap_or_default();
        ensure!(
            found == wanted,
            "another build than the one of the list: it has {}, the list {}; list its functions again",
            hex(&found),
            hex(wanted)
        );
        let base = base.map_or(0, |base| base.0);
        ensure!(base != 0, "its address is hidden; run as root, or set kernel.kptr_restrict=0");
        Ok(base)
    }

    /// Returns the address of the system call whose cost is measured. None if there is none.
    pub(super) fn system_call(&self) -> Option<u64> {
        let found = SYSTEM_CALLS.iter().find_map(|name| kallsyms::find(&self.kallsyms, name));
        found.map(|address| address.0)
    }
}

/// Returns the name in brackets of the kernel or a module. None for other paths.
pub(super) fn image_name(path: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(path.strip_prefix(b"[")?.strip_suffix(b"]")?).ok()?;
    // It becomes part of a path.
    Some(name).filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_in_brackets_is_the_kernel_or_a_module() {
        assert_eq!(image_name(b"[kernel]"), Some("kernel"));
        assert_eq!(image_name(b"[nf_tables]"), Some("nf_tables"));
        for other in [&b"/bin/[a]"[..], b"[]", b"[../a]", b"[.]", b"[a", b"[a/b]", b"[\xff]"] {
            assert_eq!(image_name(other), None);
        }
    }

    #[test]
    fn modules_of_another_build_are_refused() {
        let modules = b"ext4 4096 1 - Live 0xffffffffc0000000\n".to_vec();
        let symbols = KernelSymbols { kallsyms: Vec::new(), modules };
        let error = |image| symbols.base(image, &[1]).expect_err("no base").to_string();
        assert!(error("xfs").contains("not loaded"));
        assert!(error("ext4").contains("another build"));
    }
}
