//! The processes, their memory, and the kernel: they give an address its image, and a sample its task.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

use nprof_object::RuntimeAddress;
use nprof_stream::{ImageKind, Mark};
use nprof_unwind::arch;
use nprof_unwind::unwind::FrameAddress;
use rustc_hash::FxHashMap;

use super::address_space::{AddressSpaces, Mapping};
use super::attribute::Attribute;
use super::record::{Content, KERNEL_PID, Mmap, SampleContent};
use crate::output::{ImageDef, Output, Place, TaskDef};
use crate::unwind::{ImageFiles, Lacking, ProcessCode};

/// The first marker of a context in call chains (`PERF_CONTEXT_MAX`).
const FIRST_CONTEXT: u64 = -4095_i64 as u64;
const CONTEXT_HYPERVISOR: u64 = -32_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// The time for which a thread is kept after its exit: the kernel writes the record of the exit before it frees
/// the memory of the process, and samples this work.
const EXITED_NS: u64 = 1_000_000_000;

/// The most threads that are kept so.
const EXITED: usize = 1 << 12;

/// A thread.
#[derive(Clone, Debug)]
struct Thread {
    pid: u32,
    time: u64,
    /// Shared with its children: a hostile file names many after one long name.
    comm: Rc<[u8]>,
    parent: u32,
    /// Its number in the output. None without a sample so far.
    number: Option<u32>,
    /// The time of an exec that is not written yet: the record of its mapping has the path.
    exec: Option<u64>,
    /// The time of its exit.
    exit: Option<u64>,
}

/// The state of the recorded machine.
#[derive(Debug, Default)]
pub(super) struct Machine {
    spaces: AddressSpaces,
    images: Vec<ImageDef>,
    /// The inodes of their files, if they are known.
    inodes: Vec<Option<u64>>,
    /// The files of images, for copies of stacks.
    files: ImageFiles,
    /// The numbers of images. Without a build ID, files of one path with several inodes are several images.
    image_numbers: FxHashMap<(ImageDef, Option<u64>), u32>,
    /// The number of images that the output knows.
    defined: usize,
    /// The paths of the images that processes execute, by process id, shared as names are.
    programs: FxHashMap<u32, Rc<[u8]>>,
    /// By thread id.
    threads: FxHashMap<u32, Thread>,
    /// Threads that exited, in the order of their exits.
    exited: VecDeque<(u64, u32)>,
    /// The number of threads by process.
    counts: FxHashMap<u32, usize>,
}

impl Machine {
    /// Returns a machine of which the files are found by `files`.
    pub(super) fn new(files: ImageFiles) -> Self {
        Self { files, ..Self::default() }
    }

    /// Returns the paths of the files that were needed to unwind stacks, and could not be used.
    pub(super) fn lacking(&self) -> Vec<(Vec<u8>, Lacking)> {
        let path = |number: u32| self.images[number as usize].path.to_vec();
        self.files.lacking().map(|(number, reason)| (path(number), reason)).collect()
    }

    /// Takes a record of a process or mapping.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(super) fn take<W: Write>(
        &mut self,
        time: u64,
        content: Content,
        build_ids: &FxHashMap<Vec<u8>, Vec<u8>>,
        output: Option<&mut Output<W>>,
    ) -> io::Result<()> {
        match content {
            Content::Mmap(mmap) => {
                let pid = mmap.pid;
                self.map(mmap, build_ids);
                if let Some(output) = output {
                    self.define_images(output);
                    if self.programs.contains_key(&pid) {
                        self.write_exec(pid, output)?;
                    }
                }
            }
            Content::Comm { pid, tid, name, is_exec, executed } => {
                let mut output = output;
                // A new thread of this id, of which the fork was lost.
                if self.threads.get(&tid).is_some_and(|thread| thread.exit.is_some()) {
                    self.end(tid);
                }
                // An earlier exec, whose file is not that of this one.
                if let Some(output) = &mut output {
                    self.write_exec(tid, output)?;
                }
                // The mappings of the executed file follow.
                if is_exec {
                    self.spaces.clear(pid);
                    match executed {
                        Some(path) => self.programs.insert(pid, path.into()),
                        None => self.programs.remove(&pid),
                    };
                }
                let thread = self.thread(time, pid, tid);
                thread.comm = name.as_slice().into();
                let Some(output) = output else { return Ok(()) };
                match thread.number {
                    Some(_) if is_exec => thread.exec = Some(time),
                    Some(number) => output.rename(time, number, &name)?,
                    None => {}
                }
                if self.programs.contains_key(&pid) {
                    self.write_exec(tid, output)?;
                }
            }
            // The kernel writes no mappings for a child: it has those of its parent.
            Content::Fork { pid, parent_pid, tid, parent_tid, is_copy } => {
                let comm = self.threads.get(&parent_tid).map(|parent| parent.comm.clone());
                // A thread of this id of which the exit was lost, with its memory.
                self.end(tid);
                if is_copy && pid != parent_pid {
                    self.spaces.fork(parent_pid, pid);
                    if let Some(program) = self.programs.get(&parent_pid).cloned() {
                        self.programs.insert(pid, program);
                    }
                }
                let thread = self.thread(time, pid, tid);
                thread.parent = if tid == pid { parent_pid } else { pid };
                thread.comm = comm.unwrap_or_default();
            }
            Content::Exit { tid, .. } => {
                if let Some(output) = output {
                    self.write_exec(tid, output)?;
                    let number = self.threads.get(&tid).and_then(|thread| thread.number);
                    number.map_or(Ok(()), |number| output.exit(time, number))?;
                }
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.exit = Some(time);
                    self.exited.push_back((time, tid));
                }
                self.end_exited(time.saturating_sub(EXITED_NS));
            }
            Content::Sample(_) | Content::Lost(_) | Content::Throttle => {}
        }
        Ok(())
    }

    /// Passes new images to the output, which numbers them in this order.
    pub(super) fn define_images<W: Write>(&mut self, output: &mut Output<W>) {
        for (image, &inode) in self.images.iter().zip(&self.inodes).skip(self.defined) {
            let has_file = matches!(image.kind, ImageKind::Elf | ImageKind::Vdso);
            let load = if has_file { self.files.load(image, inode) } else { String::new() };
            output.image(ImageDef { load, ..image.clone() });
        }
        self.defined = self.images.len();
    }

    /// Writes the exec of a thread that was not written yet, if there is one, with the file if it is mapped.
    fn write_exec<W: Write>(&mut self, tid: u32, output: &mut Output<W>) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let (Some(time), Some(number)) = (thread.exec.take(), thread.number) else { return Ok(()) };
        let exe = self.programs.get(&thread.pid).map_or(&[][..], |path| path);
        output.execute(time, number, &thread.comm, exe)
    }

    fn thread(&mut self, time: u64, pid: u32, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_insert_with(|| {
            *self.counts.entry(pid).or_default() += 1;
            // As perf names threads without a name.
            let comm = if tid == 0 { b"swapper".to_vec() } else { format!(":{tid}").into_bytes() };
            let parent = if tid == pid { 0 } else { pid };
            Thread { pid, time, comm: comm.into(), parent, number: None, exec: None, exit: None }
        })
    }

    /// Forgets the threads that exited before a time, and the first ones of too many.
    fn end_exited(&mut self, before: u64) {
        while let Some(&(time, tid)) = self.exited.front()
            && (time < before || self.exited.len() > EXITED)
        {
            self.exited.pop_front();
            // The id can be that of a later thread.
            if self.threads.get(&tid).is_some_and(|thread| thread.exit == Some(time)) {
                self.end(tid);
            }
        }
    }

    /// Forgets a thread, and with the last one the memory of its process.
    fn end(&mut self, tid: u32) {
        let Some(thread) = self.threads.remove(&tid) else { return };
        if let Some(count) = self.counts.get_mut(&thread.pid) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&thread.pid);
                self.spaces.clear(thread.pid);
                self.programs.remove(&thread.pid);
            }
        }
    }

    /// Returns the number of the task of a sample.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(super) fn task_of<W: Write>(
        &mut self,
        time: u64,
        pid: u32,
        tid: u32,
        output: &mut Output<W>,
    ) -> io::Result<u32> {
        self.write_exec(tid, output)?;
        let parent = self.thread(time, pid, tid).parent;
        let parent = self.threads.get(&parent).and_then(|parent| parent.number);
        // Defined with its last name, at its first sample.
        let thread = self.thread(time, pid, tid);
        let (pid, time) = (thread.pid, thread.time);
        if let Some(number) = thread.number {
            return Ok(number);
        }
        let comm = thread.comm.clone();
        let exe = self.programs.get(&pid).filter(|_| pid == tid).cloned().unwrap_or_default();
        let number = output.task(TaskDef { time, pid, tid, parent, comm, exe });
        self.thread(time, pid, tid).number = Some(number);
        Ok(number)
    }

    fn map(&mut self, mmap: Mmap, build_ids: &FxHashMap<Vec<u8>, Vec<u8>>) {
        let Mmap { pid, start, length, file_offset, build_id, path, inode } = mmap;
        let is_kernel = pid == KERNEL_PID;
        let (kind, name) = kind_and_name(is_kernel, &path);
        // Build IDs of the kernel are stored without the symbol that its address is of.
        let plain = path.strip_suffix(b"_text").or(path.strip_suffix(b"_stext"));
        let stored = || build_ids.get(&path).or_else(|| build_ids.get(plain?));
        let build_id = if build_id.is_empty() { stored().cloned() } else { Some(build_id) };
        let (bias, base) = match kind {
            ImageKind::Kernel | ImageKind::Module => (start, Some(start)),
            ImageKind::Anonymous => (0, None),
            _ => (start.wrapping_sub(file_offset), None),
        };
        let build_id = build_id.filter(|_| kind != ImageKind::Anonymous).unwrap_or_default();
        let load = String::new();
        let image = self.image(ImageDef { kind, build_id, path: name.into(), base, load }, inode);
        // The kernel maps the program before its interpreter, and perf lists mappings of earlier processes by
        // address: the program is the first one there, too.
        if kind == ImageKind::Elf {
            let path = &self.images[image as usize].path;
            self.programs.entry(pid).or_insert_with(|| path.clone());
        }
        let mapping = Mapping { end: start.saturating_add(length), bias, image };
        match is_kernel {
            true => self.spaces.map_kernel(start, mapping),
            false => self.spaces.map(pid, start, mapping),
        }
    }

    fn image(&mut self, image: ImageDef, inode: Option<u64>) -> u32 {
        let next = self.images.len() as u32;
        let file = inode.filter(|_| image.build_id.is_empty());
        let number = *self.image_numbers.entry((image.clone(), file)).or_insert(next);
        if number == next {
            self.images.push(image);
            self.inodes.push(inode);
        }
        number
    }

    /// Returns the stack of a sample, root first. A copy of the user stack is unwound by the rules of an
    /// architecture; without one it stays incomplete.
    pub(super) fn stack(
        &mut self,
        sample: &SampleContent,
        attribute: &Attribute,
        architecture: Option<arch::Machine>,
    ) -> Vec<Place> {
        let spaces = &self.spaces;
        let place = |address, kernel, return_address| {
            // An address in no mapping stays as it is.
            let found = spaces.find(sample.pid, kernel, address);
            let (image, offset) = match found {
                Some((image, offset)) => (Some(image), offset),
                None => (None, address),
            };
            Place { image, offset, kernel, return_address, ..Place::mark(Mark::None) }
        };
        let mut stack = Vec::new();
        let (mut kernel, mut is_first, mut users) = (sample.is_kernel, true, 0);
        for &address in sample.chain.as_deref().unwrap_or_default() {
            if address >= FIRST_CONTEXT {
                match address {
                    CONTEXT_KERNEL | CONTEXT_HYPERVISOR => kernel = true,
                    CONTEXT_USER => kernel = false,
                    _ => {}
                }
                is_first = true;
                continue;
            }
            // The first one of a context is where it was left.
            stack.push(place(address, kernel, !is_first));
            users += usize::from(!kernel);
            is_first = false;
        }
        if stack.is_empty() {
            stack.push(place(sample.ip, sample.is_kernel, false));
        }
        // Threads of the kernel have no memory of their own.
        let has_user_stack = !sample.is_kernel || self.spaces.has_process(sample.pid);
        if stack.len() >= usize::from(attribute.max_stack) {
            stack.push(Place::mark(Mark::MaxDepth));
        } else if attribute.has_stack_copies() && users <= 1 && has_user_stack {
            // The callers are in the copy of the stack only: chains have no user part then, not even
            // the interrupted instruction (exclude_callchain_user).
            let mut addresses = Vec::new();
            let mark = sample.copy.as_ref().zip(architecture).and_then(|(copy, architecture)| {
                let find = |address| spaces.find(sample.pid, false, address);
                let (images, inodes) = (&self.images, &self.inodes);
                let image = |number: u32| (&images[number as usize], inodes[number as usize]);
                let files = &mut self.files;
                let mut code = ProcessCode { find: &find, image: &image, files };
                copy.walk(architecture, &mut code, &mut addresses)
            });
            stack.retain(|place| place.kernel);
            // The registers may be those of a later instruction.
            if !sample.is_kernel {
                let leaf = FrameAddress::Instruction(RuntimeAddress(sample.ip));
                match addresses.first_mut() {
                    Some(first) => *first = leaf,
                    None => addresses.push(leaf),
                }
            }
            for address in addresses {
                let lookup = place(address.address_for_lookup().0, false, address.is_return());
                let offset = lookup.offset.wrapping_add(u64::from(address.is_return()));
                stack.push(Place { offset, ..lookup });
            }
            // A sample in the kernel without user registers is of one of its threads.
            let mark = mark.unwrap_or(match sample.copy.as_ref() {
                Some(copy) if copy.registers.is_empty() && sample.is_kernel => Mark::None,
                _ => Mark::NoStack,
            });
            if mark != Mark::None {
                stack.push(Place::mark(mark));
            }
        }
        stack.reverse();
        stack
    }
}

/// Returns the kind of a mapped file, and its name in streams.
pub(super) fn kind_and_name(is_kernel: bool, path: &[u8]) -> (ImageKind, Vec<u8>) {
    if is_kernel {
        if path.starts_with(b"[kernel.kallsyms]") || path.starts_with(b"[guest.kernel.kallsyms") {
            return (ImageKind::Kernel, b"[kernel]".to_vec());
        }
        // A module is a file or a name in brackets.
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let end = file.windows(3).position(|part| part == b".ko");
        return match end {
            Some(end) => (ImageKind::Module, [b"[", &file[..end], b"]"].concat()),
            None => (ImageKind::Module, file.to_vec()),
        };
    }
    match path {
        b"[vdso]" => (ImageKind::Vdso, path.to_vec()),
        b"//anon" => (ImageKind::Anonymous, b"[anon]".to_vec()),
        [b'/', ..] if !path.starts_with(b"/dev/zero") && !path.starts_with(b"/SYSV") => {
            (ImageKind::Elf, path.to_vec())
        }
        _ => (ImageKind::Anonymous, path.to_vec()),
    }
}
