//! The facts about a recording: feature sections of a file, feature records of a pipe. Pure.

use rustc_hash::FxHashMap;

use super::attribute::Attribute;
use super::bytes::Bytes;

/// Numbers of features (tools/perf/util/header.h).
const BUILD_ID: u32 = 2;
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const ARCH: u32 = 6;
const NRCPUS: u32 = 7;
const CPUDESC: u32 = 8;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;

/// The facts that are known so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    pub(super) host: Vec<u8>,
    pub(super) os: Vec<u8>,
    pub(super) arch: Vec<u8>,
    pub(super) cpu: Vec<u8>,
    pub(super) cpus: Option<u64>,
    /// The words of the command line of perf.
    pub(super) command: Vec<Vec<u8>>,
    /// By path.
    pub(super) build_ids: FxHashMap<Vec<u8>, Vec<u8>>,
    /// Names of events, and their ids.
    pub(super) event_names: Vec<(Vec<u8>, Vec<u64>)>,
}

impl Features {
    /// True if the facts of a feature are used.
    pub(super) fn is_used(feature: u32) -> bool {
        let used = [BUILD_ID, HOSTNAME, OSRELEASE, ARCH, NRCPUS, CPUDESC, CMDLINE, EVENT_DESC];
        used.contains(&feature)
    }

    /// Adds the facts of a section. False if it is malformed.
    pub(super) fn add(&mut self, feature: u32, section: &[u8]) -> bool {
        self.decode(feature, section).is_some()
    }

    fn decode(&mut self, feature: u32, section: &[u8]) -> Option<()> {
        let mut at = Bytes(section);
        match feature {
            HOSTNAME => self.host = at.header_string()?.to_vec(),
            OSRELEASE => self.os = at.header_string()?.to_vec(),
            ARCH => self.arch = at.header_string()?.to_vec(),
            CPUDESC => self.cpu = at.header_string()?.to_vec(),
            NRCPUS => {
                at.u32()?;
                self.cpus = Some(u64::from(at.u32()?));
            }
            CMDLINE => {
                for _ in 0..at.u32()? {
                    self.command.push(at.header_string()?.to_vec());
                }
            }
            EVENT_DESC => self.event_descriptions(at)?,
            BUILD_ID => {
                // A sequence of records: type, misc, size, and their body.
                while !at.0.is_empty() {
                    let mut header = Bytes(at.take(8)?);
                    let (_, misc, size) = (header.u32()?, header.u16()?, header.u16()?);
                    self.build_id(misc, at.take(usize::from(size).checked_sub(8)?)?)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn event_descriptions(&mut self, mut at: Bytes<'_>) -> Option<()> {
        let (count, size) = (at.u32()?, at.u32()?);
        for _ in 0..count {
            at.take(usize::try_from(size).ok()?)?;
            let ids = at.u32()?;
            let name = at.header_string()?.to_vec();
            let ids = at.take(usize::try_from(ids).ok()?.checked_mul(8)?)?;
            let ids = ids.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
            self.event_names.push((name, ids));
        }
        Some(())
    }

    /// Adds a record of a build ID.
    pub(super) fn build_id(&mut self, misc: u16, body: &[u8]) -> Option<()> {
        let mut at = Bytes(body);
        at.u32()?;
        let id = at.take(24)?;
        // PERF_RECORD_MISC_BUILD_ID_SIZE: byte 20 is the size; older versions had 20 bytes.
        let size = if misc & (1 << 15) != 0 { usize::from(id[20]).min(20) } else { 20 };
        self.build_ids.insert(at.text().to_vec(), id[..size].to_vec());
        Some(())
    }

    /// Gives attributes their names, by their ids.
    pub(super) fn name_events(&self, attributes: &mut [Attribute]) {
        let is_same_order = attributes.len() == self.event_names.len();
        // An event has an id for each CPU.
        let mut index_by_id: FxHashMap<u64, usize> = FxHashMap::default();
        for (index, (_, ids)) in self.event_names.iter().enumerate() {
            for &id in ids {
                index_by_id.entry(id).or_insert(index);
            }
        }
        for (index, attribute) in attributes.iter_mut().enumerate() {
            let first = attribute.ids.iter().filter_map(|id| index_by_id.get(id)).min();
            let by_id = first.map(|&first| &self.event_names[first]);
            // A single event needs no ids.
            let by_place = self.event_names.get(index).filter(|_| is_same_order);
            // Files of old versions have ids only here.
            if let Some((name, ids)) = by_id.or(by_place) {
                attribute.name.clone_from(name);
                if attribute.ids.is_empty() {
                    attribute.ids.clone_from(ids);
                }
            }
        }
    }
}
