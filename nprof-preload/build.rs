//! Compiles this crate a second time, as the shared library that `src/lib.rs` includes.
//!
//! Cargo cannot build a dependency as a cdylib with its own flags: the library needs `panic=abort`, since stable
//! Rust has no way to define the personality function that unwinding requires, and must not link any library.

use std::env;
use std::path::Path;
use std::process::Command;

/// The functions for atomic operations need one of the C library to find out what the processor has.
const NO_OUTLINE_ATOMICS: [&str; 2] = ["-C", "target-feature=-outline-atomics"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(preloaded)");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| env::var(name).unwrap_or_else(|_| panic!("cargo does not set {name}"));
    let library = Path::new(&variable("OUT_DIR")).join("libnprof.so");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    if !["x86_64", "aarch64"].contains(&&*architecture)
        || variable("CARGO_CFG_TARGET_OS") != "linux"
    {
        std::fs::write(&library, []).expect("OUT_DIR is writable");
        return;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--crate-name", "nprof_preloaded", "--crate-type", "cdylib", "--edition", "2024"])
        .args(["--cfg", "preloaded", "--target", &variable("TARGET")])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=3",
            "-C",
            "codegen-units=1",
            "-C",
            "debuginfo=0",
        ])
        // Cancellation of a thread and exceptions unwind through the hooks.
        .args([
            "-C",
            "force-unwind-tables=yes",
            "-C",
            "relocation-model=pic",
            "-C",
            "strip=debuginfo",
        ])
        // A musl target links statically by default, which excludes shared libraries.
        .args(["-C", "target-feature=-crt-static"])
        .args(if architecture == "aarch64" { &NO_OUTLINE_ATOMICS[..] } else { &[] })
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nodefaultlibs"])
        // Lazy binding would run the dynamic linker inside the hooks.
        .args(["-C", "link-arg=-Wl,-z,now,-z,noexecstack,-soname,libnprof.so"])
        .arg("-o")
        .args([library.as_path(), Path::new("src/lib.rs")]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let status = rustc.status().expect("rustc runs");
    assert!(status.success(), "cannot compile the preloaded library: rustc: {status}");
}
