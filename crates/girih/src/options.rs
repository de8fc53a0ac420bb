//! Options of compilation: the passes and kinds of fusion that are on.

use crate::Result;
use girih_kernel::FusionOptions;
use girih_opt::{OptOptions, PassFlag};
use girih_record::context::Context;
use girih_record::eval::executor;
use girih_runtime::CompileOptions;

/// The current options without the named passes and kinds of fusion (`dead_code`, `simplify`,
/// `elementwise`, `views`, ...; [`pass_names`] lists all names), for [`set_options`]. Composites
/// are always decomposed, since kernels consist of primitives.
///
/// Errors: [`crate::Error::InvalidArgument`] for an unknown name.
pub fn options_without(names: &[&str]) -> Result<CompileOptions> {
    switched(names, false)
}

/// The current options with the named passes and kinds of fusion: those that are off by default
/// (`matmul_chain`), or were switched off. The result is for [`set_options`].
///
/// Errors: [`crate::Error::InvalidArgument`] for an unknown name.
pub fn options_with(names: &[&str]) -> Result<CompileOptions> {
    switched(names, true)
}

/// The names of all passes, in the order of the pipeline, and of all kinds of fusion.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PassFlag::ALL.map(PassFlag::name).into_iter().chain(FusionOptions::NAMES)
}

fn switched(names: &[&str], on: bool) -> Result<CompileOptions> {
    let now = options()?;
    let mut passes = OptOptions::from_bits(now.passes);
    let mut fusion = FusionOptions::from_bits(now.fusion).bits();
    for name in names {
        if let Some(bit) = FusionOptions::NAMES.iter().position(|n| n == name) {
            fusion = fusion & !(1 << bit) | (on as u32) << bit;
        } else if let Ok(pass) = PassFlag::parse(name) {
            passes = if on { passes.with(pass) } else { passes.without(pass) };
        } else {
            let known: Vec<&str> = pass_names().collect();
            return Err(crate::Error::InvalidArgument(format!(
                "there is no pass or fusion '{name}'; there are {}",
                known.join(", ")
            )));
        }
    }
    Ok(CompileOptions { passes: passes.bits(), fusion, ..now })
}

/// The current compile options.
pub fn options() -> Result<CompileOptions> {
    let executor = executor()?;
    Ok(Context::current().options(&executor))
}

/// Sets the passes and fusions for later compilations.
pub fn set_options(options: CompileOptions) -> Result<()> {
    executor()?.set_options(options);
    Ok(())
}
