use super::*;

const OWNER: Owner = Owner { tid: 7, ip: 0x1234 };
const SP: u64 = 0x7000_0000;

fn part(start: u64, bytes: &[u8]) -> Part<'_> {
    Part { thread: 9, sp: SP, start, bytes }
}

fn raw(words: [u64; 4], bytes: &[u8]) -> Vec<u8> {
    let mut raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    raw.extend_from_slice(bytes);
    raw
}

#[test]
fn a_part_is_as_long_as_it_says() {
    let raw = raw([9, SP, SP + 64, 3], &[1, 2, 3, 0, 0]);
    assert_eq!(Part::read(&raw), Some(part(SP + 64, &[1, 2, 3])));
    assert_eq!(Part::read(&raw).map(|part| part.counted()), Some(35));
    for length in 0..35 {
        assert_eq!(Part::read(&raw[..length]), None, "{length}");
    }
    let mut wild = raw.clone();
    wild[24..32].fill(0xff);
    assert_eq!(Part::read(&wild), None);
    wild[24..32].fill(0);
    wild[..8].fill(0xff);
    assert_eq!(Part::read(&wild), None, "no thread has that id");
}

#[test]
fn parts_are_put_together_around_a_hole() {
    let mut pending = Pending::default();
    for (start, bytes) in [(SP + 64, [1, 2]), (SP + 66, [3, 4]), (SP + 90, [5, 6])] {
        pending.take(OWNER, &part(start, &bytes));
    }
    pending.take(OWNER, &part(SP + 92, &[7]));
    pending.take(OWNER, &part(SP + 99, &[8]));
    let extension = pending.beyond(OWNER, Some(SP));
    let first = Piece { start: SP + 64, bytes: &[1, 2, 3, 4] };
    let second = Piece { start: SP + 90, bytes: &[5, 6, 7] };
    assert_eq!(extension, Extension { thread: 9, pieces: [first, second] });
    assert_eq!(extension.end(), SP + 93);
}

#[test]
fn parts_go_to_their_own_sample_only() {
    let nothing = Extension::default();
    let mut pending = Pending::default();
    assert_eq!(pending.beyond(OWNER, Some(0)), nothing);
    pending.take(OWNER, &part(SP + 64, &[1, 2]));
    let others = [Owner { tid: 8, ..OWNER }, Owner { ip: 0x1235, ..OWNER }];
    assert!(others.iter().all(|&other| pending.beyond(other, Some(SP)) == nothing));
    assert_eq!(pending.beyond(OWNER, Some(SP + 8)), nothing);
    assert_eq!(pending.beyond(OWNER, None), nothing);
    assert_eq!(pending.beyond(OWNER, Some(SP)).pieces[0].bytes, [1, 2]);
    // Another thread's first part: those before have lost their sample.
    pending.take(Owner { tid: 8, ..OWNER }, &part(SP + 66, &[3]));
    assert_eq!(pending.beyond(OWNER, Some(SP)), nothing);
    pending.take(OWNER, &part(SP + 67, &[4]));
    assert_eq!(pending.beyond(OWNER, Some(SP)).pieces[0].bytes, [4]);
    pending.clear();
    assert!(pending.is_empty() && pending.beyond(OWNER, Some(SP)) == nothing);
}
