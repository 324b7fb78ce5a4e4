//! The files of which code was read in this batch of samples. Opening one and comparing its headers takes
//! ten times as long as reading a page of it, and new code of a large program is on new pages.

use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;

use crate::image::key::ImageIndex;

/// The most files. All are closed when there are more.
const FILES_MAX: usize = 16;

/// Files by their images. None for one that cannot be opened.
#[derive(Debug, Default)]
pub(super) struct CodeFiles(RefCell<Vec<(ImageIndex, Option<Rc<File>>)>>);

impl CodeFiles {
    /// Returns the file of an image, or opens it. None if it cannot be opened.
    pub(super) fn file(
        &self,
        index: ImageIndex,
        open: impl FnOnce() -> Option<File>,
    ) -> Option<Rc<File>> {
        let mut files = self.0.borrow_mut();
        if let Some((_, file)) = files.iter().find(|(image, _)| *image == index) {
            return file.clone();
        }
        let file = open().map(Rc::new);
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.push((index, file.clone()));
        file
    }

    /// Closes all files: they may be written or removed, and indices may be those of other images.
    pub(super) fn close(&mut self) {
        self.0.get_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_file() -> Option<File> {
        File::open(std::env::current_exe().ok()?).ok()
    }

    #[test]
    fn file_is_opened_once_until_all_are_closed() {
        let mut files = CodeFiles::default();
        assert!(files.file(1, own_file).is_some());
        assert!(files.file(1, || panic!("it is open")).is_some());
        assert!(files.file(2, || None).is_none());
        assert!(files.file(2, || panic!("it cannot be opened")).is_none());
        files.close();
        assert!(files.file(1, || None).is_none());
    }

    #[test]
    fn number_of_open_files_is_bounded() {
        let files = CodeFiles::default();
        for index in 0..4 * FILES_MAX as ImageIndex {
            assert!(files.file(index, own_file).is_some());
        }
        assert!(files.0.borrow().len() <= FILES_MAX);
    }
}
