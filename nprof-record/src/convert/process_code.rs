//! The code of one process, for the unwinder.

use std::rc::Rc;

use nprof_object::RuntimeAddress;

use crate::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use crate::convert::address_space::AddressSpace;
use crate::convert::rule_cache::RuleCache;
use crate::image::jit::growing_file::OpenFileBudget;
use crate::image::jit::process_jit::ProcessJit;
use crate::image::jit::runtime_code::RuntimeFunctions;
use crate::image::jit::runtime_unwinding::RuntimeRules;
use crate::image::key::ImageIndex;
use crate::image::table::ImageTable;
use crate::os::task_serial::ProcessId;
use crate::unwind::{CodeMap, FrameAddress, UnwindInfo};

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
    /// Returns the unwind information for the code at an address of an image without a table there.
    fn runtime_info(&mut self, image: ImageIndex, address: RuntimeAddress) -> UnwindInfo {
        let runtime = self.runtime.as_mut().filter(|_| self.images.may_contain_jit(image));
        let rule = runtime.and_then(|runtime| runtime.rule(address));
        rule.map_or(UnwindInfo::NoTable, UnwindInfo::Rule)
    }
}

impl CodeMap for ProcessCode<'_> {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        if let Some((rules, space)) = &self.rules
            && let Some(rule) = rules.get(*space, address)
        {
            return UnwindInfo::Rule(rule);
        }
        let Some((image, offset)) = self.maps.find(address) else { return UnwindInfo::Unmapped };
        match self.images.unwind_info(image, offset) {
            // Its code may change.
            UnwindInfo::NoTable => self.runtime_info(image, address),
            UnwindInfo::Rule(rule) => {
                if let Some((rules, space)) = &mut self.rules {
                    rules.insert(*space, address, rule.clone());
                }
                UnwindInfo::Rule(rule)
            }
            info => info,
        }
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
        let (image, offset) = self.maps.find(address.wrapping_sub(1))?;
        self.images.is_after_call(image, offset)
    }
}
