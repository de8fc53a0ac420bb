//! A guide to writing programs with Girih, one page per topic. The tests run each snippet.
//!
//! - [`start`]: a first program, and the habits of other libraries
//! - [`recording`]: recording and evaluating
//! - [`errors`]: results, operators, and the functions that report errors
//! - [`gradients`]: derivatives of functions
//! - [`compiling`]: functions traced once, for many sizes
//! - [`training`]: modules, losses and optimisers
//! - [`files`]: tensors, models and programs in files
//! - [`control_flow`]: branches and loops that stay in the graph
//! - [`threads`]: the state that threads share

#[doc = include_str!("guide/start.md")]
pub mod start {}
#[doc = include_str!("guide/recording.md")]
pub mod recording {}
#[doc = include_str!("guide/errors.md")]
pub mod errors {}
#[doc = include_str!("guide/gradients.md")]
pub mod gradients {}
#[doc = include_str!("guide/compiling.md")]
pub mod compiling {}
#[doc = include_str!("guide/training.md")]
pub mod training {}
#[doc = include_str!("guide/files.md")]
pub mod files {}
#[doc = include_str!("guide/control_flow.md")]
pub mod control_flow {}
#[doc = include_str!("guide/threads.md")]
pub mod threads {}
