//! The lockdown of the kernel: see kernel_lockdown(7).

/// The levels, with the present one in brackets. Absent if securityfs is not mounted.
const LEVELS: &str = "/sys/kernel/security/lockdown";

/// True if the kernel shows its memory to no program, not even to those of BPF.
pub(crate) fn hides_memory() -> bool {
    std::fs::read_to_string(LEVELS).is_ok_and(|levels| is_confidential(&levels))
}

fn is_confidential(levels: &str) -> bool {
    levels.contains("[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_hidden_at_the_highest_level() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        assert!(!is_confidential("none [integrity] confidentiality\n"));
        assert!(!is_confidential("[none] integrity confidentiality\n"));
    }
}
