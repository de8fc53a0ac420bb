//! The locations where ops were recorded: the source line, and the named scope around it, such as
//! the path of a layer in a model.
//!
//! The locations of Rust callers come from `#[track_caller]`. Front ends in other languages set the
//! line of their user with [`enter`] before they record. [`named_scope`] enters a scope:
//!
//! ```
//! use girih::{Tensor, location::named_scope};
//!
//! let x = Tensor::from_slice(&[1.0f32, -1.0], [2])?;
//! let y = named_scope("net", || named_scope("relu", || x.relu()))?;
//! let program = girih::Program::capture(&[&y], &[&x])?;
//! assert!(program.to_text().contains("net.relu"));
//! # Ok::<(), girih::Error>(())
//! ```

pub use girih_record::location::{
    Location, Scope, SourceLine, enabled, enter, epoch, named_scope, set_enabled,
};
