//! Fetches files by build ID from debuginfod servers, if the user asks for it.
//!
//! The protocol and the environment variables are those of debuginfod(8) and
//! debuginfod-find(1), and so is the cache: what a debugger fetched is found here, and the other
//! way round. Unlike there nothing takes long: a server that does not answer soon is not asked
//! again, and all of a run's waiting has a limit.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use ureq::tls::{RootCerts, TlsConfig};

use super::elf_file::{ElfFile, size};
use super::hex::hex;
use super::identity::has_build_id;
use super::search_log::SearchLog;

/// How long a server may keep silent, unless `DEBUGINFOD_TIMEOUT` says otherwise.
const SILENCE: Duration = Duration::from_secs(5);

/// How long all fetching of a run may take, unless `DEBUGINFOD_MAXTIME` says otherwise.
const ALL: Duration = Duration::from_secs(60);

/// The largest file that is fetched, bytes, unless `DEBUGINFOD_MAXSIZE` says otherwise.
const LARGEST: u64 = 2_000_000_000;

/// How long it is remembered that no server has a file; as of elfutils.
const MISSING: Duration = Duration::from_secs(600);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactKind {
    /// The file with the debug information.
    DebugInfo,
    /// The file that was executed.
    Executable,
}

impl ArtifactKind {
    /// Its name in addresses and in the cache.
    fn word(self) -> &'static str {
        match self {
            Self::DebugInfo => "debuginfo",
            Self::Executable => "executable",
        }
    }
}

/// What the environment says of fetching.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The servers, in the order they are asked.
    pub(crate) urls: Vec<String>,
    /// Where files are kept; `None` if there is no place, so that nothing is fetched.
    pub(crate) cache: Option<PathBuf>,
    /// How long a server may keep silent.
    pub(crate) silence: Duration,
    /// How long all of it may take.
    pub(crate) all: Duration,
    /// The largest file, bytes.
    pub(crate) largest: u64,
}

impl Settings {
    /// Takes the settings from environment variables, which `get` gives by name.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let number = |name: &str| get(name)?.parse().ok().filter(|&number: &u64| number > 0);
        let seconds = |name, usual| number(name).map_or(usual, Duration::from_secs);
        let home = |name: &str, below: &str| get(name).map(|home| Path::new(&home).join(below));
        let cache = get("DEBUGINFOD_CACHE_PATH").map(PathBuf::from);
        Self {
            urls: get("DEBUGINFOD_URLS")
                .iter()
                .flat_map(|urls| urls.split_whitespace())
                .map(|url| url.trim_end_matches('/').to_owned())
                .collect(),
            cache: cache
                .or_else(|| home("XDG_CACHE_HOME", "debuginfod_client"))
                .or_else(|| home("HOME", ".cache/debuginfod_client")),
            silence: seconds("DEBUGINFOD_TIMEOUT", SILENCE),
            all: seconds("DEBUGINFOD_MAXTIME", ALL),
            largest: number("DEBUGINFOD_MAXSIZE").unwrap_or(LARGEST),
        }
    }
}

/// The servers, as far as they have been asked.
pub(crate) struct Debuginfod {
    settings: Settings,
    agent: ureq::Agent,
    /// How much of the time is left.
    left: Cell<Duration>,
    /// The servers that failed, and how.
    failed: RefCell<Vec<(String, String)>>,
    /// Says what is being done.
    progress: fn(&str),
}

impl Debuginfod {
    /// Nobody has been asked yet. `progress` says what is being waited for.
    pub(crate) fn new(settings: Settings, progress: fn(&str)) -> Self {
        // Fails if it was done already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let silence = Some(settings.silence);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(silence)
            .timeout_connect(silence)
            .timeout_recv_response(silence)
            .timeout_per_read(silence)
            .user_agent(concat!("nprof-symbolize/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
        let agent = config.build().into();
        let left = Cell::new(settings.all);
        Self { settings, agent, left, failed: RefCell::default(), progress }
    }

    /// The path of a file that has this build ID, fetched if it was not before.
    pub(crate) fn fetch(
        &self,
        build_id: &[u8],
        wanted: ArtifactKind,
        trace: &SearchLog,
    ) -> Option<PathBuf> {
        if build_id.is_empty() {
            return None;
        }
        let Some(cache) = &self.settings.cache else {
            trace.note("debuginfod: no cache directory: HOME is not set");
            return None;
        };
        let path = cache.join(hex(build_id)).join(wanted.word());
        match cached(&path, build_id) {
            Cached::File => return Some(path),
            Cached::Missing => {
                trace.tried(&path, "no server had it a short while ago");
                return None;
            }
            Cached::Nothing => {}
        }
        if self.settings.urls.is_empty() {
            trace.note("debuginfod: DEBUGINFOD_URLS is not set");
        }
        let mut is_missing = !self.settings.urls.is_empty();
        for url in &self.settings.urls {
            if let Some((_, why)) = self.failed.borrow().iter().find(|(failed, _)| failed == url) {
                trace.note(format!("{url}: not asked, since it failed before: {why}"));
                is_missing = false;
                continue;
            }
            match self.timed(|left| self.ask(url, build_id, wanted, &path, left)) {
                Ok(true) => {
                    trace.note(format!("{url}: has it"));
                    return Some(path);
                }
                Ok(false) => trace.note(format!("{url}: does not have it")),
                Err(error) => {
                    trace.note(format!("{url}: {error:#}"));
                    self.failed.borrow_mut().push((url.clone(), format!("{error:#}")));
                    is_missing = false;
                }
            }
        }
        if is_missing {
            // An empty file says so; elfutils knows it as well.
            let _ = path.parent().map(std::fs::create_dir_all);
            let _ = std::fs::write(&path, b"");
        }
        None
    }

    /// Does what may take long, within what time is left.
    fn timed<T>(&self, work: impl FnOnce(Duration) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let left = self.left.get();
        ensure!(!left.is_zero(), "no time is left: {} s were used up", self.settings.all.as_secs());
        let begin = Instant::now();
        let result = work(left);
        self.left.set(left.saturating_sub(begin.elapsed()));
        result
    }

    /// Asks one server. `false` if it says that it does not have the file.
    fn ask(
        &self,
        url: &str,
        build_id: &[u8],
        wanted: ArtifactKind,
        path: &Path,
        left: Duration,
    ) -> anyhow::Result<bool> {
        let address = format!("{url}/buildid/{}/{}", hex(build_id), wanted.word());
        (self.progress)(&format!("fetching {address}"));
        let request = self.agent.get(&address).config().timeout_global(Some(left)).build();
        let mut response = request.call()?;
        match response.status().as_u16() {
            200 => {}
            404 => return Ok(false),
            status => bail!("it answers with the status {status}"),
        }
        let largest = self.settings.largest;
        let told = response.body().content_length();
        let is_too_large = told.filter(|&told| told > largest);
        if let Some(told) = is_too_large {
            bail!("it has {}, more than the {} allowed", size(told), size(largest));
        }
        let directory = path.parent().context("no directory")?;
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        let body = response.body_mut().with_config().limit(u64::MAX).reader();
        let count = std::io::copy(&mut body.take(largest.saturating_add(1)), &mut file)?;
        ensure!(count <= largest, "it sends more than the {} allowed", size(largest));
        ensure!(told.is_none_or(|told| told == count), "its answer is cut off");
        file.flush()?;
        let found = ElfFile::open(file.path()).and_then(|found| has_build_id(&found, build_id));
        if let Err(failure) = found {
            bail!("what it sends is not what was asked for: {}", failure.why);
        }
        file.persist(path)?;
        Ok(true)
    }
}

/// What the cache has of a file.
enum Cached {
    File,
    /// No server had it, not long ago.
    Missing,
    Nothing,
}

fn cached(path: &Path, build_id: &[u8]) -> Cached {
    let Ok(metadata) = std::fs::metadata(path) else { return Cached::Nothing };
    if metadata.len() > 0 {
        // Somebody else may have put it there.
        let found = ElfFile::open(path).and_then(|file| has_build_id(&file, build_id));
        return if found.is_ok() { Cached::File } else { Cached::Nothing };
    }
    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    if age.is_some_and(|age| age < MISSING) { Cached::Missing } else { Cached::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_debuginfod_programs() {
        let settings = |values: &[(&str, &str)]| {
            Settings::read(|name| {
                values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        let none = settings(&[]);
        assert!(none.urls.is_empty() && none.cache.is_none());
        assert_eq!((none.silence, none.all, none.largest), (SILENCE, ALL, LARGEST));
        let all = settings(&[
            ("DEBUGINFOD_URLS", " http://a/ https://b "),
            ("DEBUGINFOD_TIMEOUT", "2"),
            ("DEBUGINFOD_MAXTIME", "3"),
            ("DEBUGINFOD_MAXSIZE", "many"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/h"),
        ]);
        assert_eq!(all.urls, ["http://a", "https://b"]);
        assert_eq!((all.silence.as_secs(), all.all.as_secs(), all.largest), (2, 3, LARGEST));
        assert_eq!(all.cache, Some("/x/debuginfod_client".into()));
        let home = settings(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")]);
        assert_eq!(home.cache, Some("/h/.cache/debuginfod_client".into()));
        assert_eq!(settings(&[("DEBUGINFOD_CACHE_PATH", "/c")]).cache, Some("/c".into()));
    }

    #[test]
    fn no_time_is_no_question() {
        let settings = Settings::read(|name| Some(name.to_owned()));
        let servers = Debuginfod::new(Settings { all: Duration::ZERO, ..settings }, |_| {});
        let answer: anyhow::Result<()> = servers.timed(|_| panic!("there is no time"));
        assert!(answer.unwrap_err().to_string().contains("no time is left"));
    }
}
