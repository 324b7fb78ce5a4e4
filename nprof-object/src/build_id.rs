//! GNU build IDs: notes of the type `NT_GNU_BUILD_ID` (elf(5), "Notes").

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator};

/// The longest build ID, bytes; a longer one counts as none. It is the limit of the stream.
pub const MAX_BYTES: usize = 64;

/// Returns the first build ID among notes. None if there is none, or it is empty or too long.
pub fn find<H: FileHeader>(endian: H::Endian, mut notes: NoteIterator<'_, H>) -> Option<Vec<u8>> {
    // A malformed note ends the search: where the next one begins is unknown.
    while let Ok(Some(note)) = notes.next() {
        let is_build_id =
            note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        if is_build_id && (1..=MAX_BYTES).contains(&note.desc().len()) {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// Returns the build ID in bare notes, as the kernel shows those of itself in `/sys/kernel/notes`
/// and those of a module in `/sys/module/NAME/notes/.note.gnu.build-id`. None if there is none.
pub fn of_notes(notes: &[u8]) -> Option<Vec<u8>> {
    // The kernel's notes have the byte order of the machine, and are aligned to 4 bytes.
    let endian = if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little };
    // Notes have the same layout in ELF32 and ELF64 (gABI, "Note Section").
    let notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes).ok()?;
    find(endian, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &[u8] = b"\x06\0\0\0\x01\0\0\0\0\x01\0\0Linux\0\0\0\0\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\xcd\xef\0";

    #[test]
    fn build_id_is_found_after_other_notes() {
        assert_eq!(of_notes(NOTES).as_deref(), Some(&b"\xab\xcd\xef"[..]));
    }

    #[test]
    fn malformed_notes_have_no_build_id() {
        for length in 0..NOTES.len() - 1 {
            assert_eq!(of_notes(&NOTES[..length]), None, "{length}");
        }
        assert_eq!(of_notes(&[0xff; 40]), None);
        assert_eq!(of_notes(&[0; 40]), None);
    }

    #[test]
    fn build_id_that_is_too_long_is_none() {
        let note = |length: u32| {
            let mut note = [4u32, length, 3].map(u32::to_ne_bytes).concat();
            note.extend(b"GNU\0");
            note.resize(note.len() + length as usize, 7);
            note
        };
        assert_eq!(of_notes(&note(64)), Some(vec![7; 64]));
        assert_eq!(of_notes(&note(68)), None);
        assert_eq!(of_notes(&note(0)), None);
    }

    #[test]
    fn longest_build_id_is_the_limit_of_the_stream() {
        assert_eq!(MAX_BYTES, nprof_stream::limits::BUILD_ID);
    }
}
