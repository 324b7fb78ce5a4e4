//! The code of one process, for the unwinder.

use crate::convert::address_space::Maps;
use crate::image::table::Images;
use crate::unwind::{Address, Code, Followed, Look};

/// The code of one process: its mappings, and the images behind them.
#[derive(Debug)]
pub(crate) struct ProcessCode<'a> {
    pub(crate) maps: &'a Maps,
    pub(crate) images: &'a mut Images,
}

impl Code for ProcessCode<'_> {
    fn look(&mut self, address: u64) -> Look {
        match self.maps.find(address) {
            Some((image, offset)) => self.images.look(image, offset),
            None => Look::Unmapped,
        }
    }

    fn follow(&mut self, address: Address) -> Followed {
        let Some((image, offset)) = self.maps.find(address.inside()) else {
            return Followed::Nothing;
        };
        self.images.follow(image, offset, address)
    }

    fn is_behind_call(&mut self, address: u64) -> Option<bool> {
        let (image, offset) = self.maps.find(address.wrapping_sub(1))?;
        self.images.is_behind_call(image, offset)
    }
}
