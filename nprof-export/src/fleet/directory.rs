//! The directory of the tables: the names of files, and their replacement.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use parquet::schema::parser::parse_message_type;

use super::id;
use super::table::{RUNS, Table};

/// The directory with a folder for each table.
pub(super) struct Directory<'a> {
    path: &'a Path,
}

/// The place of the files of some runs, of one day and service.
pub(super) struct Place<'a> {
    directory: &'a Path,
    /// The folder below that of a table.
    folder: PathBuf,
    /// The name of the files.
    name: String,
    /// The files that they replace: the folders below those of the tables, and the names.
    replaced: Vec<(PathBuf, String)>,
}

impl<'a> Directory<'a> {
    /// Opens a directory, and creates it if it does not exist.
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        Ok(Self { path })
    }

    /// Returns the place of the files of these runs, of a day and service. `exported` has the runs of all
    /// services that are written.
    ///
    /// # Errors
    ///
    /// If a file of that day has one of the runs and others that are not written: queries would count its
    /// samples twice.
    pub(super) fn place(
        &self,
        [day, service]: [String; 2],
        runs: &BTreeSet<u64>,
        exported: &BTreeSet<u64>,
    ) -> anyhow::Result<Place<'a>> {
        let (folder, name) = (Path::new(&day).join(service), id::of_runs(runs));
        let mut place = Place { directory: self.path, folder, name, replaced: Vec::new() };
        let runs_folder = self.path.join(RUNS);
        // A run may have had another service: that of an attached process is its program.
        let mut paths = Vec::new();
        for services in entries(&runs_folder.join(day))? {
            paths.extend(entries(&services)?);
        }
        for path in paths {
            let folder = path.parent().and_then(|folder| folder.strip_prefix(&runs_folder).ok());
            let folder = folder.unwrap_or(&place.folder).to_owned();
            let is_table = path.extension().is_some_and(|extension| extension == "parquet");
            let Some(other) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let is_place = (&*folder, other) == (&*place.folder, &*place.name);
            if !is_table || is_place || !id::may_have(other, runs) {
                continue;
            }
            let file = match File::open(&path) {
                // Another export has replaced it since.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.with_context(|| path.display().to_string())?,
            };
            let found = runs_of(file).with_context(|| path.display().to_string())?;
            let Some(run) = found.intersection(runs).next() else { continue };
            if !found.is_subset(exported) {
                bail!(
                    "{} has the run {run:#x} and others; export all of its runs at once, or remove the \
                     files of this name",
                    path.display()
                );
            }
            place.replaced.push((folder, other.to_owned()));
        }
        Ok(place)
    }
}

impl Place<'_> {
    fn folder_of(&self, table: &str) -> PathBuf {
        self.directory.join(table).join(&self.folder)
    }

    /// Writes the file of a table.
    pub(super) fn write(&self, table: &Table) -> anyhow::Result<()> {
        let folder = self.folder_of(table.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let table_folder = self.directory.join(table.name);
        let file_of =
            |folder: &Path, name: &str| table_folder.join(folder).join(format!("{name}.parquet"));
        let path = file_of(&self.folder, &self.name);
        // Engines that read the directory at this time see the file as a whole or not at all.
        let new = folder.join(format!(".{}.new", self.name));
        let written = File::create(&new).map_err(anyhow::Error::from);
        let written = written.and_then(|file| Ok(table.write(file)?));
        let written = written.with_context(|| path.display().to_string());
        // Before the new file has its name: no sample counts twice.
        let mut replaced = self.replaced.iter();
        let removed = written
            .and_then(|()| replaced.try_for_each(|(folder, name)| remove(&file_of(folder, name))));
        let renamed = removed
            .and_then(|()| fs::rename(&new, &path).with_context(|| path.display().to_string()));
        if renamed.is_err() {
            // The error of the write is the one that matters.
            let _ = fs::remove_file(&new);
        }
        renamed
    }
}

/// Returns the paths in a folder. None of them if there is no such folder.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || folder.display().to_string();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Another program may have left a file there.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error).with_context(context),
    };
    entries.map(|entry| Ok(entry.with_context(context)?.path())).collect()
}

/// Removes a file that may have been removed already.
fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).context(path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Returns the runs in a file of the table of runs.
fn runs_of(file: File) -> anyhow::Result<BTreeSet<u64>> {
    let reader = SerializedFileReader::new(file)?;
    let column = parse_message_type("message runs { required binary run (STRING); }")?;
    let mut runs = BTreeSet::new();
    for row in reader.get_row_iter(Some(column))? {
        let row = row?;
        let id =
            row.get_string(0)?.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        let not_an_id = || ParquetError::General("a run is no number".to_owned());
        runs.insert(id.and_then(Result::ok).ok_or_else(not_an_id)?);
    }
    Ok(runs)
}
