//! How fast the CPUs of this machine run, which makes an interval in cycles out of a frequency.

use std::path::Path;

use crate::event::pmu;

/// What no CPU's clock is outside of, Hz.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 10_000_000..=100_000_000_000;

/// The rate of the CPUs' clock in Hz, that of the fastest ones where they differ: what they are
/// rated for (`base_frequency`, in kHz), else the most they do, else what they do now. `None`
/// where the machine tells none of it.
pub(crate) fn rate(root: &Path) -> Option<u64> {
    let cpus = root.join("sys/devices/system/cpu");
    let khz = |file: &str| {
        let names = pmu::entries(&cpus).into_iter().filter(|name| is_cpu(name));
        let values = names.filter_map(|name| {
            let text = pmu::read(&cpus.join(name).join("cpufreq").join(file)).ok()?;
            text.parse::<u64>().ok()?.checked_mul(1000)
        });
        values.filter(|rate| PLAUSIBLE.contains(rate)).max()
    };
    khz("base_frequency")
        .or_else(|| khz("cpuinfo_max_freq"))
        .or_else(|| now(&std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default()))
}

fn is_cpu(name: &str) -> bool {
    name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The highest `cpu MHz` in the text of /proc/cpuinfo, in Hz.
fn now(cpuinfo: &str) -> Option<u64> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let rates = fields.filter(|(key, _)| key.trim() == "cpu MHz").filter_map(|(_, value)| {
        let mhz = value.trim().parse::<f64>().ok()?;
        Some((mhz * 1e6) as u64)
    });
    rates.filter(|rate| PLAUSIBLE.contains(rate)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::Machine;

    #[test]
    fn the_rated_frequency_goes_before_the_highest_and_the_present_one() {
        let machine = Machine::new();
        assert_eq!(rate(machine.root()), None);
        machine.write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 800.5\ncpu MHz : 1200\n");
        assert_eq!(rate(machine.root()), Some(1_200_000_000));
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "4700000\n");
        machine.write("sys/devices/system/cpu/cpu12/cpufreq/cpuinfo_max_freq", "3600000\n");
        machine.write("sys/devices/system/cpu/cpufreq/cpuinfo_max_freq", "9900000\n");
        assert_eq!(rate(machine.root()), Some(4_700_000_000), "of the fastest CPU");
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/base_frequency", "2600000\n");
        assert_eq!(rate(machine.root()), Some(2_600_000_000));
    }

    #[test]
    fn nonsense_is_no_rate() {
        let machine = Machine::new();
        for text in ["", "fast", "0", "18446744073709551615", "-1"] {
            machine.write("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", text);
            assert_eq!(rate(machine.root()), None, "{text}");
        }
        for mhz in ["nan", "inf", "-5", "0.000", "1e300"] {
            assert_eq!(now(&format!("cpu MHz : {mhz}")), None, "{mhz}");
        }
    }
}
