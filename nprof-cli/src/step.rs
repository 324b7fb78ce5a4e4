//! The record of this run of a tool in a stream.

use nprof_stream::Step;

use crate::shell;

/// Returns the `@step` of this process: the tool, its version and its command line.
pub fn this_process(tool: &str) -> Step {
    Step {
        tool: tool.into(),
        // All tools of the workspace have one version.
        version: env!("CARGO_PKG_VERSION").into(),
        command: shell::quoted(std::env::args_os()),
        ..Step::default()
    }
}
