//! The code of one process, for the unwinder.

use std::rc::Rc;

use nprof_object::RuntimeAddress;
use nprof_unwind::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use nprof_unwind::unwind::{CodeMap, CompactRule, FrameAddress, UnwindInfo};

use crate::convert::address_space::AddressSpace;
use crate::convert::rule_cache::{CachedRule, RuleCache};
use crate::image::jit::growing_file::OpenFileBudget;
use crate::image::jit::process_jit::ProcessJit;
use crate::image::jit::runtime_code::RuntimeFunctions;
use crate::image::jit::runtime_unwinding::RuntimeRules;
use crate::image::key::ImageIndex;
use crate::image::table::ImageTable;
use crate::os::task_serial::ProcessId;

/// The code of one process: its mappings, and the images they map.
#[derive(Debug)]
pub(crate) struct ProcessCode<'a> {
    pub(crate) maps: &'a AddressSpace,
    pub(crate) images: &'a mut ImageTable,
    /// The code that it generated at run time; None where only frames of files matter.
    pub(crate) runtime: Option<RuntimeCode<'a>>,
    /// The cached rules, with the number of the state of the address space; None without a cache.
    pub(crate) rules: Option<(&'a mut RuleCache, u64)>,
}

/// The code that a process generated at run time, as it was at the time of a sample.
#[derive(Debug)]
pub(crate) struct RuntimeCode<'a> {
    pub(crate) owner: ProcessId,
    pub(crate) time_ns: u64,
    pub(crate) jit: &'a mut ProcessJit,
    pub(crate) rules: &'a mut RuntimeRules,
    pub(crate) functions: &'a RuntimeFunctions,
    pub(crate) files: &'a OpenFileBudget,
}

impl RuntimeCode<'_> {
    /// Returns the rule at an address. None if its function has no unwind table, or none that was
    /// read by now.
    fn rule(&mut self, address: RuntimeAddress) -> Option<Rc<UnwindRule>> {
        self.jit.read_until(self.owner, self.time_ns, self.functions, self.files);
        let (function, offset) = self.jit.find(address.0)?;
        self.rules.rule(function.unwinding.as_ref()?, offset)
    }
}

impl ProcessCode<'_> {
    /// Returns the cached rule at an address, and notes that its image is used. None if it is not
    /// cached.
    #[inline]
    fn cached_rule(&mut self, address: RuntimeAddress) -> Option<&CachedRule> {
        let (rules, space) = self.rules.as_mut()?;
        let cached = rules.get(*space, address)?;
        // Once in a batch: the time of the last use decides which tables are dropped.
        let batch = self.images.batch();
        if cached.batch != batch {
            cached.batch = batch;
            self.images.note_use(cached.image);
        }
        Some(cached)
    }

    /// Returns the unwind information for the code at an address of an image without a table there.
    fn runtime_info(&mut self, image: ImageIndex, address: RuntimeAddress) -> UnwindInfo {
        let runtime = self.runtime.as_mut().filter(|_| self.images.may_contain_jit(image));
        let rule = runtime.and_then(|runtime| runtime.rule(address));
        rule.map_or(UnwindInfo::NoTable, UnwindInfo::Rule)
    }
}

impl CodeMap for ProcessCode<'_> {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        if let Some(cached) = self.cached_rule(address) {
            return UnwindInfo::Rule(cached.rule.clone());
        }
        let Some((image, offset)) = self.maps.find(address) else { return UnwindInfo::Unmapped };
        match self.images.unwind_info(image, offset) {
            // Its code may change.
            UnwindInfo::NoTable => self.runtime_info(image, address),
            UnwindInfo::Rule(rule) => {
                if let Some((rules, space)) = &mut self.rules {
                    let used = (image, self.images.batch());
                    rules.insert(*space, address, rule.clone(), used);
                }
                UnwindInfo::Rule(rule)
            }
            info => info,
        }
    }

    #[inline]
    fn compact_rule(&mut self, address: FrameAddress) -> Option<CompactRule> {
        let cached = self.cached_rule(address.address_for_lookup())?;
        let may_return = matches!(cached.is_after_call, Some(None | Some(true)));
        if address.is_return() && !may_return { None } else { cached.compact }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        match self.maps.find(address.address_for_lookup()) {
            Some((image, offset)) => self.images.analyze(image, offset, address),
            None => AnalyzedRule::Unknown,
        }
    }

    fn rule_since_call(
        &mut self,
        call_end: RuntimeAddress,
        address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        let (image, offset) = self.maps.find(address.address_for_lookup())?;
        let (caller_image, call) = self.maps.find(call_end.wrapping_sub(1))?;
        // The target of a call into another image is in a table that the dynamic linker fills in.
        (image == caller_image)
            .then(|| self.images.rule_since_call(image, call, offset, address))?
    }

    fn rules_since_prologues(&mut self, address: FrameAddress) -> Rc<[UnwindRule]> {
        match self.maps.find(address.address_for_lookup()) {
            Some((image, offset)) => self.images.rules_since_prologues(image, offset, address),
            None => Rc::default(),
        }
    }

    fn is_generated(&self, address: RuntimeAddress) -> bool {
        self.maps.find(address).is_some_and(|(image, _)| self.images.is_generated(image))
    }

    fn generated_frame(&mut self, address: RuntimeAddress) -> GeneratedFrame {
        match self.maps.find(address) {
            Some((image, offset)) => self.images.generated_frame(image, offset),
            None => GeneratedFrame::Unknown,
        }
    }

    fn has_changed(&mut self, address: RuntimeAddress) -> bool {
        let found = self.maps.find(address);
        found.is_some_and(|(image, offset)| self.images.has_changed(image, offset))
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        let byte = address.wrapping_sub(1);
        // The last frame of a stack has no compact rule, and is looked up for each sample.
        if let Some((rules, space)) = &mut self.rules
            && let Some(cached) = rules.get(*space, byte)
            && let Some(is_after_call) = cached.is_after_call
        {
            return is_after_call;
        }
        // Of most words on a stack.
        let Some((image, offset)) = self.maps.find(byte) else { return Some(false) };
        let is_after_call = self.images.is_after_call(image, offset);
        if let Some((rules, space)) = &mut self.rules
            && let Some(cached) = rules.get(*space, byte)
        {
            cached.is_after_call = Some(is_after_call);
        }
        is_after_call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    use nprof_object::{FileOffset, ImageOffset};
    use nprof_unwind::image::elf::Elf;
    use object::ReadCache;

    use crate::convert::address_space::Mapping;
    use crate::os::code_mapping::{Identity, Mmap};
    use crate::os::task_serial::TaskSerial;

    #[test]
    fn rule_from_the_cache_counts_as_use_of_its_image_once_in_a_batch() {
        let directory = tempfile::tempdir().expect("a directory");
        let own = std::env::current_exe().expect("a path");
        let elf = Elf::read(&ReadCache::new(File::open(&own).expect("this program")));
        let inside = elf.and_then(|elf| elf.entry_offset()).expect("an entry").0 + 1;
        let (mut images, mut maps) = (ImageTable::default(), AddressSpace::default());
        let mut mapped = Vec::new();
        for (number, name) in ["a", "b"].into_iter().enumerate() {
            let path = directory.path().join(name);
            std::fs::copy(&own, &path).expect("copied");
            let inode = path.metadata().expect("it").ino();
            let start = RuntimeAddress((number as u64 + 1) << 40);
            let mmap = Mmap {
                pid: std::process::id(),
                start,
                length: 1 << 32,
                offset: FileOffset(0),
                identity: Identity { inode, ..Identity::default() },
                path: path.as_os_str().as_bytes().into(),
            };
            let (image, offset) = images.image_of(&mmap, TaskSerial(1), u64::MAX);
            let end = RuntimeAddress(start.0 + mmap.length);
            maps.map(Mapping { start, end, offset, image });
            assert_eq!(offset, ImageOffset(0));
            mapped.push((image, RuntimeAddress(start.0 + inside)));
        }
        let mut rules = RuleCache::default();
        let mut walk = |images: &mut ImageTable, number: usize| {
            let rules = Some((&mut rules, 1));
            let mut code = ProcessCode { maps: &maps, images, runtime: None, rules };
            let (image, address) = mapped[number];
            assert!(matches!(code.unwind_info(address), UnwindInfo::Rule(_)));
            images.last_use(image)
        };
        let first = walk(&mut images, 0);
        let second = walk(&mut images, 1);
        assert!(second > first);
        assert_eq!(walk(&mut images, 0), first, "the same batch");
        images.end_batch();
        assert!(walk(&mut images, 0) > second);
    }
}
