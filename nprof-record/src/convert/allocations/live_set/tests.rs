use super::*;
use crate::convert::allocations::block_table::hash;
use crate::convert::allocations::sums::mean_period;

fn block(node: u32, weight: u64, time_ns: u64) -> Block {
    Block { node: NodeId(node), size: weight, weight, count: 1, time_ns }
}

fn weights(rows: &[(NodeId, Blocks)]) -> Vec<(u32, u64)> {
    rows.iter().map(|(node, blocks)| (node.0, blocks.weight())).collect()
}

#[test]
fn rows_of_peak_are_those_of_its_time_and_add_up() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.allocate(0x20, block(2, 50, 2));
    assert_eq!(set.release(0x10, 3), Some(block(1, 100, 1)));
    // Below the peak of 150, with another stack.
    set.allocate(0x30, block(3, 90, 4));
    set.release(0x20, 5);
    assert_eq!(weights(&set.at_peak()), [(1, 100), (2, 50)]);
    assert_eq!((weights(&set.live()), set.peak_ns()), (vec![(3, 90)], 2));
    let largest = |rows: Vec<(NodeId, Blocks)>| rows.iter().map(|it| it.1.largest).max();
    assert_eq!((largest(set.at_peak()), largest(set.live())), (Some(100), Some(90)));
    // A higher peak forgets the one before.
    set.allocate(0x40, block(1, 61, 6));
    assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 61), (3, 90)], 6));
}

#[test]
fn one_sample_of_a_long_period_is_no_peak() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 64 << 20, 1));
    set.release(0x10, 2);
    // At most a few bytes are live, of gigabytes that are allocated and released.
    for time_ns in 3..100 {
        set.allocate(0x20, Block { size: 6000, ..block(2, 256 << 20, time_ns) });
        set.release(0x20, time_ns);
    }
    assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 64 << 20)], 1));
    // Forty of them at a time are more than 64 MiB by all odds, in each half. The last few may come after the
    // last one of the other half.
    for address in 0..40 {
        let late = block(2, 256 << 20, 100 + address);
        set.allocate(0x30 + address, Block { size: 6000, ..late });
    }
    let [(2, weight)] = weights(&set.at_peak())[..] else { panic!("one stack") };
    assert!((36..=40).contains(&(weight >> 28)), "{weight}");
    assert_eq!(weights(&set.peak_until(200).1), [(2, 40 * (256 << 20))]);
}

#[test]
fn peak_of_a_process_is_not_below_its_end() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.release(0x10, 2);
    assert_eq!(set.peak_until(3), (1, set.at_peak()));
    // One sample of a leak, as by a long period.
    set.allocate(0x20, Block { size: 1000, ..block(2, 1 << 20, 4) });
    assert_eq!(weights(&set.at_peak()), [(1, 100)]);
    let (peak_ns, rows) = set.peak_until(9);
    assert_eq!((peak_ns, weights(&rows)), (9, vec![(2, 1 << 20)]));
}

#[test]
fn number_of_blocks_is_estimated_from_their_size() {
    let mut set = LiveSet::new(1024);
    for address in 0..1000 {
        let sampled = Block { size: 48, ..block(1, 4096, address) };
        set.allocate(address * 16, sampled);
    }
    for address in 0..500 {
        set.release(address * 16, 2000);
    }
    let [(_, blocks)] = set.live()[..] else { panic!("one stack") };
    assert_eq!(blocks.blocks(), 42667, "500 * 4096 / 48");
}

#[test]
fn lost_release_is_found_by_reused_address() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    assert_eq!(set.allocate(0x10, block(2, 7, 2)), Some(block(1, 100, 1)));
    assert_eq!(weights(&set.live()), [(2, 7)]);
    assert_eq!(set.release(0x18, 3), None, "another address");
}

#[test]
fn failed_realloc_keeps_its_block() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.release(0x10, 2);
    assert_eq!(set.keep(0x10, 3), Some(block(1, 100, 1)));
    assert_eq!(weights(&set.live()), [(1, 100)]);
    assert_eq!(set.keep(0x20, 4), None);
}

#[test]
fn child_has_blocks_of_the_time_of_its_fork() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.allocate(0x20, block(2, 50, 2));
    set.release(0x20, 3);
    set.release(0x10, 6);
    set.allocate(0x10, block(3, 70, 7));
    let child = set.forked_at(5);
    assert_eq!((weights(&child.live()), child.len()), (vec![(1, 100)], 1));
    assert_eq!(weights(&child.at_peak()), [(1, 100)], "its peak begins with what it inherits");
    assert_eq!(weights(&set.live()), [(3, 70)], "the parent is unchanged");
}

#[test]
fn fewer_released_blocks_are_kept_on_demand() {
    let mut set = LiveSet::new(4);
    for address in 0..10 {
        set.allocate(address, block(1, 100, address));
        set.release(address, 20 + address);
    }
    let known = |set: &mut LiveSet| set.forked_at(15).len();
    assert_eq!(known(&mut set), 4);
    set.keep_released(2);
    assert_eq!(known(&mut set), 2);
    assert!(set.clone().keep(9, 40).is_some() && set.keep(7, 40).is_none(), "the latest");
}

#[test]
fn sums_stay_without_their_stacks() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.allocate(0x20, block(2, 50, 2));
    set.release(0x20, 3);
    set.drop_nodes();
    assert_eq!(weights(&set.live()), [(0, 100)]);
    assert_eq!(weights(&set.at_peak()), [(0, 150)]);
    set.release(0x10, 4);
    assert!(set.live().is_empty());
    assert_eq!(weights(&set.at_peak()), [(0, 150)]);
}

#[test]
fn sums_equal_a_simple_model() {
    let (mut set, mut model) = (LiveSet::new(1024), std::collections::BTreeMap::new());
    let (mut peak, mut at_peak) = (0, Vec::new());
    let mut random = 1_u64;
    for time_ns in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let address = random >> 33 & 0xff;
        if random >> 60 > 7 {
            let new = block((random >> 50 & 7) as u32 + 1, random >> 42 & 0xff, time_ns);
            set.allocate(address, new);
            model.insert(address, new);
        } else {
            assert_eq!(set.release(address, time_ns), model.remove(&address));
        }
        let live: u64 = model.values().map(|block| block.weight).sum();
        if live > peak {
            (peak, at_peak) = (live, set.live());
        }
    }
    assert_eq!(set.at_peak(), at_peak);
    assert_eq!(at_peak.iter().map(|(_, blocks)| blocks.weight()).sum::<u64>(), peak);
}

/// The period of simulated programs.
const PERIOD: u64 = 64 << 10;

/// A program of which the blocks are sampled as the library does it.
struct Program {
    set: LiveSet,
    random: u64,
    time_ns: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        Self { set: LiveSet::new(0), random: seed << 32, time_ns: 1000 }
    }

    /// Allocates a block. A small one is sampled with the probability of its size in periods.
    fn malloc(&mut self, node: u32, address: u64, size: u64) {
        self.time_ns += 100;
        self.random += 1;
        if size >= PERIOD {
            let count = size / PERIOD;
            let block = Block { count, ..block(node, size, self.time_ns) };
            self.set.allocate(address, block);
        } else if hash(self.random) % PERIOD < size {
            let block = Block { size, ..block(node, PERIOD, self.time_ns) };
            self.set.allocate(address, block);
        }
    }

    fn free(&mut self, address: u64) {
        self.time_ns += 100;
        self.set.release(address, self.time_ns);
    }

    /// Allocates and releases blocks of 2000 bytes, one at a time.
    fn churn(&mut self, number: u64) {
        for _ in 0..number {
            self.malloc(9, 0xffff, 2000);
            self.free(0xffff);
        }
    }

    /// Returns the bytes of the peak by stack, and of all together.
    fn peak(&self) -> (Vec<(u32, u64)>, f64) {
        let rows = weights(&self.set.peak_until(self.time_ns).1);
        let sum: u64 = rows.iter().map(|(_, weight)| weight).sum();
        (rows, sum as f64)
    }
}

#[test]
fn churn_on_a_plateau_is_not_in_its_peak() {
    // Before, each of these peaks had a sample of the churn.
    for (samples, seeds) in [(50, 100), (500, 20), (5000, 4)] {
        let (mut excess, mut with_churn) = (0.0, 0);
        for seed in 0..seeds {
            let mut program = Program::new(seed);
            let blocks = samples * PERIOD / 4096;
            (0..blocks).for_each(|address| program.malloc(1, address, 4096));
            program.churn(10_000);
            let plateau: u64 = weights(&program.set.live()).iter().map(|row| row.1).sum();
            (0..blocks).for_each(|address| program.free(address));
            let (rows, peak) = program.peak();
            excess += (peak - plateau as f64) / PERIOD as f64 / seeds as f64;
            with_churn += usize::from(rows.iter().any(|(node, _)| *node == 9));
        }
        assert!(excess.abs() < 0.5, "{samples} samples: {excess} periods too much");
        assert_eq!(with_churn, 0, "{samples} samples");
    }
}

#[test]
fn peak_of_many_small_blocks_is_unbiased() {
    let seeds = 200;
    let (mut sum, mut squares) = (0.0, 0.0);
    let blocks = 1600;
    let truth = f64::from((1 << 20) + 4096 * blocks as u32);
    for seed in 0..seeds {
        let mut program = Program::new(seed);
        program.malloc(2, 0xfffe, 1 << 20);
        program.churn(500);
        for address in 0..blocks {
            program.malloc(1, address, 4096);
            program.churn(1);
        }
        program.churn(500);
        (0..blocks).for_each(|address| program.free(address));
        program.churn(500);
        program.free(0xfffe);
        let error = (program.peak().1 - truth) / PERIOD as f64;
        (sum, squares) = (sum + error, squares + error * error);
    }
    let mean = sum / f64::from(seeds as u32);
    let deviation = (squares / f64::from(seeds as u32)).sqrt();
    // A hundred samples have a standard error of ten. The seeds are fixed: the test cannot fail by chance.
    assert!(deviation < 12.0, "{deviation}");
    assert!(mean.abs() < 2.0 * 10.0 / f64::from(seeds as u32).sqrt(), "{mean}");
}

#[test]
fn peak_that_lasts_has_all_its_samples() {
    let mut program = Program::new(1);
    (0..1600).for_each(|address| program.malloc(1, address, 4096));
    let samples = program.set.len() as u64;
    // At the time of the last allocation of one half, some of the other would be missing.
    program.time_ns += 1_000_000;
    (0..1600).for_each(|address| program.free(address));
    assert_eq!(weights(&program.set.at_peak()), [(1, samples * PERIOD)]);
    let peak_ns = program.set.peak_ns();
    assert!((161_000..=1_161_000).contains(&peak_ns), "{peak_ns}");
}

#[test]
fn growth_until_the_end_is_the_peak() {
    let mut program = Program::new(1);
    (0..1600).for_each(|address| program.malloc(1, address, 4096));
    let (peak_ns, rows) = program.set.peak_until(program.time_ns);
    let total = |rows: &[(NodeId, Blocks)]| weights(rows).iter().map(|row| row.1).sum::<u64>();
    assert_eq!(total(&rows), program.set.len() as u64 * PERIOD);
    assert_eq!((peak_ns, rows), (program.time_ns, program.set.live()));
}

#[test]
fn exact_blocks_keep_their_peak_after_a_sampled_one() {
    let mut set = LiveSet::new(1024);
    set.allocate(0x10, block(1, 100, 1));
    set.allocate(0x20, block(2, 51, 2));
    set.release(0x10, 3);
    for time_ns in 4..100 {
        set.allocate(0x30, Block { size: 1, ..block(3, 8, time_ns) });
        set.release(0x30, time_ns);
    }
    assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 100), (2, 51)], 2));
    set.allocate(0x40, block(1, 101, 100));
    assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 101), (2, 51)], 100));
    assert_eq!(set.at_peak()[0].1.largest, 101);
    set.release(0x40, 200);
    set.release(0x20, 201);
    assert_eq!(weights(&set.at_peak()), [(1, 101), (2, 51)]);
    assert!(set.live().is_empty());
}

/// Returns the effective number of samples of all rows, as readers find it.
fn effective_samples<'a>(processes: impl IntoIterator<Item = &'a LiveSet>) -> f64 {
    let (mut sum, mut squares) = (0.0, 0.0);
    for process in processes {
        let rows = process.live();
        let period = mean_period(&rows);
        for (_, blocks) in &rows {
            let weight = blocks.weight() as f64;
            sum += weight;
            squares += weight * weight / blocks.count(period) as f64;
        }
    }
    sum * sum / squares
}

/// Returns a process with samples of small blocks in a number of stacks.
fn with_samples(samples: u64, stacks: u64) -> LiveSet {
    let mut set = LiveSet::new(16);
    for address in 0..samples {
        let small = block((address % stacks) as u32 + 1, PERIOD, address);
        set.allocate(address, Block { size: 100, ..small });
    }
    set
}

#[test]
fn samples_that_children_inherit_count_once() {
    for (stacks, children) in [(2, 0), (2, 1), (2, 8), (2, 16), (1, 50)] {
        let mut parent = with_samples(64, stacks);
        let children: Vec<_> = (0..children).map(|_| parent.forked_at(1000)).collect();
        let effective = effective_samples(children.iter().chain([&parent]));
        assert!((48.0..80.0).contains(&effective), "{} children: {effective}", children.len());
    }
    // A child cannot count half of a sample.
    let mut parent = with_samples(64, 2);
    let children: Vec<_> = (0..50).map(|_| parent.forked_at(1000)).collect();
    let effective = effective_samples(children.iter().chain([&parent]));
    assert!((64.0..128.0).contains(&effective), "{effective}, instead of 3264");
}

#[test]
fn samples_of_grandchildren_count_once() {
    let mut parent = with_samples(1000, 1);
    let mut children: Vec<_> = (0..3).map(|_| parent.forked_at(1000)).collect();
    let grandchildren: Vec<_> = children
        .iter_mut()
        .flat_map(|child| [child.forked_at(2000), child.forked_at(2000)])
        .collect();
    let all = children.iter().chain(&grandchildren).chain([&parent]);
    let effective = effective_samples(all);
    assert!((700.0..1300.0).contains(&effective), "{effective}");
}

#[test]
fn blocks_of_a_child_itself_and_exact_ones_count_as_before() {
    let mut parent = with_samples(64, 1);
    parent.allocate(0x1000, Block { count: 160, ..block(5, 160 * PERIOD, 10) });
    let mut child = parent.forked_at(1000);
    child.allocate(0x2000, Block { size: 100, count: 40, ..block(6, 40 * PERIOD, 1001) });
    let counts = |set: &LiveSet| {
        let rows = set.live();
        let period = mean_period(&rows);
        rows.iter().map(|(node, blocks)| (node.0, blocks.count(period))).collect::<Vec<_>>()
    };
    assert_eq!(counts(&child), [(1, 21), (5, 160), (6, 40)]);
    (0..64).for_each(|address| {
        child.release(address, 2000);
    });
    assert_eq!(counts(&child), [(5, 160), (6, 40)]);
    child.allocate(0x3000, Block { size: 100, ..block(6, PERIOD, 3000) });
    let line = (0..100).fold(child, |mut child, generation| child.forked_at(4000 + generation));
    assert_eq!((counts(&line), line.inherited.len()), (vec![(5, 160), (6, 1)], INHERITED_MAX));
}
