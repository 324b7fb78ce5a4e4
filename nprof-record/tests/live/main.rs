//! The recorder run for real: as a command that runs another, attached to what runs already, and
//! on programs whose stacks are known. Where recording is not permitted, or there is no compiler,
//! the tests say so and pass.

mod attach;
mod bare;
mod command;
mod deep;
mod events;
mod jit;
mod manners;
mod odd;
mod programs;
mod stacks;
mod storms;
mod support;
mod symbols;
