//! The memory bound of the tables.

use super::program::{ALL, CXX, Program};
use crate::dwarf::{Call, Dwarf, ROOM_BYTES};

/// The number of units.
const UNITS: usize = 8;

/// A program of several units of C++.
fn program() -> Program {
    let mut commands = Vec::new();
    let mut link = "g++ -g -o @/prog".to_owned();
    for unit in 0..UNITS {
        let name = if unit == 0 { "main".to_owned() } else { format!("main{unit}") };
        commands.push(format!("g++ -std=c++17 -O2 -g -Dmain={name} -c -o @/{unit}.o a.cc"));
        link += &format!(" @/{unit}.o");
    }
    commands.push(link);
    let commands: Vec<&str> = commands.iter().map(|command| &**command).collect();
    // The functions of a renamed main are called by none.
    Program::compile("a.cc", &CXX.replace("int main(", "extern \"C\" int main("), &commands)
}

#[test]
fn random_lookups_stay_within_the_bound_and_find_the_same() {
    let program = program();
    let mut addresses: Vec<u64> = program.addresses().collect();
    fastrand::Rng::with_seed(5).shuffle(&mut addresses);
    let calls = |dwarf: &Dwarf, address| -> Vec<Call> {
        let found = dwarf.calls(address, ALL, None);
        assert_eq!(found.fault, None);
        found.calls
    };
    let unbounded = Dwarf::load(Box::new(program.clone()), usize::MAX).unwrap();
    let expected: Vec<_> = addresses.iter().map(|&address| calls(&unbounded, address)).collect();
    let tables = unbounded.tables_bytes();
    // A quarter is more than the tables of one unit, which stay.
    for room in [tables / 4, tables / 2] {
        let bounded = Dwarf::load(Box::new(program.clone()), room).unwrap();
        let mut largest = 0;
        for (&address, expected) in addresses.iter().zip(&expected) {
            assert_eq!(&calls(&bounded, address), expected, "{address:#x}");
            largest = largest.max(bounded.tables_bytes());
        }
        assert!(largest <= room, "{largest} of {room}");
        assert!(largest > room / 2, "{largest} of {room}: too little is kept");
    }
}

#[test]
fn lookups_by_unit_find_the_same() {
    let program = program();
    let dwarf = Dwarf::load(Box::new(program.clone()), ROOM_BYTES).unwrap();
    let mut addresses: Vec<u64> = program.addresses().collect();
    let expected: Vec<_> =
        addresses.iter().map(|&address| (address, dwarf.calls(address, ALL, None).calls)).collect();
    addresses.sort_by_key(|&address| (dwarf.unit(address), address));
    let units = addresses.chunk_by(|one, other| dwarf.unit(*one) == dwarf.unit(*other)).count();
    assert!((UNITS..UNITS * 2).contains(&units), "{units} runs of addresses of one unit");
    let sorted = Dwarf::load(Box::new(program), ROOM_BYTES).unwrap();
    sorted.set_sorted(true);
    let mut found: Vec<_> = addresses
        .iter()
        .map(|&address| (address, sorted.calls(address, ALL, None).calls))
        .collect();
    found.sort_by_key(|(address, _)| *address);
    assert_eq!(found, expected);
}
