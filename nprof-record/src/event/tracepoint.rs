//! Tracepoints: `system:name`, with a number from tracefs.
//!
//! If tracefs is not mounted and the user may mount it, a detached instance is opened instead, see
//! [`crate::sys::detached_tracefs`].

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nprof_stream::Measure;
use perf_event_open_sys::bindings as perf;

use crate::event::field::{self, WeightField};
use crate::event::pmu;
use crate::event::{Event, EventRate, PerfEventConfig};

/// The usual mount points of tracefs. The second is that of kernels before 4.1.
const MOUNT_POINTS: [&str; 2] = ["sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"];

/// The command that lets a group read tracefs. Opening it to all users by the mount's mode is not
/// enough: the `id` files are readable only for owner and group.
const PERMIT_GROUP: &str = "`mount -o remount,mode=750,gid=GROUP /sys/kernel/tracing`";

/// The tracepoints of a machine.
#[derive(Debug)]
pub(crate) struct Tracepoints {
    /// The directory `events` of tracefs.
    events: PathBuf,
    /// Keeps a detached instance open.
    _mount: Option<OwnedFd>,
}

/// Opens a tracefs that is mounted nowhere.
pub(crate) type Mount = fn() -> io::Result<OwnedFd>;

impl Tracepoints {
    /// Finds the tracepoints of the machine with this root directory.
    ///
    /// # Errors
    ///
    /// If tracefs is not available, with the remedy.
    pub(crate) fn find(root: &Path, mount: Mount) -> Result<Self, String> {
        let mut denied = None;
        for place in MOUNT_POINTS.map(|place| root.join(place)) {
            match fs::read_dir(&place) {
                Ok(_) => return Ok(Self { events: place, _mount: None }),
                // Mounted, but readable only for root: the remedy differs.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied.get_or_insert(place);
                }
                Err(_) => {}
            }
        }
        let mount = mount().map_err(|error| absent(&error, denied.as_deref()))?;
        // The mount has no path; its files are reached through the descriptor.
        let events = PathBuf::from(format!("/proc/self/fd/{}/events", mount.as_raw_fd()));
        // CAP_SYS_ADMIN mounts it, and only the owner may read it.
        if let Err(error) = fs::read_dir(&events) {
            let mounted = root.join(MOUNT_POINTS[0]);
            return Err(absent(&error, Some(denied.as_deref().unwrap_or(&mounted))));
        }
        Ok(Self { events, _mount: Some(mount) })
    }

    /// Returns the tracepoint with this name. None if there is none, or perf cannot open it: those
    /// have no number.
    ///
    /// # Errors
    ///
    /// If its number cannot be read, with the remedy.
    pub(crate) fn event(&self, name: &str) -> Option<Result<Event, String>> {
        let id = match self.id(name) {
            Ok(id) => id,
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => return None,
                    io::ErrorKind::PermissionDenied => format!("; run as root, or {PERMIT_GROUP}"),
                    _ => String::new(),
                };
                let reason = format!("cannot read the number of the tracepoint: {error}{remedy}");
                return Some(Err(reason));
            }
        };
        let kind = perf::PERF_TYPE_TRACEPOINT;
        let config = PerfEventConfig { only_kernel: true, ..PerfEventConfig::new(kind, id) };
        let configs = vec![config];
        Some(Ok(Event {
            name: name.to_owned(),
            measure: Measure::Count,
            rate: EventRate::EveryEvent,
            configs,
            value_period: None,
        }))
    }

    /// Returns the field of a tracepoint.
    ///
    /// # Errors
    ///
    /// If there is no such field, or it cannot be read.
    pub(crate) fn field(&self, name: &str, field: &str) -> Result<WeightField, String> {
        let (system, event) = name.split_once(':').unwrap_or_default();
        let text = pmu::read(&self.events.join(system).join(event).join("format"))
            .map_err(|error| format!("cannot read the fields of the tracepoint: {error}"))?;
        field::traced(&text, field)
    }

    /// Reads the number of a tracepoint.
    fn id(&self, name: &str) -> io::Result<u64> {
        let (system, name) = name.split_once(':').ok_or(io::ErrorKind::NotFound)?;
        if !pmu::is_component(system) || !pmu::is_component(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let text = pmu::read(&self.events.join(system).join(name).join("id"))?;
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{text:?}"));
        text.parse::<u32>().map(u64::from).map_err(invalid)
    }

    /// Returns the names of all tracepoints that perf can open, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for system in pmu::entries(&self.events) {
            let directory = self.events.join(&system);
            let has_id = |name: &String| directory.join(name).join("id").exists();
            let ours = pmu::entries(&directory).into_iter().filter(has_id);
            names.extend(ours.map(|name| format!("{system}:{name}")));
        }
        names
    }
}

/// Returns the message that there are no tracepoints: `error` is that of opening or reading a detached
/// tracefs, `denied` a mounted one that is not readable.
fn absent(error: &io::Error, denied: Option<&Path>) -> String {
    match (error.raw_os_error(), denied) {
        // fsopen(2): the kernel has no such file system.
        (Some(libc::ENODEV), _) => "this kernel has no tracepoints (CONFIG_FTRACE)".to_owned(),
        (_, Some(place)) => {
            format!("cannot read {}; run as root, or {PERMIT_GROUP}", place.display())
        }
        _ => "tracefs is not mounted; run as root, or `mount -t tracefs nodev /sys/kernel/tracing`"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::Machine;

    fn refused() -> io::Result<OwnedFd> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn reads_numbers_from_tracefs() {
        let machine = Machine::usual();
        machine.tracepoint("odd", "wild", "seven\n");
        machine.write("sys/kernel/tracing/events/sched/enable", "0");
        machine.write("sys/kernel/tracing/events/ftrace/print/format", "no id, not for perf");
        let tracepoints = Tracepoints::find(machine.root(), refused).expect("tracefs");
        let event = tracepoints.event("sched:sched_switch").expect("there").expect("a number");
        assert_eq!((event.configs[0].kind, event.configs[0].config), (2, 316));
        assert!(event.configs[0].only_kernel);
        assert_eq!(event.rate, EventRate::EveryEvent);
        assert_eq!(
            tracepoints.names(),
            ["odd:wild", "sched:sched_switch", "syscalls:sys_enter_write"]
        );
        for name in ["sched:no", "sched:..", "..:sched", "sched:", "a:b:c", "sched", "ftrace:print"]
        {
            assert_eq!(tracepoints.event(name), None, "{name}");
        }
        let wild = tracepoints.event("odd:wild").expect("there");
        assert!(wild.is_err_and(|why| why.contains("seven")));
    }

    #[test]
    fn missing_tracefs_is_reported_with_remedy() {
        let machine = Machine::new();
        let said = Tracepoints::find(machine.root(), refused).expect_err("no tracefs");
        assert!(said.contains("mount -t tracefs nodev /sys/kernel/tracing"), "{said}");
        let none = || Err(io::Error::from_raw_os_error(libc::ENODEV));
        let said = Tracepoints::find(machine.root(), none).expect_err("no tracefs");
        assert!(said.contains("CONFIG_FTRACE"), "{said}");
        let denied = absent(&io::Error::from_raw_os_error(libc::EPERM), Some(Path::new("/x")));
        assert!(denied.contains("cannot read /x") && denied.contains("gid="), "{denied}");
        machine.write("sys/kernel/debug/tracing/events/a/b/id", "5");
        assert!(Tracepoints::find(machine.root(), refused).is_ok(), "the old mount point is used");
    }
}
