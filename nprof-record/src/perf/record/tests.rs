use super::*;

const LAYOUT: SampleLayout = SampleLayout {
    weight: None,
    read: 2,
    callchain: true,
    registers: 2,
    raw: RawData::None,
    field: None,
};

/// A record: its header, and its fields as 32-bit words.
fn record(kind: u32, misc: u32, words: &[u32]) -> Vec<u8> {
    let size = HEADER + words.len() * 4;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((misc as u16).to_le_bytes());
    bytes.extend((size as u16).to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn sample() -> Vec<u8> {
    let words = [
        9,
        0,
        0x1234,
        0,
        10,
        11,
        77,
        0,
        3,
        0,
        1000,
        0, // identifier .. period
        1,
        0,
        2,
        0, // read
        2,
        0,
        0xffff_ff80,
        0xffff_ffff,
        0x5678,
        0xffff_ffff, // callchain
        2,
        0,
        100,
        0,
        200,
        0, // registers
        16,
        0,
        0xa,
        0,
        0xb,
        0,
        8,
        0, // stack
    ];
    record(perf::PERF_RECORD_SAMPLE, perf::PERF_RECORD_MISC_KERNEL, &words)
}

#[test]
fn sample_fields_are_read_in_kernel_order() {
    let bytes = sample();
    let (sample_id, body) = read(&LAYOUT, &bytes).expect("a sample");
    assert_eq!(sample_id, SampleId { pid: 10, tid: 11, time: 77, cpu: 3 });
    let KernelRecord::Sample(sample) = body else { panic!("{body:?}") };
    let stack = &sample.stack;
    assert_eq!((stack.ip, sample.weight, stack.in_kernel), (0x1234, 1000, true));
    assert_eq!(stack.kernel.iter().collect::<Vec<_>>(), [0xffff_ffff_0000_5678]);
    let copied = sample.copied_stack().expect("a copy");
    assert_eq!(copied.registers.iter().collect::<Vec<_>>(), [100, 200]);
    assert_eq!(copied.bytes, [0xa, 0, 0, 0, 0, 0, 0, 0]);
    assert!(!copied.is_compat);
    let header = Header::read(&bytes).expect("a header");
    assert_eq!(time(header, &bytes), Some(77));
    assert_eq!((task(header, &bytes), event_id(header, &bytes)), (Some(11), Some(9)));
}

#[test]
fn truncated_and_damaged_samples_do_not_panic() {
    let whole = sample();
    for length in 0..whole.len() {
        let mut cut = whole[..length].to_vec();
        assert_eq!(read(&LAYOUT, &cut), None);
        if length >= HEADER {
            cut[6..8].copy_from_slice(&(length as u16).to_le_bytes());
            assert_eq!(read(&LAYOUT, &cut), None, "{length}");
        }
    }
    for at in (HEADER..whole.len()).step_by(4) {
        let mut wild = whole.clone();
        wild[at..at + 4].fill(0xff);
        let _ = read(&LAYOUT, &wild);
    }
}

#[test]
fn mapping_has_inode_despite_build_id_flag() {
    let mut words = vec![7, 7, 0x1000, 0, 0x2000, 0, 0x3000, 0];
    words.extend([8, 1, 99, 0, 2, 0]);
    words.extend([5, 2, u32::from_le_bytes(*b"/a\0b"), 0]);
    words.extend([7, 7, 500, 0, 1, 0, 0, 0]);
    for misc in [0, perf::PERF_RECORD_MISC_MMAP_BUILD_ID] {
        let bytes = record(perf::PERF_RECORD_MMAP2, misc, &words);
        let Some((sample_id, KernelRecord::Mmap(mmap))) = read(&LAYOUT, &bytes) else { panic!() };
        assert_eq!((sample_id.time, sample_id.cpu), (500, 1));
        assert_eq!((mmap.start.0, mmap.length, mmap.offset.0), (0x1000, 0x2000, 0x3000));
        let identity = Identity { device: (8, 1), inode: 99, generation: 2 };
        assert_eq!((mmap.identity, &*mmap.path), (identity, &b"/a"[..]));
    }
}

#[test]
fn ksymbol_registers_and_unregisters_code() {
    let name = [*b"bpf_", *b"prog", *b"\0\0\0\0", [0; 4]].map(u32::from_le_bytes);
    for (flags, is_unregistered) in [(0, false), (1 << 16, true)] {
        let mut words = vec![0xc000_0040, 0xffff_ffff, 77, 1 | flags];
        words.extend(name);
        words.extend([0, 0, 500, 0, 1, 0, 0, 0]);
        let bytes = record(perf::PERF_RECORD_KSYMBOL, 0, &words);
        let Some((_, KernelRecord::Ksymbol(symbol))) = read(&LAYOUT, &bytes) else { panic!() };
        let expected = Ksymbol {
            start: RuntimeAddress(0xffff_ffff_c000_0040),
            size: 77,
            is_unregistered,
            name: b"bpf_prog",
        };
        assert_eq!(symbol, expected);
        words.extend([0xffff_ffff; 8]);
        let longer = record(perf::PERF_RECORD_KSYMBOL, 0, &words);
        let header = Header::read(&longer).expect("a header");
        assert_eq!((time(header, &longer), event_id(header, &longer)), (Some(500), Some(0)));
        let Some((sample_id, KernelRecord::Ksymbol(symbol))) = read(&LAYOUT, &longer) else {
            panic!()
        };
        assert_eq!((sample_id.time, sample_id.cpu, symbol), (500, 1, expected));
    }
}

#[test]
fn comm_of_exec_differs_from_rename() {
    let words = [3, 4, u32::from_le_bytes(*b"sh\0\0"), 0, 3, 4, 500, 0, 1, 0, 0, 0];
    for (misc, is_exec) in [(perf::PERF_RECORD_MISC_COMM_EXEC, true), (0, false)] {
        let bytes = record(perf::PERF_RECORD_COMM, misc, &words);
        let Some((_, KernelRecord::Comm { pid: 3, tid: 4, exec, name: b"sh" })) =
            read(&LAYOUT, &bytes)
        else {
            panic!()
        };
        assert_eq!(exec, is_exec);
    }
}

#[test]
fn call_chain_is_split_by_its_marks() {
    let [kernel, user, guest, hypervisor] = [
        perf::PERF_CONTEXT_KERNEL,
        perf::PERF_CONTEXT_USER,
        perf::PERF_CONTEXT_GUEST,
        perf::PERF_CONTEXT_HV,
    ];
    let chain: Vec<u8> =
        [kernel, 1, 2, user, 3, 4, guest, 5].iter().flat_map(|word| word.to_le_bytes()).collect();
    let part = |context| part_of_chain(&chain, context).iter().collect::<Vec<_>>();
    assert_eq!(part(kernel), [1, 2]);
    assert_eq!(part(user), [3, 4]);
    assert_eq!(part(guest), [5]);
    assert!(part(hypervisor).is_empty());
}

#[test]
fn stack_of_a_chunk_lies_at_its_offset() {
    let fields = [9, 0, 0x1234, 0, 10, 11, 77, 0, 3, 0];
    // Thread, stack pointer, address and length; the size of the raw data is padded to 8 bytes.
    let chunk = [11, 0, 0x7000, 0, 0x7040, 0, 8, 0, 0xa, 0xb];
    let words = [&fields[..], &[44], &chunk, &[0]].concat();
    let bytes = record(perf::PERF_RECORD_SAMPLE, 0, &words);
    let (key, chunk) = read_chunk(&bytes).expect("a chunk");
    assert_eq!(key, SampleKey { tid: 11, ip: 0x1234 });
    assert_eq!((chunk.start, chunk.bytes.len()), (0x7040, 8));
    assert_eq!(bytes.get(CHUNK_OFFSET..CHUNK_OFFSET + 8), Some(chunk.bytes));
}
