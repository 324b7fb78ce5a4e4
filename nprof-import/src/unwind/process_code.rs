//! The code of one process, for the unwinder.

use std::rc::Rc;

use nprof_object::{FileOffset, RuntimeAddress};
use nprof_stream::ImageKind;
use nprof_unwind::arch::Architecture;
use nprof_unwind::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use nprof_unwind::image::file_code::FileCode;
use nprof_unwind::unwind::{CodeMap, FrameAddress, UnwindInfo};

use super::files::ImageFiles;
use crate::output::ImageDef;

/// An image with the inode of its file, None if that is unknown.
pub(crate) type ImageWithInode<'a> = (&'a ImageDef, Option<u64>);

/// The code of one process.
pub(crate) struct ProcessCode<'a> {
    /// Returns the image of an address by its number, and the offset in it. None if no code is mapped there.
    pub(crate) find: &'a dyn Fn(u64) -> Option<(u32, u64)>,
    /// Returns an image by its number.
    pub(crate) image: &'a dyn Fn(u32) -> ImageWithInode<'a>,
    pub(crate) files: &'a mut ImageFiles,
}

impl ProcessCode<'_> {
    /// Returns the code of the file at an address, and the offset in it. None if nothing is mapped there, or the
    /// file cannot be used.
    fn code(&mut self, address: RuntimeAddress) -> Option<(&mut FileCode, FileOffset)> {
        let (number, offset) = (self.find)(address.0)?;
        let (image, inode) = (self.image)(number);
        if !matches!(image.kind, ImageKind::Elf | ImageKind::Vdso) {
            return None;
        }
        Some((self.files.code(number, image, inode)?, FileOffset(offset)))
    }
}

impl<A: Architecture> CodeMap<A> for ProcessCode<'_> {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        if (self.find)(address.0).is_none() {
            return UnwindInfo::Unmapped;
        }
        match self.code(address) {
            Some((code, offset)) => code.unwind_info(offset),
            None => UnwindInfo::NoTable,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        match self.code(address.address_for_lookup()) {
            Some((code, offset)) => code.analyze(offset, address),
            None => AnalyzedRule::Unknown,
        }
    }

    fn rule_since_call(
        &mut self,
        call_end: RuntimeAddress,
        address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        let call = call_end.wrapping_sub(1);
        let (caller, call) = (self.find)(call.0)?;
        let (image, _) = (self.find)(address.address_for_lookup().0)?;
        // The target of a call into another image is in a table that the dynamic linker fills in.
        if caller != image {
            return None;
        }
        let (code, offset) = self.code(address.address_for_lookup())?;
        code.rule_since_call(FileOffset(call), offset, address)
    }

    fn rules_since_prologues(&mut self, address: FrameAddress) -> Rc<[UnwindRule]> {
        match self.code(address.address_for_lookup()) {
            Some((code, offset)) => code.rules_since_prologues(offset, address),
            None => Rc::default(),
        }
    }

    fn is_generated(&self, address: RuntimeAddress) -> bool {
        (self.find)(address.0)
            .is_some_and(|(number, _)| (self.image)(number).0.kind == ImageKind::Anonymous)
    }

    fn generated_frame(&mut self, address: RuntimeAddress) -> GeneratedFrame {
        match self.code(address) {
            Some((code, offset)) => code.generated_frame(offset),
            None => GeneratedFrame::Unknown,
        }
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        let (code, offset) = self.code(address.wrapping_sub(1))?;
        code.is_after_call(offset)
    }
}
