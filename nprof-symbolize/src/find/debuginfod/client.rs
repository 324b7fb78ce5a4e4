//! The client of debuginfod servers.
//!
//! The protocol, the environment variables and the cache are those of debuginfod(8) and
//! debuginfod-find(1): files that a debugger fetched are found here, and the other way round. Unlike
//! there, time is bounded: a server that does not answer in time is not tried again, and all
//! requests of a run share one limit.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use ureq::tls::{RootCerts, TlsConfig};

use super::artifact::ArtifactKind;
use crate::find::elf_file::{ElfFile, size};
use crate::find::identity::has_build_id;
use crate::find::search_log::SearchLog;
use nprof_stream::number::hex;

/// The longest time without data from a server, unless `DEBUGINFOD_TIMEOUT` is set.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for all requests of a run, unless `DEBUGINFOD_MAXTIME` is set.
const MAX_TOTAL_TIME: Duration = Duration::from_secs(60);

/// The largest file that is fetched, unless `DEBUGINFOD_MAXSIZE` is set.
const MAX_FILE_BYTES: u64 = 2_000_000_000;

/// The time for which a missing file is not requested again; that of elfutils.
const MISSING_TIME: Duration = Duration::from_secs(600);

/// The settings in environment variables.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The servers, in the order they are tried.
    pub(crate) urls: Vec<String>,
    /// The cache directory. None if there is none; then nothing is fetched.
    pub(crate) cache: Option<PathBuf>,
    /// The longest time without data from a server.
    pub(crate) server_timeout: Duration,
    /// The longest time for all requests.
    pub(crate) total_time: Duration,
    /// The largest file.
    pub(crate) max_file_bytes: u64,
}

impl Settings {
    /// Reads the settings from environment variables, which `get` returns by name. Empty and malformed
    /// values count as unset, as in elfutils.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let number = |name: &str| get(name)?.parse().ok().filter(|&number: &u64| number > 0);
        let seconds = |name, default| number(name).map_or(default, Duration::from_secs);
        let home = |name: &str, below: &str| get(name).map(|home| Path::new(&home).join(below));
        let cache = get("DEBUGINFOD_CACHE_PATH").map(PathBuf::from);
        Self {
            urls: get("DEBUGINFOD_URLS")
                .iter()
                .flat_map(|urls| urls.split_whitespace())
                // The path of a request begins with a slash.
                .map(|url| url.trim_end_matches('/').to_owned())
                .collect(),
            cache: cache
                .or_else(|| home("XDG_CACHE_HOME", "debuginfod_client"))
                .or_else(|| home("HOME", ".cache/debuginfod_client")),
            server_timeout: seconds("DEBUGINFOD_TIMEOUT", SERVER_TIMEOUT),
            total_time: seconds("DEBUGINFOD_MAXTIME", MAX_TOTAL_TIME),
            max_file_bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(MAX_FILE_BYTES),
        }
    }
}

/// The client and the state of its servers.
pub(crate) struct Debuginfod {
    settings: Settings,
    agent: ureq::Agent,
    /// The time that is left for requests.
    left: Cell<Duration>,
    /// The servers that failed, with the reason.
    failed: RefCell<Vec<(String, String)>>,
    /// Shows a message to a waiting user.
    progress: fn(&str),
}

impl Debuginfod {
    /// Creates a client; `progress` shows each request to the user.
    pub(crate) fn new(settings: Settings, progress: fn(&str)) -> Self {
        // Fails if another client in this process has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = Some(settings.server_timeout);
        let config = ureq::Agent::config_builder()
            // 404 is a normal answer and no error.
            .http_status_as_error(false)
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .user_agent(concat!("nprof-symbolize/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
        let agent = config.build().into();
        let left = Cell::new(settings.total_time);
        Self { settings, agent, left, failed: RefCell::default(), progress }
    }

    /// Returns the path of a file with a build ID: from the cache, or fetched now.
    pub(crate) fn fetch(
        &self,
        build_id: &[u8],
        kind: ArtifactKind,
        log: &SearchLog,
    ) -> Option<PathBuf> {
        if build_id.is_empty() {
            return None;
        }
        let Some(cache) = &self.settings.cache else {
            log.note("debuginfod: no cache directory: HOME is not set");
            return None;
        };
        let path = cache.join(hex(build_id)).join(url_name(kind));
        match cached(&path, build_id) {
            Cached::File => return Some(path),
            Cached::Missing => {
                log.tried(&path, "no server had it a short time ago");
                return None;
            }
            Cached::Nothing => {}
        }
        if self.settings.urls.is_empty() {
            log.note("debuginfod: DEBUGINFOD_URLS is not set");
            return None;
        }
        let mut has_failed = false;
        for url in &self.settings.urls {
            match self.fetch_from(url, build_id, kind, &path, log) {
                Answer::Fetched => return Some(path),
                Answer::Missing => {}
                Answer::Failed => has_failed = true,
            }
        }
        if !has_failed {
            // An empty file marks the ID as missing, for elfutils, too.
            let _ = path.parent().map(std::fs::create_dir_all);
            let _ = std::fs::write(&path, b"");
        }
        None
    }

    /// Requests a file from one server, unless it has failed before.
    fn fetch_from(
        &self,
        url: &str,
        build_id: &[u8],
        kind: ArtifactKind,
        path: &Path,
        log: &SearchLog,
    ) -> Answer {
        if let Some((_, reason)) = self.failed.borrow().iter().find(|(failed, _)| failed == url) {
            log.note(format!("{url}: skipped, since it failed before: {reason}"));
            return Answer::Failed;
        }
        match self.within_time(|left| self.request(url, build_id, kind, path, left)) {
            Ok(true) => {
                log.note(format!("{url}: has it"));
                Answer::Fetched
            }
            Ok(false) => {
                log.note(format!("{url}: does not have it"));
                Answer::Missing
            }
            Err(error) => {
                log.note(format!("{url}: {error:#}"));
                self.failed.borrow_mut().push((url.to_owned(), format!("{error:#}")));
                Answer::Failed
            }
        }
    }

    /// Runs a request within the time that is left, and takes its time off.
    fn within_time<T>(
        &self,
        request: impl FnOnce(Duration) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let left = self.left.get();
        ensure!(
            !left.is_zero(),
            "no time is left: the limit of {} s is used up",
            self.settings.total_time.as_secs()
        );
        let begin = Instant::now();
        let result = request(left);
        // Failed requests take time, too.
        self.left.set(left.saturating_sub(begin.elapsed()));
        result
    }

    /// Requests a file from one server. False if the server does not have it.
    fn request(
        &self,
        url: &str,
        build_id: &[u8],
        kind: ArtifactKind,
        path: &Path,
        left: Duration,
    ) -> anyhow::Result<bool> {
        let address = format!("{url}/buildid/{}/{}", hex(build_id), url_name(kind));
        // The user may wait for seconds, and should know the reason.
        (self.progress)(&format!("fetching {address}"));
        let request = self.agent.get(&address).config().timeout_global(Some(left)).build();
        let mut response = request.call()?;
        match response.status().as_u16() {
            200 => {}
            404 => return Ok(false),
            status => bail!("HTTP status {status}"),
        }
        let max_bytes = self.settings.max_file_bytes;
        let stated = response.body().content_length();
        if let Some(stated) = stated.filter(|&stated| stated > max_bytes) {
            bail!("the file has {}, more than the {} allowed", size(stated), size(max_bytes));
        }
        let directory = path.parent().context("no directory")?;
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        // Renamed when it is complete: other programs read the same cache.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        let body = response.body_mut().with_config().limit(u64::MAX).reader();
        let count = std::io::copy(&mut body.take(max_bytes.saturating_add(1)), &mut file)?;
        ensure!(count <= max_bytes, "the file has more than the {} allowed", size(max_bytes));
        // A connection that breaks looks like the end of the file.
        ensure!(stated.is_none_or(|stated| stated == count), "the response is truncated");
        file.flush()?;
        // A server may return an error page, or a file of another build.
        let found = ElfFile::open(file.path()).and_then(|found| has_build_id(&found, build_id));
        if let Err(failure) = found {
            bail!("the server returned a wrong file: {}", failure.reason);
        }
        file.persist(path)?;
        Ok(true)
    }
}

/// The answer of a server.
enum Answer {
    Fetched,
    Missing,
    Failed,
}

/// The state of a file in the cache.
enum Cached {
    File,
    /// No server had it a short time ago.
    Missing,
    Nothing,
}

/// Returns the name of an artifact in URLs and in the cache.
fn url_name(kind: ArtifactKind) -> &'static str {
    match kind {
        ArtifactKind::DebugInfo => "debuginfo",
        ArtifactKind::Executable => "executable",
    }
}

fn cached(path: &Path, build_id: &[u8]) -> Cached {
    let Ok(metadata) = std::fs::metadata(path) else { return Cached::Nothing };
    if metadata.len() > 0 {
        // Another program may have written a wrong file.
        let found = ElfFile::open(path).and_then(|file| has_build_id(&file, build_id));
        return if found.is_ok() { Cached::File } else { Cached::Nothing };
    }
    // A clock that was set back gives no age; the file is then requested again.
    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    if age.is_some_and(|age| age < MISSING_TIME) { Cached::Missing } else { Cached::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_debuginfod_programs() {
        let settings = |values: &[(&str, &str)]| {
            Settings::read(|name| {
                values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        let none = settings(&[]);
        assert!(none.urls.is_empty() && none.cache.is_none());
        assert_eq!(
            (none.server_timeout, none.total_time, none.max_file_bytes),
            (SERVER_TIMEOUT, MAX_TOTAL_TIME, MAX_FILE_BYTES)
        );
        let all = settings(&[
            ("DEBUGINFOD_URLS", " http://a/ https://b "),
            ("DEBUGINFOD_TIMEOUT", "2"),
            ("DEBUGINFOD_MAXTIME", "3"),
            ("DEBUGINFOD_MAXSIZE", "many"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/h"),
        ]);
        assert_eq!(all.urls, ["http://a", "https://b"]);
        assert_eq!(
            (all.server_timeout.as_secs(), all.total_time.as_secs(), all.max_file_bytes),
            (2, 3, MAX_FILE_BYTES)
        );
        assert_eq!(all.cache, Some("/x/debuginfod_client".into()));
        let home = settings(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")]);
        assert_eq!(home.cache, Some("/h/.cache/debuginfod_client".into()));
        assert_eq!(settings(&[("DEBUGINFOD_CACHE_PATH", "/c")]).cache, Some("/c".into()));
    }

    #[test]
    fn no_request_is_sent_after_the_time_limit() {
        let settings = Settings::read(|name| Some(name.to_owned()));
        let servers = Debuginfod::new(Settings { total_time: Duration::ZERO, ..settings }, |_| {});
        let answer: anyhow::Result<()> = servers.within_time(|_| panic!("there is no time"));
        assert!(answer.unwrap_err().to_string().contains("no time is left"));
    }
}
