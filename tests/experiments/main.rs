//! The experiments of the papers that nprof comes from: the programs as the papers print them, and
//! the short form of each script in this folder.

mod context_split;
mod cycles;
mod propagation;
mod scripts;
mod support;
