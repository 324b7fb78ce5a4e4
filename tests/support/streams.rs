//! Streams in the text encoding, fixed and generated, for tests of the reports.

use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a text stream: a head, the events `1` (cpu-clock, ns) and `2` (faults, count), then
/// `body`, with ` | ` replaced by TAB.
pub fn stream(body: &str) -> Vec<u8> {
    let head = "@nprof | 1.1 | run=0x1 | command=prog\n\
                @event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time\n\
                @event | id=2 | name=faults | unit=count\n";
    format!("{head}{body}").replace(" | ", "\t").into_bytes()
}

/// The definitions of generated streams: functions `a` to `e` in two images, `a` inlined into `e`,
/// a frame without a name, and a mark.
const DEFINITIONS: &str = "\
I | 1 | elf | - | /bin/prog
I | 2 | elf | - | /lib/libx.so
U | 1 | a | -
U | 2 | b | -
U | 3 | c;\\n,\\x1b | -
U | 4 | 1 2 | -
U | 5 | e | -
F | 1 | 1 | 0x10 | u
F | 2 | 1 | 0x20 | u,ra
F | 3 | 1 | 0x30 | u
F | 4 | 2 | 0x40 | u
F | 5 | 1 | 0x50 | u
F | 6 | 2 | 0x60 | u
F | 7 | 0 | 0x0 | u,stack-truncated
F | 8 | 1 | 0x18 | u
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
Y | 4 | named | 4,0,0,0
Y | 5 | named | 1,0,0,0 | 5,0,0,0
Y | 8 | named | 1,0,0,0
T | 1 | 0 | 10 | 10 | 0 | main
T | 2 | 0 | 10 | 11 | 1 | # w;o
";

/// Generates streams of any shape: nodes with an earlier node or none as parent, samples with a node
/// or none.
pub fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let nodes = vec((any::<prop::sample::Index>(), 1..9u32), 0..30);
    let samples = vec((1..3u32, 0..3u32, any::<prop::sample::Index>(), 0..50u64, 1..4u64), 0..60);
    (nodes, samples).prop_map(|(nodes, samples)| {
        // Node ids are dense and parents come first: the order rule of the format.
        let mut body = DEFINITIONS.to_owned();
        for (i, (parent, frame)) in nodes.iter().enumerate() {
            body += &format!("N | {} | {} | {frame}\n", i + 1, parent.index(i + 1));
        }
        for (event, task, node, weight, count) in samples {
            let node = node.index(nodes.len() + 1);
            body += &format!("S | 0 | {event} | {task} | 0 | {node} | {weight} | {count}\n");
        }
        stream(&body)
    })
}
