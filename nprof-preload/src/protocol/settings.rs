//! The settings of the library, as text in an environment variable. Pure.

use core::fmt;

/// The environment variable that holds the [`Settings`].
pub const VARIABLE: &str = "NPROF_PRELOAD";

/// The settings of the library: `NAME:secret=HEX,heap=BYTES,calls=NUMBER,stack=BYTES,ring=BYTES[,memos][,fd][,wait][,ack]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'a> {
    /// The name of the recorder's abstract socket, without the zero byte before it; no `:`.
    pub socket: &'a str,
    /// The number that a [`super::Hello`] must have: all users see the name of the socket, but only those that may
    /// trace the program see its environment.
    pub secret: u64,
    /// The mean distance of samples in allocated bytes; 1 records every allocation, 0 none.
    pub heap_period: u64,
    /// The mean distance of samples in calls of instrumented functions; 1 records every call, 0 none.
    pub call_period: u64,
    /// The most bytes of a stack to copy.
    pub stack_bytes: u32,
    /// The size of the ring's data, a power of two.
    pub ring_bytes: u32,
    /// True if the ring has memos of known stacks.
    pub memos: bool,
    /// True if descriptors are recorded.
    pub descriptors: bool,
    /// True if a thread waits for room in a full ring; false if it drops the record and counts it.
    pub wait: bool,
    /// True if a process that starts to record waits until the recorder closes the connection, at most a second: the
    /// recorder can read `/proc/PID/maps` of a process that ends at once.
    pub acknowledge: bool,
}

impl<'a> Settings<'a> {
    /// Parses the value of [`VARIABLE`]; None if it is malformed.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (socket, list) = text.split_once(':')?;
        let mut settings = Settings {
            socket,
            secret: 0,
            heap_period: 0,
            call_period: 0,
            stack_bytes: 8 << 10,
            ring_bytes: 1 << 20,
            memos: false,
            descriptors: false,
            wait: false,
            acknowledge: false,
        };
        for item in list.split(',') {
            match item.split_once('=') {
                Some(("secret", value)) => {
                    settings.secret = u64::from_str_radix(value, 16).ok()?;
                }
                Some(("heap", value)) => settings.heap_period = value.parse().ok()?,
                Some(("calls", value)) => settings.call_period = value.parse().ok()?,
                Some(("stack", value)) => settings.stack_bytes = value.parse().ok()?,
                Some(("ring", value)) => settings.ring_bytes = value.parse().ok()?,
                None if item == "memos" => settings.memos = true,
                None if item == "fd" => settings.descriptors = true,
                None if item == "wait" => settings.wait = true,
                None if item == "ack" => settings.acknowledge = true,
                _ => return None,
            }
        }
        let valid = !socket.is_empty()
            && settings.ring_bytes.is_power_of_two()
            && (super::MINIMUM_RING_BYTES..=super::MAXIMUM_RING_BYTES).contains(&settings.ring_bytes)
            // A record must fit into the ring several times, or no record ever finds room.
            && settings.stack_bytes <= settings.ring_bytes / 8;
        valid.then_some(settings)
    }
}

impl fmt::Display for Settings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:secret={:x},heap={},calls={},stack={},ring={}",
            self.socket,
            self.secret,
            self.heap_period,
            self.call_period,
            self.stack_bytes,
            self.ring_bytes
        )?;
        for (set, name) in [
            (self.memos, ",memos"),
            (self.descriptors, ",fd"),
            (self.wait, ",wait"),
            (self.acknowledge, ",ack"),
        ] {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_returns_displayed_settings() {
        let settings = Settings {
            socket: "nprof-0123456789abcdef",
            secret: u64::MAX,
            heap_period: 524_288,
            call_period: 64,
            stack_bytes: 4096,
            ring_bytes: 1 << 21,
            memos: true,
            descriptors: true,
            wait: true,
            acknowledge: true,
        };
        assert_eq!(Settings::parse(&settings.to_string()), Some(settings));
    }

    #[test]
    fn rejects_malformed_settings() {
        for text in [
            "",
            "name",
            ":heap=1",
            "name:heap=x",
            "name:calls=x",
            "name:secret=g",
            "name:unknown",
            "name:heap=1,ring=100000",
            "name:heap=1,ring=16",
            "name:heap=1,stack=1048576,ring=1048576",
        ] {
            assert_eq!(Settings::parse(text), None, "{text}");
        }
    }
}
