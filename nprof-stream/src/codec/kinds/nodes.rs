//! Branches of the calling context tree: lists of frames.

use super::encoded::{Encoded, Scratch};
use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::field::text::{TextFields, push_number};
use crate::record::error::Malformed;
use crate::record::limits;
use crate::record::number::push_varint;
use crate::record::*;

impl<'a> Encoded<'a> for Nodes<'a> {
    fn push_binary(&self, out: &mut Vec<u8>, _: &mut BlockState) {
        push_varint(out, u64::from(self.first.0));
        push_varint(out, u64::from(self.parent.0));
        for frame in self.frames {
            push_varint(out, u64::from(frame.0));
        }
    }

    fn read_binary(
        from: Bytes<'a>,
        _: &mut BlockState,
        scratch: &'a mut Scratch,
    ) -> Result<Self, Malformed> {
        read_nodes(from, &mut scratch.frames)
    }

    fn push_text(&self, out: &mut Vec<u8>) {
        push_number(out, u64::from(self.first.0));
        push_number(out, u64::from(self.parent.0));
        for frame in self.frames {
            push_number(out, u64::from(frame.0));
        }
    }

    fn read_text(mut from: TextFields<'a>, scratch: &'a mut Scratch) -> Result<Self, Malformed> {
        let (first, parent) = (from.id()?, from.id_or_none()?);
        let frames = &mut scratch.frames;
        frames.clear();
        while from.rest.is_some() {
            // A line may have 4 MiB, so that its length does not bound the list.
            if frames.len() == limits::DEPTH {
                return Err(Malformed::Limit(limits::DEPTH));
            }
            frames.push(FrameId(from.id()?));
        }
        check_nodes(first, parent, frames.len())?;
        Ok(Self { first: NodeId(first), parent: NodeId(parent), frames })
    }
}

/// Decodes the body of a branch of nodes.
pub(crate) fn read_nodes<'a>(
    mut from: Bytes<'a>,
    frames: &'a mut Vec<FrameId>,
) -> Result<Nodes<'a>, Malformed> {
    let first = from.id()?;
    let parent = from.id_or_none()?;
    frames.clear();
    while !from.0.is_empty() {
        // Before the push, so that a hostile body cannot make the list longer.
        if frames.len() == limits::DEPTH {
            return Err(Malformed::Limit(limits::DEPTH));
        }
        frames.push(FrameId(from.id()?));
    }
    check_nodes(first, parent, frames.len())?;
    Ok(Nodes { first: NodeId(first), parent: NodeId(parent), frames })
}

/// Checks that nodes come after their parent, which excludes cycles, and stay within the limit.
fn check_nodes(first: u32, parent: u32, count: usize) -> Result<(), Malformed> {
    if count == 0 {
        return Err(Malformed::Short);
    }
    if parent >= first || first as usize + count - 1 > limits::ID as usize {
        return Err(Malformed::Field("node ids above their parent's and within the limit"));
    }
    Ok(())
}

/// Decodes a body a second time: its list is still in the scratch.
pub(crate) fn read_nodes_again<'a>(
    mut from: Bytes<'a>,
    scratch: &'a Scratch,
) -> Result<Nodes<'a>, Malformed> {
    // The first pass has checked the ids and filled the list.
    let (first, parent) = (NodeId(from.id()?), NodeId(from.id_or_none()?));
    Ok(Nodes { first, parent, frames: &scratch.frames })
}
