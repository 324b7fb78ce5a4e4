//! The probes of a kernel for many of its functions at once, as far as its symbols show them.

use crate::kallsyms;

/// Returns the reason why a kernel cannot probe its functions, from the text of its `/proc/kallsyms`. None if
/// it can.
pub fn obstacle(kallsyms: &[u8]) -> Option<&'static str> {
    if kallsyms.is_empty() {
        Some("it shows no symbols (CONFIG_KALLSYMS)")
    } else if kallsyms::find(kallsyms, b"register_kprobe").is_none() {
        Some("it was built without kprobes (CONFIG_KPROBES)")
    } else if kallsyms::find(kallsyms, b"register_fprobe_ips").is_none() {
        Some(
            "it was built without probes of many functions (CONFIG_FPROBE, since Linux 6.1, on 64-bit ARM since 6.14)",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_probes_names_the_missing_option() {
        let text = |names: &[&str]| {
            let line = |name: &&str| format!("0000000000000000 T {name}\n");
            names.iter().map(line).collect::<String>().into_bytes()
        };
        let named = |names| obstacle(&text(names)).unwrap_or_default();
        assert!(named(&["_stext", "unregister_kprobe"]).contains("CONFIG_KPROBES"));
        assert!(named(&["register_kprobe", "register_fprobe"]).contains("CONFIG_FPROBE"));
        assert_eq!(obstacle(&text(&["register_kprobe", "register_fprobe_ips"])), None);
        assert!(named(&[]).contains("CONFIG_KALLSYMS"));
    }
}
