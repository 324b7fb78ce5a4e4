//! The code of one image: ELF headers, unwind tables, cached pages and results of code analysis.

pub mod cfi;
pub mod code_bytes;
pub mod code_pages;
pub mod elf;
pub mod file_code;
pub mod go_table;
pub mod table_gaps;
