//! The packages of files, from the database of the package manager, and the commands that install
//! their debug symbols.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest list of a package's files that is read.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// The debuginfod servers of distributions, by `ID` in os-release(5).
const SERVERS: [(&str, &str); 6] = [
    ("arch", "https://debuginfod.archlinux.org"),
    ("centos", "https://debuginfod.centos.org"),
    ("debian", "https://debuginfod.debian.net"),
    ("fedora", "https://debuginfod.fedoraproject.org"),
    ("opensuse-tumbleweed", "https://debuginfod.opensuse.org"),
    ("ubuntu", "https://debuginfod.ubuntu.com"),
];

/// The package database of a system.
#[derive(Clone, Debug)]
pub(crate) struct DebugPackages {
    /// The root of the system.
    root: PathBuf,
    /// Its distribution, as os-release(5) has it.
    distribution: Distribution,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Distribution {
    id: String,
    codename: String,
}

impl Distribution {
    /// Parses an os-release(5).
    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let mut values =
                text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let value = values.next().unwrap_or_default().trim_matches(['"', '\'']);
            // It becomes a part of a command.
            let is_word =
                value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            value.get(..).filter(|_| is_word).unwrap_or_default().to_owned()
        };
        Self { id: value("ID"), codename: value("VERSION_CODENAME") }
    }

    /// Returns the command that names code with the distribution's server. None if it has none, or
    /// if this build has no client.
    fn fetch(&self) -> Option<String> {
        let server = SERVERS.iter().find(|(id, _)| *id == self.id).map(|(_, server)| server);
        server
            .filter(|_| cfg!(feature = "debuginfod"))
            .map(|server| format!("DEBUGINFOD_URLS={server} nprof-symbolize --debuginfod"))
    }

    /// Returns the commands that install the debug symbols of a package of Debian or a derivative.
    /// All but those of the C library are in a separate archive.
    fn apt(&self, package: &str) -> String {
        let package = match package {
            "libc6" => return "apt install libc6-dbg".to_owned(),
            package => format!("apt install {package}-dbgsym"),
        };
        let archive = match (&*self.id, &*self.codename) {
            ("debian", codename) if !codename.is_empty() => {
                format!(
                    "{package} with \"deb http://deb.debian.org/debian-debug {codename}-debug main\" \
                     in /etc/apt/sources.list"
                )
            }
            ("ubuntu", codename) if !codename.is_empty() => {
                format!(
                    "{package} with \"deb http://ddebs.ubuntu.com {codename} main universe\" in \
                     /etc/apt/sources.list, after apt install ubuntu-dbgsym-keyring"
                )
            }
            _ => format!("{package} (from the distribution's archive of debug symbols)"),
        };
        // One command without root suffices where there is a server.
        match self.fetch() {
            Some(fetch) => format!("{fetch}, or {archive}"),
            None => archive,
        }
    }
}

impl DebugPackages {
    /// Opens the database of the system with this root.
    pub(crate) fn new(root: Option<&Path>) -> Self {
        let root = root.unwrap_or(Path::new("/")).to_owned();
        let release = root.join("etc/os-release");
        let is_small = std::fs::metadata(&release).is_ok_and(|file| file.len() < 1 << 16);
        let text = if is_small { std::fs::read_to_string(&release) } else { Ok(String::new()) };
        Self { root, distribution: Distribution::parse(&text.unwrap_or_default()) }
    }

    /// Returns the commands that install debug symbols, for the files that belong to a package.
    pub(crate) fn commands(&self, files: &[&[u8]]) -> HashMap<Vec<u8>, String> {
        if files.is_empty() {
            return HashMap::new();
        }
        if self.root.join("var/lib/dpkg/info").is_dir() {
            let owners = self.owners(files).into_iter();
            return owners.map(|(file, package)| (file, self.distribution.apt(&package))).collect();
        }
        // The database of rpm is binary; the command itself finds the package.
        let is_rpm = ["var/lib/rpm", "usr/lib/sysimage/rpm"];
        if is_rpm.iter().any(|database| self.root.join(database).is_dir()) {
            let command = |file: &&[u8]| {
                let quoted = nprof_cli::shell::quoted([OsStr::from_bytes(file)]);
                let quoted = String::from_utf8_lossy(&quoted).into_owned();
                let install = format!("dnf debuginfo-install \"$(rpm -qf {quoted})\"");
                let fetch = self.distribution.fetch().map(|fetch| format!("{fetch}, or "));
                (file.to_vec(), fetch.unwrap_or_default() + &install)
            };
            // Only packages install below these directories.
            let is_system = |file: &&&[u8]| file.starts_with(b"/usr/") || file.starts_with(b"/lib");
            return files.iter().filter(is_system).map(command).collect();
        }
        HashMap::new()
    }

    /// Returns the packages of files in the lists of dpkg(1).
    fn owners(&self, files: &[&[u8]]) -> HashMap<Vec<u8>, String> {
        let mut wanted: HashSet<&[u8]> = files.iter().copied().collect();
        // `/lib` is a link to `/usr/lib` on current systems; lists of packages may have either path.
        wanted.extend(files.iter().filter_map(|file| file.strip_prefix(b"/usr")));
        let mut owners = HashMap::new();
        let lists = std::fs::read_dir(self.root.join("var/lib/dpkg/info")).into_iter().flatten();
        for path in lists.flatten().map(|entry| entry.path()) {
            let package = path.file_stem().filter(|_| path.extension() == Some("list".as_ref()));
            let Some(package) = package.and_then(OsStr::to_str) else { continue };
            // The root may be a hostile container.
            let is_small = std::fs::metadata(&path).is_ok_and(|list| list.len() <= MAX_LIST_BYTES);
            let list = if is_small { std::fs::read(&path).unwrap_or_default() } else { continue };
            for line in list.split(|&byte| byte == b'\n').filter(|line| wanted.contains(line)) {
                // dpkg adds the architecture: libc6:amd64.list.
                let package = package.split(':').next().unwrap_or(package).to_owned();
                owners.insert(line.to_vec(), package);
            }
        }
        let owner = |file: &&[u8]| {
            let short = file.strip_prefix(b"/usr");
            let found = owners.get(*file).or_else(|| owners.get(short?));
            Some((file.to_vec(), found?.clone()))
        };
        files.iter().filter_map(owner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_found_under_either_path() {
        let root = tempfile::tempdir().unwrap();
        let info = root.path().join("var/lib/dpkg/info");
        std::fs::create_dir_all(&info).unwrap();
        std::fs::write(info.join("libc6:amd64.list"), "/.\n/lib/x/libc.so.6\n").unwrap();
        std::fs::write(info.join("libz.list"), "/usr/lib/libz.so\n/usr/lib/libz.so.1").unwrap();
        std::fs::write(info.join("libz.md5sums"), "/usr/lib/liby.so\n").unwrap();
        let files: [&[u8]; 4] =
            [b"/usr/lib/x/libc.so.6", b"/usr/lib/libz.so.1", b"/usr/lib/liby.so", b"/home/a"];
        let commands = DebugPackages::new(Some(root.path())).commands(&files);
        assert_eq!(commands.len(), 2, "{commands:?}");
        assert_eq!(commands[files[0]], "apt install libc6-dbg");
        assert!(commands[files[1]].starts_with("apt install libz-dbgsym"));
    }

    #[cfg(feature = "debuginfod")]
    #[test]
    fn command_is_one_of_the_distribution() {
        let command = |release: &str| Distribution::parse(release).apt("libz1");
        let debian = "NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(
            command(debian),
            "DEBUGINFOD_URLS=https://debuginfod.debian.net nprof-symbolize --debuginfod, or apt \
             install libz1-dbgsym with \"deb http://deb.debian.org/debian-debug bookworm-debug \
             main\" in /etc/apt/sources.list"
        );
        let ubuntu = command("ID=ubuntu\nVERSION_CODENAME='noble'\n");
        assert!(ubuntu.starts_with("DEBUGINFOD_URLS=https://debuginfod.ubuntu.com nprof-symb"));
        assert!(ubuntu.contains("deb http://ddebs.ubuntu.com noble main universe"), "{ubuntu}");
        // A container is not trusted.
        let hostile = Distribution::parse("ID=debian\nVERSION_CODENAME=x;reboot\n");
        assert_eq!(hostile, Distribution { id: "debian".to_owned(), codename: String::new() });
        assert!(command("").starts_with("apt install libz1-dbgsym (from"));
        let fedora = Distribution::parse("ID=fedora").fetch().unwrap();
        assert!(fedora.starts_with("DEBUGINFOD_URLS=https://debuginfod.fedoraproject.org "));
    }

    #[test]
    fn rpm_command_finds_the_package() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/lib/sysimage/rpm")).unwrap();
        let packages = DebugPackages::new(Some(root.path()));
        let commands = packages.commands(&[b"/usr/lib64/a b.so", b"/home/me/a"]);
        assert_eq!(commands.len(), 1);
        let command = &commands[&b"/usr/lib64/a b.so"[..]];
        assert_eq!(command, "dnf debuginfo-install \"$(rpm -qf '/usr/lib64/a b.so')\"");
        let none = tempfile::tempdir().unwrap();
        assert!(DebugPackages::new(Some(none.path())).commands(&[b"/usr/lib64/a"]).is_empty());
    }
}
