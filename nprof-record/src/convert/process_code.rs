//! The code of one process, for the unwinder.

use crate::convert::address_space::AddressSpace;
use crate::image::table::Images;
use crate::unwind::{AnalyzedRule, CodeMap, FrameAddress, UnwindInfo};

/// The code of one process: its mappings, and the images behind them.
#[derive(Debug)]
pub(crate) struct ProcessCode<'a> {
    pub(crate) maps: &'a AddressSpace,
    pub(crate) images: &'a mut Images,
}

impl CodeMap for ProcessCode<'_> {
    fn unwind_info(&mut self, address: u64) -> UnwindInfo {
        match self.maps.find(address) {
            Some((image, offset)) => self.images.unwind_info(image, offset),
            None => UnwindInfo::Unmapped,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        let Some((image, offset)) = self.maps.find(address.inside()) else {
            return AnalyzedRule::Unknown;
        };
        self.images.analyze(image, offset, address)
    }

    fn is_after_call(&mut self, address: u64) -> Option<bool> {
        let (image, offset) = self.maps.find(address.wrapping_sub(1))?;
        self.images.is_after_call(image, offset)
    }
}
