//! Copies a stream to the screen, and to a file that goes on when the screen is left.

use std::fs::File;
use std::io::{self, Read, Write};

/// Bytes copied at once.
const CHUNK: usize = 64 << 10;

/// Copies a stream until its end. Ends early if neither the file nor the screen takes it.
///
/// # Errors
///
/// The first error of the stream or of the file. The screen is served nevertheless.
pub(super) fn copy(mut stream: impl Read, mut file: File, screen: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut screen = Some(screen);
    let mut written = Ok(());
    while written.is_ok() || screen.is_some() {
        let count = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return written.and(Err(error)),
        };
        if written.is_ok() {
            written = file.write_all(&buffer[..count]);
        }
        // A closed pipe: the user has left.
        screen =
            screen.and_then(|mut screen| screen.write_all(&buffer[..count]).ok().map(|()| screen));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    #[test]
    fn file_has_the_stream_after_the_screen_is_left() {
        let (mut kept, file) = pipe().expect("a pipe");
        let (left, screen) = pipe().expect("a pipe");
        drop(left);
        let file = File::from(std::os::fd::OwnedFd::from(file));
        copy(&b"a stream"[..], file, screen).expect("the file takes it");
        let mut text = String::new();
        kept.read_to_string(&mut text).expect("a file");
        assert_eq!(text, "a stream");
    }

    #[test]
    fn screen_has_the_stream_after_the_disk_is_full() {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let mut screen = Vec::new();
        let error = copy(&b"a stream"[..], full, &mut screen).expect_err("it is full");
        assert_eq!((error.kind(), &screen[..]), (io::ErrorKind::StorageFull, &b"a stream"[..]));
    }
}
