//! A table of Parquet: its schema and columns, and their encoding.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

/// The version of the schema, in each file.
const SCHEMA_VERSION: &str = "1";

/// The table of runs.
pub(super) const RUNS: &str = "runs";

/// A column.
#[derive(Clone, Debug)]
pub(super) enum Column {
    /// Text.
    Text(Vec<ByteArray>),
    /// 64-bit numbers; also microseconds since 1970.
    Long(Vec<i64>),
    /// 64-bit numbers that are hardly ever equal, or only in consecutive rows.
    Distinct(Vec<i64>),
    /// 64-bit numbers that may be absent.
    OptionalLong(Vec<Option<i64>>),
    /// 32-bit numbers.
    Int(Vec<i32>),
    /// True or false.
    Bool(Vec<bool>),
}

/// The columns of a table: name, annotated type, content.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: Vec<(&'static str, Column)>,
    /// Names of the columns that are times.
    pub(super) times: &'static [&'static str],
}

impl Table {
    fn schema(&self) -> String {
        let field = |(name, column): &(&'static str, Column)| {
            let of_numbers = match self.times.contains(name) {
                true => "TIMESTAMP(MICROS,true)",
                false => "INTEGER(64,true)",
            };
            match column {
                Column::Text(_) => format!("required binary {name} (STRING);"),
                Column::Long(_) | Column::Distinct(_) => {
                    format!("required int64 {name} ({of_numbers});")
                }
                Column::OptionalLong(_) => format!("optional int64 {name} ({of_numbers});"),
                Column::Int(_) => format!("required int32 {name};"),
                Column::Bool(_) => format!("required boolean {name};"),
            }
        };
        let fields: Vec<String> = self.columns.iter().map(field).collect();
        format!("message {} {{ {} }}", self.name, fields.join(" "))
    }

    /// Writes the table as a file. Equal tables give equal bytes.
    pub(super) fn write(&self, out: impl Write + Send) -> Result<()> {
        let schema = Arc::new(parse_message_type(&self.schema())?);
        let version = KeyValue::new("nprof.schema".to_owned(), SCHEMA_VERSION.to_owned());
        let properties = WriterProperties::builder()
            // Every engine reads gzip, and pprof files need its crate already.
            .set_compression(Compression::GZIP(GzipLevel::default()))
            // Pages are small: engines skip files and columns.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(concat!("nprof-export ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![version]));
        // A dictionary would have each number, and rows their place in it.
        let is_distinct = |column: &Column| matches!(column, Column::Distinct(_));
        let distinct = self.columns.iter().filter(|(_, column)| is_distinct(column));
        let properties = distinct.fold(properties, |properties, (name, _)| {
            properties.set_column_dictionary_enabled(ColumnPath::from(*name), false)
        });
        let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
        let mut rows = file.next_row_group()?;
        for (_, column) in &self.columns {
            let Some(mut writer) = rows.next_column()? else { break };
            match column {
                Column::Text(values) => {
                    writer.typed::<ByteArrayType>().write_batch(values, None, None)?;
                }
                Column::Long(values) | Column::Distinct(values) => {
                    writer.typed::<Int64Type>().write_batch(values, None, None)?;
                }
                Column::OptionalLong(values) => {
                    // A level of 1 is a value, of 0 its absence.
                    let levels: Vec<i16> =
                        values.iter().map(|value| i16::from(value.is_some())).collect();
                    let values: Vec<i64> = values.iter().copied().flatten().collect();
                    writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
                }
                Column::Int(values) => {
                    writer.typed::<Int32Type>().write_batch(values, None, None)?;
                }
                Column::Bool(values) => {
                    writer.typed::<BoolType>().write_batch(values, None, None)?;
                }
            }
            writer.close()?;
        }
        rows.close()?;
        file.close()?;
        Ok(())
    }
}
