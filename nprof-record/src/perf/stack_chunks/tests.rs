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

#[test]
fn chunks_are_joined_around_holes_and_the_gap() {
    let mut pending = ChunkAssembler::default();
    for (start, bytes) in [(SP + 64, [1, 2]), (SP + 66, [3, 4]), (SP + 90, [5, 6])] {
        pending.take(OWNER, &chunk(start, &bytes));
    }
    pending.take(OWNER, &chunk(SP + 92, &[7]));
    pending.take(OWNER, &chunk(SP + 80, &[8]));
    let raw = raw([9 | u64::from(AFTER_GAP), SP, SP + 99, 1], &[9]);
    pending.take(OWNER, &StackChunk::read(&raw).expect("a chunk"));
    let places = [(SP + 64, 0), (SP + 90, 4), (SP + 99, 7)];
    let starts = places.map(|(address, position)| SegmentStart { address, position });
    let gap = (SP + 93, SP + 99);
    let segments = StackSegments { bytes: &[1, 2, 3, 4, 5, 6, 7, 9], starts: &starts, gap };
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP)), ExtraStack { thread: 9, segments });
    assert_eq!(segments.end(), SP + 100);
}

#[test]
fn chunks_go_only_to_their_sample() {
    let nothing = ExtraStack::default();
    let mut pending = ChunkAssembler::default();
    assert_eq!(pending.extra_stack_for(OWNER, Some(0)), nothing);
    pending.take(OWNER, &chunk(SP + 64, &[1, 2]));
    let others = [SampleKey { tid: 8, ..OWNER }, SampleKey { ip: 0x1235, ..OWNER }];
    assert!(others.iter().all(|&other| pending.extra_stack_for(other, Some(SP)) == nothing));
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP + 8)), nothing);
    assert_eq!(pending.extra_stack_for(OWNER, None), nothing);
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP)).segments.bytes, [1, 2]);
    // Another thread's first part: those before have lost their sample.
    pending.take(SampleKey { tid: 8, ..OWNER }, &chunk(SP + 66, &[3]));
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP)), nothing);
    pending.take(OWNER, &chunk(SP + 67, &[4]));
    assert_eq!(pending.extra_stack_for(OWNER, Some(SP)).segments.bytes, [4]);
    pending.clear();
    assert!(pending.is_empty() && pending.extra_stack_for(OWNER, Some(SP)) == nothing);
}
