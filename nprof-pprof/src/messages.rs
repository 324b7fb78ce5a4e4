//! The messages, with the field numbers of profile.proto.

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// The meaning of the values of each sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The mapped files; the first is the program.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The places in code.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// A regular expression of frames to drop.
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    /// A regular expression of frames to keep.
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    /// The time of the profile, ns since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Its length, ns.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// The unit of `period`.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The units between two samples.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Text for people.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The sample type that is shown first.
    // Without it, pprof shows the last type.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// The meaning of a value.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ValueType {
    /// Its name, such as `cpu`.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Its unit, such as `nanoseconds`.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Samples with one stack.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sample {
    /// The stack, leaf first.
    // Packed, as proto3 encodes repeated numbers; readers accept both forms.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// A value for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Further properties.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A property of a sample: a string or a number.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Label {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Its value, if it is a string.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// Its value, if it is a number.
    #[prost(int64, tag = "3")]
    pub num: i64,
    /// The unit of the number.
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// A mapped file.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Mapping {
    /// Its id, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The first address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// The address after the last one.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// The offset in the file of the first address.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// The file.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// The build ID, in hexadecimal digits.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// True if its locations have functions: no program must look for symbols.
    // Otherwise pprof runs addr2line on its own machine.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// True if its locations have source files.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// True if its locations have lines.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// True if its locations have inlined calls.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in code.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Location {
    /// Its id, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its mapping, 0 for none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Its address.
    // Of a caller, an address inside of the call instruction.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Its calls, innermost first: all but the last are inlined.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
    /// True if the linker folded several functions into one.
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line in its source file.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Function {
    /// Its id, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name for people.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its name for the linker.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Its source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Its first line.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
