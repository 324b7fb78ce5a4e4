//! The code of one process, for the unwinder.

use nprof_object::RuntimeAddress;

use crate::arch::rule::AnalyzedRule;
use crate::convert::address_space::AddressSpace;
use crate::image::table::ImageTable;
use crate::unwind::{CodeMap, FrameAddress, UnwindInfo};

/// The code of one process: its mappings, and the images they map.
#[derive(Debug)]
pub(crate) struct ProcessCode<'a> {
    pub(crate) maps: &'a AddressSpace,
    pub(crate) images: &'a mut ImageTable,
}

impl CodeMap for ProcessCode<'_> {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        match self.maps.find(address) {
            Some((image, offset)) => self.images.unwind_info(image, offset),
            None => UnwindInfo::Unmapped,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        match self.maps.find(address.address_for_lookup()) {
            Some((image, offset)) => self.images.analyze(image, offset, address),
            None => AnalyzedRule::Unknown,
        }
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        let (image, offset) = self.maps.find(address.wrapping_sub(1))?;
        self.images.is_after_call(image, offset)
    }
}
