//! Recordings of programs that are gone: the images that the recorder kept name their frames, also on
//! a machine that has none of the files.

use nprof_tests::{Shell, have, rows, skipped};

/// Spends half a second of CPU time in `spin`.
const PROGRAM: &str = r#"
#include <time.h>
static volatile unsigned sink;
__attribute__((noinline)) static void spin(void) { for (int i = 0; i < 100000; i++) sink = sink * 3 + i; }
int main(void) { for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;) spin(); return 0; }
"#;

fn compiled(flags: &str) -> Shell {
    let shell = Shell::new();
    shell.write("spin.c", PROGRAM);
    shell.run(&format!("gcc -O2 -g {flags} -o spin spin.c && mkdir nothing")).quiet();
    shell
}

/// Returns the share of the function `spin` with its line, symbolized with these options.
fn share_of_spin(shell: &Shell, options: &str) -> f64 {
    let report =
        format!("nprof-symbolize {options} raw.nprof | nprof-flat --by function,file --format tsv");
    let functions = rows(&shell.run(&report).quiet());
    let is_spin = |name: &str, file: &str| name == "spin" && file.ends_with("/spin.c");
    let mut found = functions.iter().filter(|row| is_spin(row.text("function"), row.text("file")));
    found.next().map_or(0.0, |row| row.number("self_percent"))
}

#[track_caller]
fn assert_named_by_kept_images_only(shell: &Shell) {
    let without = share_of_spin(shell, "--symfs nothing");
    assert!(without < 1.0, "{without} % without the kept images");
    // Half of the time leaves room for losses on a busy machine.
    let with = share_of_spin(shell, "--symfs nothing --debug-dir kept");
    assert!(with > 50.0, "{with} % with the kept images");
}

#[test]
fn deleted_program_is_named_by_its_kept_image() {
    let shell = compiled("");
    let record = "nprof-record --keep-images kept -o raw.nprof -- \
                  sh -c 'cp spin copy; ./copy & sleep 0.2; rm copy; wait'";
    let run = shell.run(record);
    assert!(run.status == 0 && run.err.contains("; kept "), "{run:?}");
    assert_named_by_kept_images_only(&shell);
    // The layout of perf's cache.
    let path = "kept/.build-id/$(readelf -n spin | sed -n 's|.*Build ID: \\(..\\)|\\1/|p')/elf";
    shell.run(&format!("cmp spin {path}")).quiet();
}

#[test]
fn deleted_program_without_build_id_is_named_by_its_kept_image() {
    let shell = compiled("-static -Wl,--build-id=none");
    let run = shell.run("nprof-record -q --keep-images kept -o raw.nprof -- ./spin; rm spin");
    assert_eq!(run.status, 0, "{run:?}");
    assert_named_by_kept_images_only(&shell);
}

#[test]
fn program_in_a_deleted_chroot_is_named_by_its_kept_image() {
    let shell = compiled("-static");
    shell.run("mkdir -p jail/bin && mv spin jail/bin").quiet();
    if !have(&["chroot"]) || shell.run("chroot jail /bin/spin").status != 0 {
        return skipped("no right to chroot");
    }
    // The recorder sees the path inside of the jail, which names nothing outside of it.
    let record = "nprof-record -q --keep-images kept -o raw.nprof -- chroot jail /bin/spin";
    let run = shell.run(&format!("{record} && rm -r jail"));
    assert_eq!(run.status, 0, "{run:?}");
    assert_named_by_kept_images_only(&shell);
}

#[test]
fn files_listed_by_nprof_format_name_frames_elsewhere() {
    let shell = compiled("");
    shell.run("nprof-record -q -o raw.nprof -- ./spin").quiet();
    // tar warns that it strips the leading `/` from names; -C puts another directory before them.
    let archive = "nprof-format images -0 raw.nprof | tar -cf files.tar --null -T - 2>/dev/null";
    shell.run(&format!("{archive} && rm spin && tar -xf files.tar -C nothing")).quiet();
    let share = share_of_spin(&shell, "--symfs nothing");
    assert!(share > 50.0, "{share} %");
}

#[test]
fn directory_that_cannot_be_created_ends_the_run_before_the_command() {
    let shell = Shell::new();
    // Not even root can create a directory in /proc.
    let run = shell.run("nprof-record --keep-images /proc/none -o raw.nprof -- touch ran");
    assert_eq!(run.status, 125, "{run:?}");
    assert!(run.err.contains("--keep-images: cannot create /proc/none"), "{run:?}");
    assert!(!shell.path("ran").exists() && !shell.path("raw.nprof").exists());
}
