//! The clock rate of the CPUs, which converts a frequency to a period in cycles.

use std::fs;
use std::path::Path;

use crate::event::pmu;

/// The clock rates that are believed.
const PLAUSIBLE_HZ: std::ops::RangeInclusive<u64> = 10_000_000..=100_000_000_000;

/// Returns the clock rate in Hz, on hybrid machines that of the fastest cores. None if the machine
/// does not report it.
pub(crate) fn clock_hz(root: &Path) -> Option<u64> {
    let cpus = root.join("sys/devices/system/cpu");
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    // The nominal rate is nearest to the mean; the maximum is a turbo rate, and the present rate
    // may be that of an idle CPU. Virtual machines often have only the last.
    highest_in_sysfs(&cpus, "base_frequency")
        .or_else(|| highest_in_sysfs(&cpus, "cpuinfo_max_freq"))
        .or_else(|| highest_in_cpuinfo(&cpuinfo))
}

/// Returns the highest value in Hz of a file of cpufreq (in kHz) over all CPUs.
fn highest_in_sysfs(cpus: &Path, file: &str) -> Option<u64> {
    let names = pmu::entries(cpus).into_iter().filter(|name| is_cpu(name));
    let rates = names.filter_map(|name| {
        let text = pmu::read(&cpus.join(name).join("cpufreq").join(file)).ok()?;
        text.parse::<u64>().ok()?.checked_mul(1000)
    });
    rates.filter(|rate| PLAUSIBLE_HZ.contains(rate)).max()
}

/// True for `cpu0`, but not for `cpufreq`.
fn is_cpu(name: &str) -> bool {
    name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the highest `cpu MHz` in the text of /proc/cpuinfo, in Hz.
fn highest_in_cpuinfo(cpuinfo: &str) -> Option<u64> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let rates = fields.filter(|(key, _)| key.trim() == "cpu MHz").filter_map(|(_, value)| {
        let mhz = value.trim().parse::<f64>().ok()?;
        Some((mhz * 1e6) as u64)
    });
    rates.filter(|rate| PLAUSIBLE_HZ.contains(rate)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::Machine;

    #[test]
    fn prefers_nominal_over_maximum_and_present_rate() {
        let machine = Machine::new();
        assert_eq!(clock_hz(machine.root()), None);
        machine.write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 800.5\ncpu MHz : 1200\n");
        assert_eq!(clock_hz(machine.root()), Some(1_200_000_000));
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "4700000\n");
        machine.write("sys/devices/system/cpu/cpu12/cpufreq/cpuinfo_max_freq", "3600000\n");
        machine.write("sys/devices/system/cpu/cpufreq/cpuinfo_max_freq", "9900000\n");
        assert_eq!(clock_hz(machine.root()), Some(4_700_000_000), "of the fastest CPU");
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/base_frequency", "2600000\n");
        assert_eq!(clock_hz(machine.root()), Some(2_600_000_000));
    }

    #[test]
    fn ignores_implausible_rates() {
        let machine = Machine::new();
        for text in ["", "fast", "0", "18446744073709551615", "-1"] {
            machine.write("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", text);
            assert_eq!(clock_hz(machine.root()), None, "{text}");
        }
        for mhz in ["nan", "inf", "-5", "0.000", "1e300"] {
            assert_eq!(highest_in_cpuinfo(&format!("cpu MHz : {mhz}")), None, "{mhz}");
        }
    }
}
