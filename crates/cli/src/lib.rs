//! The `girih` command as a function from arguments to output and exit status, so that the binary
//! and `python -m girih` share it.
//!
//! Exit status: 0 for success, 1 for a failure (such as an unreadable file or a graph that fails to
//! run), 2 for invalid arguments.
#![forbid(unsafe_code)]

mod commands;
mod files;
mod info;

use clap::{Parser, Subcommand};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Inspects, converts, explains, runs, times and traces graphs in files.
///
/// Graph files are PFGB (.pfgb) or text (.txt, .girih); their content decides. Tensors come from
/// and go to .npz, .npy and .safetensors files.
#[derive(Parser)]
#[command(name = "girih", version, arg_required_else_help = true)]
struct Arguments {
    /// Print one JSON value instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Version, processor, devices, caches and the environment variables that are set.
    Info,
    /// The graph in a file as text, and its statistics; of a file of tensors what it holds.
    Show {
        /// A graph file, or tensors: .npz, .npy or .safetensors.
        file: PathBuf,
        /// Of a graph, print the statistics only.
        #[arg(long)]
        stats: bool,
    },
    /// Write a graph in another form, by the suffix of the output.
    #[command(
        long_about = "Write a graph in another form, by the suffix of the output: .pfgb (with \
        the values it holds), .txt or .girih (text, without values), .dot, .svg, .html."
    )]
    Convert {
        /// A graph file.
        input: PathBuf,
        /// The file to write.
        output: PathBuf,
    },
    /// What the compiler makes of a graph: passes, kernels, what was not fused, memory.
    Explain {
        /// A graph file.
        file: PathBuf,
        /// Also the machine code generated for each kernel.
        #[arg(long)]
        asm: bool,
        /// Only the kernels, as a C11 file that a C compiler accepts.
        #[arg(long, conflicts_with = "asm")]
        c: bool,
    },
    /// Run a graph on inputs from a file.
    #[command(
        long_about = "Run a graph on inputs from a file. Inputs are found by name (the node's \
        name or number, %0), else taken in order if the file holds as many as the graph takes. \
        Outputs are printed, or written under their names (output0, output1, … without)."
    )]
    Run {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// Where outputs go: .npz, .npy or .safetensors.
        #[arg(long, short)]
        outputs: Option<PathBuf>,
    },
    /// Time a graph: compilation once, then runs.
    Bench {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors; without, they are made up.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// How many runs are timed.
        #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
    },
    /// Run a graph and write when its kernels, copies and compilations ran, for a trace viewer.
    #[command(
        long_about = "Run a graph and write when its kernels, copies and compilations ran, in \
        Chrome's trace event format: open the file in Perfetto or in chrome://tracing. With a name \
        that ends in .html it is a page for any browser. Without -o a table is printed only."
    )]
    Trace {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors; without, they are made up.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// The trace to write, .json or .html.
        #[arg(long, short)]
        output: Option<PathBuf>,
        /// How many runs are traced, the first of which compiles.
        #[arg(long, short = 'n', default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
    },
    /// The compiled programs kept on disk: how many there are, unless told otherwise.
    Cache {
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
}

#[derive(Subcommand, Clone, Copy)]
enum CacheAction {
    /// How many programs, how large, and where.
    Stats,
    /// Each program, what was used last first.
    List,
    /// Remove all programs.
    Clear,
}

/// The output of a command: as text, and as a value for `--json`.
struct Answer {
    text: String,
    json: Value,
}

/// Runs the command of these arguments (without the program's name) and returns its exit status.
/// Writes only to `out` and `err`.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let args = std::iter::once(OsString::from("girih")).chain(args);
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let help = !error.use_stderr();
            let written = match help {
                true => write!(out, "{error}"),
                false => write!(err, "{error}"),
            };
            return if help && written.is_ok() { 0 } else { 2 };
        }
    };
    let answer = match arguments.command {
        Command::Info => info::info(),
        Command::Show { file, stats } => commands::show(&file, stats),
        Command::Convert { input, output } => commands::convert(&input, &output),
        Command::Explain { file, asm, c } => commands::explain(&file, asm, c),
        Command::Run { file, inputs, outputs } => {
            commands::run(&file, inputs.as_deref(), outputs.as_deref())
        }
        Command::Trace { file, inputs, output, runs } => {
            commands::trace(&file, inputs.as_deref(), output.as_deref(), runs)
        }
        Command::Bench { file, inputs, runs } => commands::bench(&file, inputs.as_deref(), runs),
        Command::Cache { action } => info::cache(action.unwrap_or(CacheAction::Stats)),
    };
    let written = match answer {
        Ok(answer) if arguments.json => writeln!(out, "{}", answer.json),
        Ok(answer) => writeln!(out, "{}", answer.text.trim_end()),
        Err(error) => {
            let _ = match arguments.json {
                true => writeln!(err, "{}", serde_json::json!({"error": error.to_string()})),
                false => writeln!(err, "error: {error}"),
            };
            return 1;
        }
    };
    // A reader may close the pipe early, which is no failure.
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => 1,
        _ => 0,
    }
}
