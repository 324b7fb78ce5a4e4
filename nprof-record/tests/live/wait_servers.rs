//! Servers under load, attached with all kinds of time: each thread has the time of the recording.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::Directory;
use crate::waiting::{Recording, Times};

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
    // Once in 20 attempts, at a load of 20, a thread lacked nearly all of its samples.
    for attempt in 1.. {
        let Some(recording) = recorded(&server) else { return };
        let inexact = recording.inexact_waits();
        let cpu: u64 = recording.times.iter().map(|times| times.cpu).sum();
        let sampled = recording.weight_of("cpu-clock") as f64 / cpu as f64;
        if inexact.is_empty() && (0.95..1.05).contains(&sampled) {
            break;
        }
        assert!(attempt < 3, "{inexact:?}, {sampled} of its time on a CPU");
    }
}

/// Records a server for three seconds, and checks the times of its threads. None if it was skipped.
fn recorded(server: &Killed) -> Option<Recording> {
    let words = ["-e", "wall", "-p", &server.0.id().to_string(), "-d", "3"];
    let recording = Recording::of(Directory::new("waits-redis-recording"), &words)?;
    assert!(recording.times.len() >= 4, "{} threads", recording.times.len());
    // The threads are followed before the three seconds begin.
    for Times { wall, .. } in &recording.times {
        assert!(*wall >= 3_000_000_000, "{wall}");
    }
    recording.assert_books_close();
    assert!(recording.weight_of("cpu-clock") > 0, "the server is busy");
    Some(recording)
}
