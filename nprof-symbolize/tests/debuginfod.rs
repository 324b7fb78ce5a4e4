//! Files from debuginfod servers: only if requested, and within limits.

#![cfg(feature = "debuginfod")]
#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex, OnceLock};

use fixture::{AREA, Binary, Places, locations, run_in, sources, stream, symbolize_with};
use nprof_stream::{Encoding, Status};

/// The server's answer for a path.
#[derive(Clone)]
enum Answer {
    /// Sends these bytes.
    File(Vec<u8>),
    /// Sends a part of these bytes, then closes the connection.
    CutOff(Vec<u8>),
    /// States a length beyond the limit.
    Huge,
    /// Sends bytes without end, and states no length.
    Endless,
    /// Never answers.
    Silence,
    /// Answers with a status code.
    Status(u16),
}

/// A server; it answers 404 for all other paths.
struct Server {
    url: String,
    /// The paths that were requested.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answers: HashMap<String, Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (log, answers) = (Arc::clone(&log), answers.clone());
                // A client that closes the connection is no failure of the server.
                std::thread::spawn(move || drop(serve(&connection.unwrap(), &answers, &log)));
            }
        });
        Self { url, requests }
    }

    fn requested(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(
    connection: &TcpStream,
    answers: &HashMap<String, Answer>,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection).lines();
    let mut to = connection;
    while let Some(request) = lines.next() {
        let path = request?.split(' ').nth(1).unwrap().to_owned();
        // Skips the headers.
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        log.lock().unwrap().push(path.clone());
        match answers.get(&path).cloned().unwrap_or(Answer::Status(404)) {
            Answer::File(bytes) => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
                to.write_all(&bytes)?;
            }
            Answer::CutOff(bytes) => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
                // Half of the stated length, then the connection closes.
                return to.write_all(&bytes[..bytes.len() / 2]);
            }
            Answer::Huge => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 50)?;
            }
            Answer::Endless => {
                write!(to, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                loop {
                    // The length of a chunk is in hexadecimal digits.
                    write!(to, "10000\r\n")?;
                    to.write_all(&[0; 0x10000])?;
                    write!(to, "\r\n")?;
                }
            }
            // Until the client closes the connection.
            Answer::Silence => {}
            Answer::Status(status) => {
                write!(to, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n")?;
            }
        }
    }
    Ok(())
}

/// A stripped program, its debug file's bytes, and a stream with one frame in it.
struct Stripped {
    directory: tempfile::TempDir,
    id: String,
    debug: Vec<u8>,
    whole: Vec<u8>,
    input: Vec<u8>,
}

/// The program, compiled once for all tests.
struct Built {
    binary: Binary,
    address: u64,
    whole: Vec<u8>,
    stripped: Vec<u8>,
    debug: Vec<u8>,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = sources();
        let at = directory.path();
        run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
        let binary = Binary::read(&at.join("prog"));
        let address = binary.symbol(AREA) + 4;
        let whole = std::fs::read(at.join("prog")).unwrap();
        run_in(at, "objcopy --only-keep-debug @/prog @/debug");
        run_in(at, "strip @/prog");
        let read = |name| std::fs::read(at.join(name)).unwrap();
        Built { binary, address, whole, stripped: read("prog"), debug: read("debug") }
    })
}

fn stripped() -> Stripped {
    let directory = tempfile::tempdir().unwrap();
    let Built { binary, address, whole, stripped, debug } = built();
    let path = directory.path().join("prog");
    std::fs::write(&path, stripped).unwrap();
    let places = Places::of(binary, &[*address]);
    let input = stream(&[Places { path: path.as_os_str().as_bytes(), ..places }], Encoding::Binary);
    let id = binary.id();
    Stripped { directory, id, debug: debug.clone(), whole: whole.clone(), input }
}

impl Stripped {
    fn path(&self, what: &str) -> String {
        format!("/buildid/{}/{what}", self.id)
    }

    fn cached(&self, what: &str) -> std::path::PathBuf {
        self.directory.path().join("cache/debuginfod_client").join(&self.id).join(what)
    }

    /// Symbolizes with these servers; the messages end with the explanation of the program.
    fn request(&self, urls: &str, more: &[(&str, &str)]) -> Output {
        let cache = self.directory.path().join("cache");
        let mut variables =
            vec![("DEBUGINFOD_URLS", urls), ("XDG_CACHE_HOME", cache.to_str().unwrap())];
        variables.extend_from_slice(more);
        symbolize_with(&["--debuginfod", "--explain", "prog"], &variables, &self.input)
    }
}

/// True if the frame has a line.
fn is_complete(output: &Output) -> bool {
    let (status, calls) = locations(&output.stdout).remove(0);
    status == Status::Named && calls.last().is_some_and(|call| call.file.ends_with("/a.cc"))
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn sends_no_request_without_the_option() {
    let program = stripped();
    let server = Server::start(HashMap::new());
    let variables = [("DEBUGINFOD_URLS", server.url.as_str())];
    let output = symbolize_with(&["-v"], &variables, &program.input);
    assert!(!is_complete(&output));
    assert!(server.requested().is_empty());
    // Without servers there are no requests either.
    let output = program.request("", &[]);
    assert!(message(&output).contains("DEBUGINFOD_URLS is not set"), "{}", message(&output));
}

#[test]
fn debug_file_is_fetched_once() {
    let program = stripped();
    let answers = [(program.path("debuginfo"), Answer::File(program.debug.clone()))];
    let server = Server::start(answers.into());
    let output = program.request(&server.url, &[]);
    assert!(is_complete(&output), "{}", message(&output));
    assert_eq!(server.requested(), [program.path("debuginfo")]);
    assert_eq!(std::fs::read(program.cached("debuginfo")).unwrap(), program.debug);
    assert!(is_complete(&program.request(&server.url, &[])));
    assert!(server.requested().is_empty(), "it is in the cache");
    // A wrong file of another program is not used.
    std::fs::write(program.cached("debuginfo"), b"no ELF file").unwrap();
    assert!(is_complete(&program.request(&server.url, &[])));
    assert_eq!(server.requested().len(), 1);
}

#[test]
fn missing_executable_is_fetched() {
    let program = stripped();
    std::fs::remove_file(program.directory.path().join("prog")).unwrap();
    let answers = [(program.path("executable"), Answer::File(program.whole.clone()))];
    let server = Server::start(answers.into());
    let output = program.request(&server.url, &[]);
    assert!(is_complete(&output), "{}", message(&output));
}

#[test]
fn missing_file_is_not_requested_again_soon() {
    let program = stripped();
    let [one, two] = [(); 2].map(|()| Server::start(HashMap::new()));
    let urls = format!("{} {}", one.url, two.url);
    let output = program.request(&urls, &[]);
    assert!(!is_complete(&output));
    assert_eq!((one.requested().len(), two.requested().len()), (1, 1));
    assert_eq!(std::fs::read(program.cached("debuginfo")).unwrap(), b"");
    let output = program.request(&urls, &[]);
    assert!(message(&output).contains("no server had it"), "{}", message(&output));
    assert!(one.requested().is_empty() && two.requested().is_empty());
    let marker = std::fs::File::options().write(true).open(program.cached("debuginfo")).unwrap();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(700);
    marker.set_modified(then).unwrap();
    program.request(&urls, &[]);
    assert_eq!((one.requested().len(), two.requested().len()), (1, 1), "not requested again");
}

#[test]
fn next_server_is_tried_after_a_failure() {
    let program = stripped();
    let other = stripped_of_another_build();
    let good =
        Server::start([(program.path("debuginfo"), Answer::File(program.debug.clone()))].into());
    for (answer, why) in [
        (Answer::File(other), "another build ID"),
        (Answer::File(b"<html>".to_vec()), "returned a wrong file"),
        (Answer::File(Vec::new()), "returned a wrong file"),
        (Answer::CutOff(program.debug.clone()), "isconnect"),
        (Answer::Huge, "more than the 2000 MB allowed"),
        (Answer::Status(500), "status 500"),
        (Answer::Status(301), "http://127.0.0.1"),
    ] {
        let bad = Server::start([(program.path("debuginfo"), answer)].into());
        let output = program.request(&bad.url, &[]);
        let message = message(&output);
        assert!(!is_complete(&output));
        let mut lines = message.lines().filter(|line| line.contains(&bad.url));
        assert!(lines.any(|line| line.contains(why) && !line.ends_with(" has it")), "{message}");
        assert!(message.contains("skipped, since it failed before"), "{message}");
        assert_eq!(bad.requested().len(), 1);
        let home = program.cached("debuginfo");
        assert!(is_empty(home.parent().unwrap()), "the cache stays empty");
        let output = program.request(&format!("{} {}", bad.url, good.url), &[]);
        assert!(is_complete(&output), "{message}");
        std::fs::remove_file(home).unwrap();
    }
}

fn stripped_of_another_build() -> Vec<u8> {
    let directory = sources();
    run_in(directory.path(), "g++ -O1 -g -Wl,--build-id -o @/prog @/a.cc");
    std::fs::read(directory.path().join("prog")).unwrap()
}

#[test]
fn endless_response_is_cut_at_the_size_limit() {
    let program = stripped();
    let server = Server::start([(program.path("debuginfo"), Answer::Endless)].into());
    let output = program.request(&server.url, &[("DEBUGINFOD_MAXSIZE", "1000000")]);
    assert!(!is_complete(&output));
    let message = message(&output);
    assert!(message.contains("more than the 1000 KB allowed"), "{message}");
}

#[test]
fn silent_server_times_out() {
    let program = stripped();
    let server = Server::start([(program.path("debuginfo"), Answer::Silence)].into());
    let output = program.request(&server.url, &[("DEBUGINFOD_TIMEOUT", "1")]);
    assert!(!is_complete(&output));
    assert_eq!(server.requested().len(), 1);
    let message = message(&output);
    assert!(message.contains("skipped, since it failed before"), "{message}");
    // There is no server.
    let output = program.request("http://127.0.0.1:1 ftp://127.0.0.1 nonsense", &[]);
    assert!(!is_complete(&output));
}

#[test]
fn image_with_most_samples_is_fetched_first() {
    let (cold, hot) = (stripped(), stripped_named("hot"));
    let server = Server::start(HashMap::new());
    let file = cold.directory.path().join("in.nprof");
    let text = |program: &Stripped, name: &str, image: u32, samples: u32| {
        let path = program.directory.path().join(name).display().to_string();
        format!(
            "I\t{image}\telf\t{}\t{path}\nF\t{image}\t{image}\t0x1000\tu\nN\t{image}\t0\t{image}\n\
             S\t1\t0\t0\t0\t{image}\t1\t{samples}\n",
            program.id
        )
    };
    let text = [text(&cold, "prog", 1, 1), text(&hot, "hot", 2, 5)].concat();
    let text = format!("@nprof\t1.1\trun=0x1\n{text}@end\tsamples=2\trecords=8\tlost=0\n");
    std::fs::write(&file, text).unwrap();
    let cache = cold.directory.path().join("cache");
    let variables =
        [("DEBUGINFOD_URLS", server.url.as_str()), ("XDG_CACHE_HOME", cache.to_str().unwrap())];
    let output = symbolize_with(&["--debuginfod", file.to_str().unwrap()], &variables, b"");
    assert!(output.status.success(), "{}", message(&output));
    assert_eq!(server.requested(), [hot.path("debuginfo"), cold.path("debuginfo")]);
}

/// Another program in the same directory.
fn stripped_named(name: &str) -> Stripped {
    let mut program = stripped();
    let at = program.directory.path();
    std::fs::write(at.join("hot.c"), fixture::C).unwrap();
    run_in(at, &format!("gcc -O1 -Wl,--build-id -s -o @/{name} @/hot.c"));
    program.id = Binary::read(&at.join(name)).id();
    program
}
