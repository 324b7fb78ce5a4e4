//! The tables that all threads share: strings, source files, functions, frames, stacks. Each row is a number in
//! the order of its first use.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::categories::category_number;
use crate::model::{Category, Interner, Profile};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FrameRow {
    function: u32,
    line: u32,
    /// The address in its library.
    address: Option<u32>,
    category: Category,
    inline_depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackRow {
    prefix: Option<u32>,
    frame: u32,
}

/// The tables of a profile.
pub(super) struct Tables<'a> {
    profile: &'a Profile,
    strings: Interner<String>,
    /// Source files, as numbers of strings.
    sources: Interner<u32>,
    /// Functions of the profile.
    functions: Interner<u32>,
    /// Images of the profile.
    resources: Interner<u32>,
    frames: Interner<FrameRow>,
    stacks: Interner<StackRow>,
    /// The numbers of stacks of the profile.
    by_stack: FxHashMap<u32, u32>,
}

impl<'a> Tables<'a> {
    /// Creates empty tables.
    pub(super) fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            strings: Interner::default(),
            sources: Interner::default(),
            functions: Interner::default(),
            resources: Interner::default(),
            frames: Interner::default(),
            stacks: Interner::default(),
            by_stack: FxHashMap::default(),
        }
    }

    /// Returns the number of a string.
    pub(super) fn string(&mut self, text: &str) -> u32 {
        self.strings.number(text.to_owned())
    }

    /// Returns the number of a stack of the profile. None for no stack.
    pub(super) fn stack(&mut self, stack: Option<u32>) -> Option<u32> {
        // The stacks of a recursion share most of their frames.
        let mut path = Vec::new();
        let mut next = stack;
        let mut prefix = loop {
            let Some(stack) = next else { break None };
            if let Some(&known) = self.by_stack.get(&stack) {
                break Some(known);
            }
            path.push(stack);
            next = self.profile.stacks[stack as usize].parent;
        };
        // A stack begins with its root.
        for stack in path.into_iter().rev() {
            let number = self.below(prefix, self.profile.stacks[stack as usize].frame);
            self.by_stack.insert(stack, number);
            prefix = Some(number);
        }
        prefix
    }

    /// Returns the number of the stack of a frame of the profile below another stack.
    fn below(&mut self, mut prefix: Option<u32>, frame: u32) -> u32 {
        let frame = &self.profile.frames[frame as usize];
        let image = frame.image.map(|image| &self.profile.images[image as usize]);
        let address = image.and_then(|image| image.relative_address(frame.offset));
        let address = address.and_then(|address| u32::try_from(address).ok());
        let mut last = 0;
        // The outermost call comes first.
        for (call, inline_depth) in frame.calls.iter().rev().zip(0..) {
            let (function, line) = (self.functions.number(call.function), call.line);
            let category = frame.category;
            let frame =
                self.frames.number(FrameRow { function, line, address, category, inline_depth });
            last = self.stacks.number(StackRow { prefix, frame });
            prefix = Some(last);
        }
        last
    }

    /// Writes the tables.
    pub(super) fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        let functions = self.function_table();
        let resources = self.resource_table();
        let native = json!({
            "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [],
        });
        for (name, table) in [
            ("stackTable", self.stack_table()),
            ("frameTable", self.frame_table()),
            ("funcTable", functions),
            ("resourceTable", resources),
            ("nativeSymbols", native),
            ("sources", self.source_table()),
        ] {
            writeln!(out, "{}:{table},", json!(name))?;
        }
        write!(out, "\"stringArray\":{}", json!(self.strings.values()))
    }

    fn function_table(&mut self) -> Value {
        let count = self.functions.len();
        let (mut names, mut sources, mut resources) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = Vec::new();
        for function in self.functions.values() {
            let function = &self.profile.functions[*function as usize];
            names.push(self.strings.number(function.name.to_string()));
            lines.push(Some(function.start_line).filter(|&line| line > 0));
            let file = Some(function.file.to_string()).filter(|file| !file.is_empty());
            let file = file.map(|file| self.strings.number(file));
            sources.push(file.map(|file| self.sources.number(file)));
            // -1 is no resource.
            let resource = function.image.map(|image| self.resources.number(image));
            resources.push(resource.map_or(-1, i64::from));
        }
        json!({
            "length": count,
            "name": names,
            "isJS": vec![false; count],
            "relevantForJS": vec![false; count],
            "resource": resources,
            "source": sources,
            "lineNumber": lines,
            "columnNumber": vec![Value::Null; count],
        })
    }

    fn resource_table(&mut self) -> Value {
        let count = self.resources.len();
        let image = |&image: &u32| self.profile.images[image as usize].name.clone();
        let names: Vec<String> = self.resources.values().iter().map(image).collect();
        let names: Vec<u32> = names.into_iter().map(|name| self.strings.number(name)).collect();
        json!({
            "length": count,
            "lib": self.resources.values(),
            "name": names,
            "host": vec![Value::Null; count],
            // 1 is a library.
            "type": vec![1; count],
        })
    }

    fn frame_table(&self) -> Value {
        let rows = self.frames.values();
        let column = |value: &dyn Fn(&FrameRow) -> Value| rows.iter().map(value).collect();
        let nulls: Vec<Value> = vec![Value::Null; rows.len()];
        let columns: [(&str, Vec<Value>); 5] = [
            ("inlineDepth", column(&|row| json!(row.inline_depth))),
            ("category", column(&|row| json!(category_number(row.category)))),
            ("func", column(&|row| json!(row.function))),
            ("line", column(&|row| json!(Some(row.line).filter(|&line| line > 0)))),
            ("nativeSymbol", nulls.clone()),
        ];
        let mut table = json!({
            "length": rows.len(),
            // -1 is no address.
            "address": rows.iter().map(|row| row.address.map_or(-1, i64::from)).collect::<Vec<_>>(),
            "subcategory": vec![0; rows.len()],
            "innerWindowID": nulls,
            "column": nulls,
        });
        for (key, values) in columns {
            table[key] = json!(values);
        }
        table
    }

    fn stack_table(&self) -> Value {
        let rows = self.stacks.values();
        json!({
            "length": rows.len(),
            "prefix": rows.iter().map(|row| row.prefix).collect::<Vec<_>>(),
            "frame": rows.iter().map(|row| row.frame).collect::<Vec<_>>(),
        })
    }

    fn source_table(&self) -> Value {
        let sources = self.sources.values();
        // Only scripts have ids.
        json!({
            "length": sources.len(),
            "id": vec![Value::Null; sources.len()],
            "filename": sources,
        })
    }
}
