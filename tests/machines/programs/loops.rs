//! Functions with known CPU time: prints the name of each and its time in nanoseconds. They are closures, trait
//! objects, recursive, unwind by a panic and run in threads.

use std::hint::black_box;
use std::panic::catch_unwind;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, now: *mut Timespec) -> i32;
}

/// Returns the CPU time of this thread.
fn cpu_ns() -> i64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the system call writes one structure to a live variable; 3 is CLOCK_THREAD_CPUTIME_ID.
    unsafe { clock_gettime(3, &raw mut now) };
    now.seconds * 1_000_000_000 + now.nanoseconds
}

#[inline(never)]
fn spin(rounds: u64) -> u64 {
    (0..rounds).fold(rounds, |x, i| black_box(x.wrapping_mul(6364136223846793005).wrapping_add(i)))
}

#[inline(never)]
fn object() {
    let parts: [Box<dyn Fn(u64) -> u64>; 2] = [Box::new(|rounds| spin(rounds) + 1), Box::new(spin)];
    for part in &parts {
        black_box(part(1_000_000));
    }
}

#[inline(never)]
fn recursive() {
    fn descend(depth: u64) -> u64 {
        if depth == 0 { spin(1_000_000) } else { descend(black_box(depth) - 1) + 1 }
    }
    black_box(descend(50));
}

#[inline(never)]
fn panicking() {
    let result = catch_unwind(|| {
        black_box(spin(500_000));
        panic!("expected");
    });
    black_box(result.is_err());
}

#[inline(never)]
fn sorting() {
    let mut numbers: Vec<u32> = (0..64).map(|i| i * 37 % 64).collect();
    numbers.sort_by(|a, b| {
        black_box(spin(3000));
        a.cmp(b)
    });
    black_box(numbers);
}

fn timed(part: fn()) -> i64 {
    let start = cpu_ns();
    part();
    cpu_ns() - start
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let parts: [(&str, fn()); 4] =
        [("object", object), ("recursive", recursive), ("panicking", panicking), ("sorting", sorting)];
    let mut sums = [0; 4];
    for round in 0..16 {
        for (sum, (_, part)) in sums.iter_mut().zip(parts) {
            *sum += timed(part);
        }
        if round % 4 == 0 {
            let threads = [(); 2].map(|()| std::thread::spawn(|| timed(object)));
            sums[0] += threads.map(|thread| thread.join().expect("it ends")).iter().sum::<i64>();
        }
    }
    for ((name, _), sum) in parts.iter().zip(sums) {
        println!("loops::{name} {sum}");
    }
}
