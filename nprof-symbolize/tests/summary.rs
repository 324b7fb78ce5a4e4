//! Reports about images with unnamed frames: in the stream, and for users.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use fixture::{AREA, Binary, Places, locations, namings, run_in, sources, stream, symbolize};
use nprof_stream::{Encoding, ImageKind, Status};

#[test]
fn rebuilt_program_is_refused_or_marked() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let old = Binary::read(&at.join("prog"));
    let address = old.symbol(AREA) + 4;
    let input = stream(&[Places::of(&old, &[address])], Encoding::Binary);
    run_in(at, "g++ -O1 -g -Wl,--build-id -o @/prog @/a.cc");
    let new = Binary::read(&at.join("prog"));
    let output = symbolize(&["-v"], &input);
    assert_eq!(locations(&output.stdout), [(Status::Mismatch, vec![])]);
    let message = String::from_utf8(output.stderr).unwrap();
    let wanted = format!("another build ID: it has {}, want {}", new.id(), old.id());
    assert!(message.contains(&wanted), "{message}");
    // The stream has the reason, too.
    let records = namings(&output.stdout);
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].named, records[0].unnamed, &records[0].unnamed_by_status[..]),
        (0, 1, &b"mismatch 1"[..])
    );
    assert!(String::from_utf8_lossy(&records[0].reason).contains(&wanted));
    assert!(!records[0].remedy.is_empty());
    // With --allow-mismatch the present file is used, and its names are marked.
    let output = symbolize(&["--allow-mismatch"], &input);
    let (status, calls) = locations(&output.stdout).remove(0);
    assert_eq!(status, Status::Mismatch);
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|call| call.name.ends_with(" [mismatch]")), "{calls:?}");
    assert_eq!(namings(&output.stdout)[0].named, 0, "not counted as named");
    let refused = symbolize(&[], &input);
    let again = symbolize(&["--allow-mismatch"], &refused.stdout);
    assert_eq!(locations(&again.stdout)[0].1, calls, "also where they were refused before");
}

#[test]
fn kernel_without_a_build_id_needs_sysfs() {
    let kernel = Places {
        kind: ImageKind::Kernel,
        build_id: b"",
        path: b"[kernel]",
        places: vec![(0x1000, false)],
    };
    let output = symbolize(&[], &stream(&[kernel], Encoding::Binary));
    let records = namings(&output.stdout);
    assert!(String::from_utf8_lossy(&records[0].remedy).starts_with("mount /sys"), "{records:?}");
}

#[test]
fn naming_records_count_the_frames_of_each_segment() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let places = Places::of(&binary, &binary.addresses(7));
    let other = Places { path: b"/nowhere", ..Places::of(&binary, &[binary.text.0]) };
    let one = stream(&[places, other], Encoding::Binary);
    let output = symbolize(&[], &[&one[..], &one[..]].concat());
    let all = locations(&output.stdout);
    let records = namings(&output.stdout);
    assert_eq!(records.len(), 4, "two images in two segments");
    for segment in records.chunks(2) {
        let named = all.iter().filter(|(status, _)| *status == Status::Named).count() / 2;
        assert_eq!(segment[0].named as usize, named);
        assert_eq!((segment[0].named + segment[0].unnamed) as usize, all.len() / 2 - 1);
        assert_eq!(&segment[1].image[..], b"/nowhere");
        assert_eq!(&segment[1].unnamed_by_status[..], b"no-image 1");
    }
    // Symbolizing again replaces the records.
    let again = symbolize(&[], &output.stdout);
    assert_eq!(namings(&again.stdout), records);
}

#[test]
fn naming_record_has_the_command_for_debug_symbols() {
    let directory = sources();
    let at = directory.path();
    std::fs::create_dir_all(at.join("root/usr/lib/x")).unwrap();
    std::fs::create_dir_all(at.join("root/var/lib/dpkg/info")).unwrap();
    for (package, file) in [("libc6:amd64", "/lib/x/libc.so.6"), ("libz1", "/usr/lib/x/libz.so")] {
        let list = at.join(format!("root/var/lib/dpkg/info/{package}.list"));
        std::fs::write(list, format!("/.\n{file}\n")).unwrap();
    }
    let mut images = Vec::new();
    for name in ["libc.so.6", "libz.so", "libmine.so"] {
        run_in(
            at,
            &format!("gcc -O2 -shared -fPIC -s -Wl,--build-id -o @/root/usr/lib/x/{name} @/a.c"),
        );
        images.push((
            format!("/usr/lib/x/{name}"),
            Binary::read(&at.join("root/usr/lib/x").join(name)),
        ));
    }
    let places = images.iter().map(|(path, binary)| Places {
        path: path.as_bytes(),
        ..Places::of(binary, &binary.addresses(4))
    });
    let input = stream(&places.collect::<Vec<_>>(), Encoding::Binary);
    let root = at.join("root");
    let output = symbolize(&["-v", "--symfs", root.to_str().unwrap()], &input);
    let next: Vec<String> = namings(&output.stdout)
        .iter()
        .map(|naming| String::from_utf8_lossy(&naming.remedy).into_owned())
        .collect();
    assert_eq!(next[0], "apt install libc6-dbg");
    assert!(next[1].starts_with("apt install libz1-dbgsym"), "{next:?}");
    let id = images[2].1.id();
    let (first, rest) = id.split_at(2);
    let wanted = format!("put its debug file at DIR/.build-id/{first}/{rest}.debug");
    assert!(next[2].starts_with(&wanted), "{next:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(next.iter().all(|next| message.contains(next)), "{message}");
}

#[test]
fn one_frame_without_name_among_twenty_has_a_remedy() {
    let directory = sources();
    let at = directory.path();
    let code = "static __attribute__((noinline)) int hidden(volatile int *x) { return *x * 3; }\n\
                int known(volatile int *x) { for (int i = 0; i < 9; i++) *x += i; return hidden(x); }\n";
    std::fs::write(at.join("few.c"), code).unwrap();
    run_in(at, "gcc -O2 -shared -fPIC -Wl,--build-id -o @/few.so @/few.c");
    let binary = Binary::read(&at.join("few.so"));
    let mut addresses: Vec<u64> = (0..20).map(|byte| binary.symbol("known") + byte).collect();
    addresses.push(binary.symbol("hidden"));
    let input = stream(&[Places::of(&binary, &addresses)], Encoding::Binary);
    run_in(at, "strip @/few.so");
    let naming = namings(&symbolize(&[], &input).stdout).remove(0);
    assert_eq!((naming.named, naming.unnamed), (20, 1));
    // It may have most of the samples.
    assert!(String::from_utf8_lossy(&naming.remedy).contains("--debug-dir"), "{naming:?}");
}

#[test]
fn problem_is_reported_in_its_segment() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "gcc -O2 -g -gsplit-dwarf -c -o @/one.o @/a.c");
    run_in(at, "gcc -O2 -Wl,--build-id -o @/prog @/one.o");
    let binary = Binary::read(&at.join("prog"));
    std::fs::remove_file(at.join("one.dwo")).unwrap();
    // The start code of the program has no debug information, and so no problem with it.
    let quiet = stream(&[Places::of(&binary, &[binary.symbol("_start")])], Encoding::Binary);
    let loud = stream(&[Places::of(&binary, &[binary.symbol("main")])], Encoding::Binary);
    let records = namings(&symbolize(&[], &[quiet, loud].concat()).stdout);
    let reasons: Vec<_> = records.iter().map(|naming| naming.reason.is_empty()).collect();
    assert_eq!(reasons, [true, false], "{records:?}");
}
