//! Hooks for a host language: its users can interrupt a program, and its interpreter is released
//! while the library works.

pub use girih_record::host::{
    Collect, Outside, Section, foreign, set_collector, set_interrupt_hook, set_outside,
    set_wait_hook,
};
