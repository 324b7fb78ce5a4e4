//! Programs to profile, compiled from source, and input for them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C++ program with g++ at -O2 and without frame pointers; returns its path. `flags` come
/// last and override these.
///
/// # Panics
///
/// If it cannot be compiled.
pub fn compile(sources: &[&Path], flags: &[&str], output: &Path) -> PathBuf {
    let result = Command::new("g++")
        .args(["-std=c++17", "-O2", "-g", "-fomit-frame-pointer", "-pthread"])
        .arg("-o")
        .arg(output)
        .args(sources)
        .args(flags)
        .output()
        .expect("g++ can be started");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    output.to_owned()
}

/// Compiles the demo program and its library, as the Makefile does; returns its path.
///
/// # Panics
///
/// If it cannot be compiled.
pub fn compile_demo(directory: &Path) -> PathBuf {
    let source = super::repository().join("demo");
    compile(&[&source.join("query.cpp")], &["-fPIC", "-shared"], &directory.join("libquery.so"));
    let search = format!("-L{}", directory.display());
    compile(
        &[&source.join("main.cpp"), &source.join("index.cpp")],
        &[&search, "-lquery", "-Wl,-rpath,$ORIGIN"],
        &directory.join("demo"),
    )
}

/// Returns `bytes` or a few more bytes of invented words, the same on each call, to compress or sort.
pub fn words(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut state: u64 = 1;
    while text.len() < bytes {
        // The generator of Numerical Recipes; its low bits are poor.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let length = 2 + (state >> 60) as usize % 8;
        text.extend((0..length).map(|i| char::from(b'a' + (state >> (20 + 4 * i) & 15) as u8)));
        text.push(if state >> 40 & 7 == 0 { '\n' } else { ' ' });
    }
    text
}
