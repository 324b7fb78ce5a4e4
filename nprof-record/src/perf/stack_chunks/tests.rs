use super::*;

const OWNER: SampleKey = SampleKey { tid: 7, ip: 0x1234 };
const SP: u64 = 0x7000_0000;

fn chunk(start: u64, bytes: &[u8]) -> StackChunk<'_> {
    StackChunk { thread: 9, sp: SP, start, is_after_gap: false, bytes }
}

fn raw(words: [u64; 4], bytes: &[u8]) -> Vec<u8> {
    let mut raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    raw.extend_from_slice(bytes);
    raw
}

#[test]
fn chunk_shorter_than_its_length_is_rejected() {
    let raw = raw([9, SP, SP + 64, 3], &[1, 2, 3, 0, 0]);
    assert_eq!(StackChunk::read(&raw), Some(chunk(SP + 64, &[1, 2, 3])));
    assert_eq!(StackChunk::read(&raw).map(|chunk| chunk.ring_bytes()), Some(35));
    for length in 0..35 {
        assert_eq!(StackChunk::read(&raw[..length]), None, "{length}");
    }
    let mut wild = raw.clone();
    wild[24..32].fill(0xff);
    assert_eq!(StackChunk::read(&wild), None);
    wild[24..32].fill(0);
    wild[..8].fill(0xff);
    assert_eq!(StackChunk::read(&wild), None, "no thread has that id");
}

/// Four chunks: two adjacent ones, one beyond a hole, and one beyond the gap.
fn adjacent_and_apart() -> [StackChunk<'static>; 4] {
    let after_gap = StackChunk { is_after_gap: true, ..chunk(SP + 99, &[9]) };
    [chunk(SP + 64, &[1, 2]), chunk(SP + 66, &[3, 4]), chunk(SP + 90, &[5, 6, 7]), after_gap]
}

fn places(positions: [usize; 4]) -> Vec<Segment> {
    let chunks = adjacent_and_apart().into_iter().zip(positions);
    let place = |(chunk, position): (StackChunk<'_>, usize)| Segment {
        address: chunk.start,
        position,
        length: chunk.bytes.len(),
    };
    chunks.map(place).collect()
}

#[test]
fn copied_chunks_are_joined_around_holes_and_the_gap() {
    let mut pending = ChunkAssembler::default();
    for chunk in &adjacent_and_apart() {
        pending.take(OWNER, chunk);
    }
    pending.take(OWNER, &chunk(SP + 80, &[8]));
    let (bytes, gap) = (&[1, 2, 3, 4, 5, 6, 7, 9][..], (SP + 93, SP + 99));
    let segments = StackSegments { bytes, places: &places([0, 2, 4, 7]), gap };
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP), &[]), ExtraStack { thread: 9, segments });
    assert_eq!(segments.end(), SP + 100);
}

#[test]
fn kept_chunks_are_the_same_stack_as_copied_ones() {
    let ring = [0, 1, 2, 0, 3, 4, 0, 5, 6, 7, 0, 9];
    let mut pending = ChunkAssembler::default();
    for (chunk, position) in adjacent_and_apart().iter().zip([1, 4, 7, 11]) {
        assert!(pending.keep(OWNER, chunk, position));
    }
    let gap = (SP + 93, SP + 99);
    let segments = StackSegments { bytes: &ring, places: &places([1, 4, 7, 11]), gap };
    let kept = ExtraStack { thread: 9, segments };
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP), &ring), kept);
    // A chunk that cannot be kept: the others are copied before it.
    let other = SampleKey { tid: 8, ..OWNER };
    assert!(!pending.keep(other, &chunk(SP + 101, &[8]), 12), "of another sample");
    pending.copy_kept(&ring);
    assert!(!pending.keep(OWNER, &chunk(SP + 101, &[8]), 12), "others were copied");
    let bytes = [1, 2, 3, 4, 5, 6, 7, 9];
    let segments = StackSegments { bytes: &bytes, places: &places([0, 2, 4, 7]), gap };
    let copied = ExtraStack { thread: 9, segments };
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP), &[]), copied);
    pending.copy_kept(&[]);
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP), &[]), copied, "nothing is left to copy");
    pending.clear();
    assert!(pending.keep(OWNER, &chunk(SP + 64, &[1, 2]), 1));
}

#[test]
fn chunks_go_only_to_their_sample() {
    let nothing = ExtraStack::default();
    let mut pending = ChunkAssembler::default();
    assert_eq!(pending.extra_stack_for(OWNER, Some(0), &[]), nothing);
    pending.take(OWNER, &chunk(SP + 64, &[1, 2]));
    let others = [SampleKey { tid: 8, ..OWNER }, SampleKey { ip: 0x1235, ..OWNER }];
    let of = |pending: &ChunkAssembler, owner, sp| {
        let extra = pending.extra_stack_for(owner, sp, &[]);
        (extra != nothing).then(|| extra.segments.bytes.to_vec())
    };
    assert!(others.iter().all(|&other| of(&pending, other, Some(SP)).is_none()));
    assert_eq!(of(&pending, OWNER, Some(SP + 8)), None);
    assert_eq!(of(&pending, OWNER, None), None);
    assert_eq!(of(&pending, OWNER, Some(SP)), Some(vec![1, 2]));
    // Another thread's first part: those before have lost their sample.
    pending.take(SampleKey { tid: 8, ..OWNER }, &chunk(SP + 66, &[3]));
    assert_eq!(of(&pending, OWNER, Some(SP)), None);
    pending.take(OWNER, &chunk(SP + 67, &[4]));
    assert_eq!(of(&pending, OWNER, Some(SP)), Some(vec![4]));
    pending.clear();
    assert!(pending.is_empty() && of(&pending, OWNER, Some(SP)).is_none());
}
