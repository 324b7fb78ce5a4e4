//! Tests of the filter as a whole.

mod live;
mod resymbolize;
