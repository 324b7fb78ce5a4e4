//! Servers under load, attached with all kinds of time: each thread has the time of the recording.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::Directory;
use crate::waiting::Recording;

/// A process that is killed on drop.
struct Killed(Child);

impl Killed {
    fn start(words: &[&str]) -> Option<Self> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// True if the command succeeds within ten seconds of attempts.
fn succeeds(words: &[&str]) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if Command::new(words[0]).args(&words[1..]).output().is_ok_and(|it| it.status.success()) {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn each_thread_of_a_redis_server_has_the_time_of_the_recording() {
    let directory = Directory::new("waits-redis");
    let socket = directory.path("socket");
    let server = ["redis-server", "--port", "0", "--unixsocket", &socket, "--save", ""];
    let Some(server) = Killed::start(&server) else {
        return eprintln!("SKIPPED: there is no redis-server");
    };
    if !succeeds(&["redis-cli", "-s", &socket, "-e", "ping"]) {
        return eprintln!("SKIPPED: the server does not answer");
    }
    let load = ["redis-benchmark", "-s", &socket, "-c", "20", "-n", "100000000", "-t", "get"];
    let Some(_load) = Killed::start(&load) else {
        return eprintln!("SKIPPED: there is no redis-benchmark");
    };
    let words = ["-e", "wall", "-p", &server.0.id().to_string(), "-d", "3"];
    let Some(recording) = Recording::of(directory, &words) else { return };
    assert_eq!(recording.end.lost, 0);
    assert!(recording.times.len() >= 4, "{} threads", recording.times.len());
    for times in &recording.times {
        let own = recording.samples.iter().filter(|sample| sample.task == times.task);
        let weight: u64 = own.map(|sample| sample.weight).sum();
        let wall = times.cpu + times.runnable + times.blocked;
        // Waits are exact to a few periods. The samples of the CPU have a standard deviation of the
        // square root of their number at most; five of them are exceeded once in a million.
        let period = 1_003_010.0;
        let noise = 5.0 * (times.cpu as f64 / period).sqrt() * period;
        let least = wall as f64 / 100.0 + noise;
        let difference = (weight as f64 - wall as f64).abs();
        assert!(difference <= least, "{weight} of {wall}, {} on a CPU", times.cpu);
    }
}
